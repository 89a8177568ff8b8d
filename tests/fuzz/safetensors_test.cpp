#include "io/safetensors.h"

#include <cstring>
#include <limits>

#include "attempt.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class FuzzSafetensors : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<SafetensorEntry> entries{{"a", DS_DTYPE_F32, {4, 3}, 0, 0},
                                         {"b.weight", DS_DTYPE_BF16, {5}, 0, 0},
                                         {"c", DS_DTYPE_F16, {2, 1, 2}, 0, 0},
                                         {"none", DS_DTYPE_F32, {0, 3}, 0, 0},
                                         {"ids", DS_DTYPE_I64, {2}, 0, 0}};
    good_ = plan_safetensors(entries, {{"format", "pt"}});
    header_ = Json::parse(std::string_view(good_).substr(8));
    for (const SafetensorEntry& entry : entries)
      data_.append(static_cast<size_t>(entry.bytes), '\1');
    good_ += data_;
  }

  static std::string with_length(uint64_t length, const std::string& rest) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + rest;
  }
  std::string with_header(const Json& header) const {
    std::string text = header.dump();
    return with_length(text.size(), text + data_);
  }

  // Reads the bytes as a file and checks the result against the promises of io/safetensors.h.
  bool attempt(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] {
      SafetensorHeader header = read_safetensors_header(path_);
      int64_t at = header.entries.empty() ? header.file_bytes : header.entries[0].begin;
      for (const SafetensorEntry& entry : header.entries) {
        int64_t bytes = size_of(entry.dtype);
        for (int64_t extent : entry.shape) bytes *= extent;
        EXPECT_EQ(entry.bytes, bytes);
        EXPECT_EQ(entry.begin, at);
        EXPECT_EQ(header.find(entry.name), &entry);
        at += bytes;
      }
      EXPECT_EQ(at, header.file_bytes);
    });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "t.safetensors", good_, data_;
  Json header_;
  Attempts attempts_;
};

TEST_F(FuzzSafetensors, TruncatedFilesAreRefused) {
  ASSERT_TRUE(attempt(good_));
  for (size_t size = 0; size < good_.size(); ++size)
    EXPECT_FALSE(attempt(good_.substr(0, size))) << size;
  EXPECT_FALSE(attempt(good_ + '\0'));
}

TEST_F(FuzzSafetensors, WrongHeaderLengthsAreRefused) {
  std::string rest = good_.substr(8);
  uint64_t right = rest.size() - data_.size();
  for (uint64_t length = 0; length <= rest.size(); ++length) {
    EXPECT_EQ(attempt(with_length(length, rest)), length == right) << length;
  }
  for (uint64_t length :
       {uint64_t{100'000'000}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{INT64_MAX},
        uint64_t{INT64_MAX} + 1, std::numeric_limits<uint64_t>::max() - 7,
        std::numeric_limits<uint64_t>::max()}) {
    EXPECT_FALSE(attempt(with_length(length, rest))) << length;
  }
  // The file is as long as its header says, but has a hole: the reader must not allocate that much
  // memory.
  put_file(path_, with_length(uint64_t{1} << 40, rest));
  std::filesystem::resize_file(path_, (uint64_t{1} << 40) + 8);
  EXPECT_FALSE(attempts_.run([&] { read_safetensors_header(path_); }));
}

TEST_F(FuzzSafetensors, ImpossibleShapesAndOffsetsAreRefused) {
  for (const char* shape :
       {"[4611686018427387904,4]", "[4294967296,4294967296]", "[9223372036854775807]", "[-4,-3]",
        "[1e300]", "[12.5]", "[[12]]", "[null]", "\"12\"", "{}"}) {
    for (const char* offsets : {"[0,48]", "[0,9223372036854775807]", "[9223372036854775807,0]",
                                "[-48,0]", "[48]", "[0,48,48]", "[0,1e300]", "48"}) {
      Json header = header_;
      Json& entry = header.object()[1].second;
      entry.set("shape", Json::parse(shape));
      entry.set("data_offsets", Json::parse(offsets));
      EXPECT_FALSE(attempt(with_header(header))) << shape << " " << offsets;
    }
  }
}

TEST_F(FuzzSafetensors, TensorsThatOverlapOrLeaveGapsAreRefused) {
  for (const char* offsets :
       {"[0,10]", "[40,50]", "[46,56]", "[49,59]", "[50,60]", "[52,62]", "[58,68]"}) {
    Json header = header_;
    header.object()[2].second.set("data_offsets", Json::parse(offsets));
    EXPECT_FALSE(attempt(with_header(header))) << offsets;
  }
  for (size_t i = 1; i < header_.object().size(); ++i) {
    Json header = header_;
    header.object().erase(header.object().begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(attempt(with_header(header)), header_.object()[i].first == "none") << i;
  }
}

TEST_F(FuzzSafetensors, DuplicateNamesAreRefused) {
  for (const auto& member : header_.object()) {
    Json header = header_;
    header.object().push_back(member);
    EXPECT_FALSE(attempt(with_header(header))) << member.first;
  }
  Json header = header_;
  header.object()[1].second.object().emplace_back("dtype", "F32");
  EXPECT_FALSE(attempt(with_header(header)));
}

// Found by this test: messages once repeated names of the file without escaping them.
TEST_F(FuzzSafetensors, NamesOfSeveralLinesAreEscaped) {
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x1b[2J"), std::string(100'000, 'x')}) {
    Json header = header_;
    header.object()[1].first = name;
    EXPECT_TRUE(attempt(with_header(header)));
    header.object()[1].second.set("dtype", name);
    EXPECT_FALSE(attempt(with_header(header)));
  }
}

TEST_F(FuzzSafetensors, DamagedFilesAreReadOrRefused) {
  for (uint32_t i = 0; i < draws(4000); ++i) {
    Dice dice = dice_of(11, i);
    SCOPED_TRACE(i);
    attempt(mutate_bytes(good_, dice));
  }
  EXPECT_GT(attempts_.loaded, static_cast<int>(draws(20)));
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(2000)));
}

TEST_F(FuzzSafetensors, DamagedHeadersAreReadOrRefused) {
  for (uint32_t i = 0; i < draws(4000); ++i) {
    Dice dice = dice_of(12, i);
    SCOPED_TRACE(i);
    attempt(with_header(mutate_json(header_, dice)));
  }
  EXPECT_GT(attempts_.loaded, static_cast<int>(draws(100)));
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(2000)));
}

}  // namespace
}  // namespace ds::test
