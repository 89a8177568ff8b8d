#include "io/gguf.h"

#include <cstring>

#include "io/file.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

const std::string kRecordedGguf = std::string(DS_SOURCE_DIR) + "/tests/data/gguf/";

GgufTensor tensor_of(const std::string& name, const char* type, std::vector<int64_t> shape) {
  return {name, &written_gguf_type(type), std::move(shape)};
}

class Gguf : public testing::Test {
 protected:
  // Returns a small file with values of every kind and two tensors.
  std::string good_file() {
    metadata_ = {{"general.architecture", GgufValue::text("llama")},
                 {"a.u8", {GgufKind::u8, false, std::vector<int64_t>{200}}},
                 {"a.i64", {GgufKind::i64, false, std::vector<int64_t>{-5}}},
                 {"a.f64", {GgufKind::f64, false, std::vector<double>{0.1}}},
                 {"a.flag", GgufValue::flag(true)},
                 {"a.texts", {GgufKind::text, true, std::vector<std::string>{"x", "", "é"}}},
                 {"a.numbers", {GgufKind::i32, true, std::vector<int64_t>{1, -2}}},
                 {"a.none", {GgufKind::f32, true, std::vector<double>{}}}};
    tensors_ = {tensor_of("first", "f32", {3}), tensor_of("second.weight", "q8_0", {2, 64})};
    std::string bytes = plan_gguf(metadata_, tensors_);
    bytes.resize(static_cast<size_t>(tensors_.back().begin + tensors_.back().bytes));
    return bytes;
  }

  std::string put(const std::string& bytes) {
    const std::string path = folder_ / "m.gguf";
    File file(path, File::Mode::write);
    file.write(bytes.data(), bytes.size(), 0);
    file.resize(static_cast<int64_t>(bytes.size()));
    return path;
  }

  // Expects that the reader refuses these bytes with a message that has these parts.
  void refuse(const std::string& bytes, const std::vector<std::string>& parts,
              ds_status status = DS_ERROR_CORRUPT) {
    const std::string path = put(bytes);
    expect_names(message_of([&] { read_gguf_header(path); }, status), parts);
  }

  // Returns the file with a number of `size` bytes written after the first `before`.
  static std::string with_number(std::string bytes, const std::string& before, uint64_t number,
                                 size_t size = 8) {
    const size_t at = bytes.find(before) + before.size();
    std::memcpy(bytes.data() + at, &number, size);
    return bytes;
  }

  TempFolder folder_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
};

TEST_F(Gguf, AHeadReadsBackAsItWasPlanned) {
  const GgufHeader header = read_gguf_header(put(good_file()));
  ASSERT_EQ(header.metadata.size(), metadata_.size());
  for (size_t i = 0; i < metadata_.size(); ++i) {
    EXPECT_EQ(header.metadata[i].first, metadata_[i].first);
    EXPECT_EQ(header.metadata[i].second.kind, metadata_[i].second.kind);
    EXPECT_EQ(header.metadata[i].second.is_list, metadata_[i].second.is_list);
    EXPECT_EQ(header.metadata[i].second.elements, metadata_[i].second.elements);
  }
  ASSERT_EQ(header.tensors.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors_[i].name);
    EXPECT_EQ(header.tensors[i].shape, tensors_[i].shape);
    EXPECT_EQ(header.tensors[i].begin, tensors_[i].begin);
    EXPECT_EQ(header.tensors[i].bytes, tensors_[i].bytes);
    EXPECT_EQ(header.tensors[i].begin % 32, 0);
  }
  EXPECT_EQ(header.find("third"), nullptr);
  EXPECT_EQ(header.value("a.other"), nullptr);
}

// blocks.gguf and blocks.f32 are from the gguf package (tools/make_gguf.py).
TEST_F(Gguf, BlocksExpandToTheRecordedBits) {
  const std::string path = kRecordedGguf + "blocks.gguf";
  const GgufHeader header = read_gguf_header(path);
  const File file(path, File::Mode::read);
  const std::string recorded = read_file(kRecordedGguf + "blocks.f32");
  ASSERT_EQ(header.tensors.size(), 13u);
  ASSERT_EQ(recorded.size(), 13u * 256 * sizeof(float));
  for (size_t t = 0; t < header.tensors.size(); ++t) {
    const GgufTensor& tensor = header.tensors[t];
    EXPECT_EQ(tensor.name, tensor.type->name);
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
    file.read(bytes.data(), bytes.size(), tensor.begin);
    std::vector<float> values(256);
    expand_gguf(*tensor.type, bytes.data(), 256, values.data());
    EXPECT_EQ(std::memcmp(values.data(), recorded.data() + t * 1024, 1024), 0) << tensor.name;
  }
}

TEST_F(Gguf, PackedCodesAreRoundedFromTheLargestMagnitude) {
  std::vector<float> values(64);
  for (int i = 0; i < 32; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i - 16) * 0.5f;
  const GgufType& type = written_gguf_type("q8_0");
  std::vector<std::byte> bytes(68);
  pack_gguf(type, values.data(), 64, bytes.data());
  // The scale is 8 / 127, so -8 becomes -127, and 0.5 becomes 7.9, which rounds to 8.
  EXPECT_EQ(std::to_integer<int8_t>(bytes[2]), -127);
  EXPECT_EQ(std::to_integer<int8_t>(bytes[2 + 17]), 8);
  std::vector<float> back(64);
  expand_gguf(type, bytes.data(), 64, back.data());
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(back[i], values[i], 8.0 / 127 / 2 * 1.01) << i;
  // A block of zeros has the scale 0.
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(back[i], 0.0f);
}

TEST_F(Gguf, CutFilesAreRefused) {
  const std::string good = good_file();
  for (size_t size = 5; size < good.size(); ++size)
    refuse(good.substr(0, size), {"m.gguf: ", "end of the file is missing"});
}

TEST_F(Gguf, OtherVersionsAreRefusedByNumber) {
  const std::string good = good_file();
  for (auto [version, what] : {std::pair<uint64_t, const char*>{1, "version 1"},
                               {4, "version 4"},
                               {0x03000000, "big-endian"}})
    refuse(with_number(good, "GGUF", version, 4), {what}, DS_ERROR_UNSUPPORTED);
  EXPECT_EQ(read_gguf_header(put(with_number(good, "GGUF", 2, 4))).tensors.size(), 2u);
}

TEST_F(Gguf, AnotherFileIsNamedByItsKind) {
  refuse("<!DOCTYPE html><html>Sign in</html>", {"web page"});
  refuse("Entry not found", {"answer of the hub"});
}

// The file is sparse and as long as its counts say, so only the reader's own limits protect memory.
TEST_F(Gguf, HugeCountsAllocateNothing) {
  const std::string good = good_file();
  const uint64_t huge = uint64_t{1} << 40;
  const std::string version("\3\0\0\0", 4);
  struct Case {
    std::string bytes;
    const char* what;
  };
  const Case cases[] = {
      {with_number(good, "GGUF" + version, huge), "tensors"},
      {with_number(good, "a.numbers" + std::string("\x9\0\0\0\5\0\0\0", 8), huge), "a.numbers"},
      {with_number(good, "a.texts" + std::string("\x9\0\0\0\x8\0\0\0", 8), huge), "a.texts"},
      {with_number(good, "general.architecture" + std::string("\x8\0\0\0", 4), huge),
       "general.architecture"}};
  for (const Case& one : cases) {
    const std::string path = put(one.bytes);
    expect_names(message_of([&] { read_gguf_header(path); }, DS_ERROR_CORRUPT), {one.what});
    std::filesystem::resize_file(path, uint64_t{1} << 42);
    try {
      read_gguf_header(path);
      ADD_FAILURE() << one.what;
    } catch (const Error& error) {
      expect_names(error.what(), {"m.gguf: "});
    }
  }
}

TEST_F(Gguf, WrongTensorsAreRefusedByName) {
  const std::string good = good_file();
  // After the name of the second tensor: the number of extents, the extents, the type, the offset.
  const std::string name = "second.weight";
  auto changed = [&](size_t place, uint64_t number, size_t size) {
    std::string bytes = good;
    std::memcpy(bytes.data() + bytes.find(name) + name.size() + place, &number, size);
    return bytes;
  };
  refuse(changed(0, 5, 4), {"'second.weight' has 5 extents"});
  refuse(changed(4, 65, 8), {"'second.weight' has rows of 65 elements, but blocks of 32 (Q8_0)"});
  refuse(changed(4, uint64_t{1} << 62, 8), {"'second.weight' has too many elements"});
  refuse(changed(12, UINT64_MAX, 8), {"'second.weight' has too many elements"});
  refuse(changed(12, 200, 8), {"'second.weight'", "cut off"});
  refuse(changed(20, 17, 4), {"'second.weight' has type IQ2_XS; libds reads F32, F16, Q4_0"},
         DS_ERROR_UNSUPPORTED);
  refuse(changed(20, 99, 4), {"'second.weight' has unknown type 99"});
  refuse(changed(24, 8, 8), {"'second.weight' begins at 8", "must be a multiple of 32"});
  refuse(changed(24, 0, 8), {"begins at byte", "but 'first' ends at"});
  refuse(changed(24, uint64_t{1} << 40, 8), {"'second.weight' has 136 bytes at"});
  refuse(changed(24, UINT64_MAX - 31, 8), {"'second.weight' begins at"});
}

TEST_F(Gguf, DuplicatesAreRefused) {
  tensors_ = {tensor_of("twice", "f32", {1}), tensor_of("twicf", "f32", {1})};
  std::string bytes = plan_gguf({}, tensors_);
  bytes.resize(bytes.size() + 64);
  bytes[bytes.find("twicf") + 4] = 'e';
  refuse(bytes, {"tensor 'twice' appears twice"});
  tensors_.clear();
  bytes = plan_gguf({{"k.a", GgufValue::u32(1)}, {"k.b", GgufValue::u32(2)}}, tensors_);
  bytes[bytes.find("k.b") + 2] = 'a';
  refuse(bytes, {"key 'k.a' appears twice"});
}

TEST_F(Gguf, WrongValuesAreRefused) {
  const std::string good = good_file();
  refuse(with_number(good, "a.flag", 13, 4), {"key 'a.flag' has elements of type 13"});
  refuse(with_number(good, "a.numbers" + std::string("\x9\0\0\0", 4), 9, 4),
         {"key 'a.numbers' has elements of type 9"}, DS_ERROR_UNSUPPORTED);
  std::string bytes = good;
  bytes[bytes.find("é")] = '\xff';
  refuse(bytes, {"key 'a.texts' is not UTF-8"});
  for (int64_t alignment : {0, 4, 33, 1 << 30}) {
    tensors_.clear();
    refuse(plan_gguf({{"general.alignment", GgufValue::u32(alignment)}}, tensors_),
           {"general.alignment", "power of 2"});
  }
}

}  // namespace
}  // namespace ds::test
