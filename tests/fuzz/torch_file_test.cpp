#include "io/torch_file.h"

#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>

#include "attempt.h"
#include "io/pickle.h"
#include "io/zip.h"
#include "io/zlib.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

// Visits every value and reads every tensor.
void use(TorchFile& file) {
  file.check();
  std::vector<float> values;
  for (PickleId id = 0; id < file.pickle().size(); ++id) {
    std::optional<TorchView> view = file.view(file.pickle().at(id));
    int64_t bytes = 0;
    if (view && view->numel < 1 << 16) {
      file.read(*view, [&](std::span<const std::byte> part) { bytes += std::ssize(part); });
      EXPECT_EQ(bytes, view->numel * view->unit);
    }
    std::optional<TorchTensor> tensor = file.tensor(file.pickle().at(id));
    if (!tensor || tensor->data.dtype != DS_DTYPE_F32) continue;
    values.resize(static_cast<size_t>(tensor->numel));
    file.read(tensor->data, 0, tensor->numel, values.data());
  }
}

class FuzzTorchFile : public testing::Test {
 protected:
  // Returns the pickle of {"a": tensor of 2 x 3, "b": 5}.
  static std::string pickle() {
    PickleWriter out;
    out.empty_dict().mark().text("a").global("torch._utils", "_rebuild_tensor_v2").mark().mark();
    out.text("storage")
        .global("torch", "FloatStorage")
        .text("0")
        .text("cpu")
        .integer(6)
        .tuple()
        .persistent();
    out.integer(0)
        .mark()
        .integer(2)
        .integer(3)
        .tuple()
        .mark()
        .integer(3)
        .integer(1)
        .tuple()
        .boolean(false);
    out.global("collections", "OrderedDict").empty_tuple().reduce().tuple().reduce();
    return out.text("b").integer(5).items().finish();
  }

  std::string archive(const std::string& text) {
    std::string path = folder_ / "good.pt";
    std::filesystem::remove(path);
    ZipWriter zip(path);
    zip.add("archive/data.pkl", text);
    zip.add("archive/byteorder", "little");
    zip.add("archive/data/0", std::string(24, '\1'));
    zip.finish();
    return get_file(path);
  }

  bool attempt(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] {
      TorchFile file(path_);
      use(file);
    });
  }

  TempFolder folder_;
  std::string path_ = folder_ / "t.pt";
  Attempts attempts_;
};

TEST_F(FuzzTorchFile, TruncatedFilesAreRefused) {
  std::string good = archive(pickle());
  ASSERT_TRUE(attempt(good));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(attempt(good.substr(0, size))) << size;
}

TEST_F(FuzzTorchFile, DamagedArchivesAreReadOrRefused) {
  std::string good = archive(pickle());
  for (uint32_t i = 0; i < draws(4000); ++i) {
    Dice dice = dice_of(21, i);
    SCOPED_TRACE(i);
    attempt(mutate_bytes(good, dice));
  }
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(2000)));
}

TEST_F(FuzzTorchFile, DamagedPicklesAreReadOrRefused) {
  for (uint32_t i = 0; i < draws(1500); ++i) {
    Dice dice = dice_of(22, i);
    SCOPED_TRACE(i);
    attempt(archive(mutate_bytes(pickle(), dice)));
  }
  EXPECT_GT(attempts_.loaded, static_cast<int>(draws(30)));
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(400)));
}

// The archive's directory claims gigabytes as a size or the position of an entry, or a pickle
// claims a tensor that does not fit its storage.
TEST_F(FuzzTorchFile, SizesBeyondTheFileAreRefused) {
  std::string good = archive(pickle());
  size_t central = good.find("PK\x01\x02");
  ASSERT_NE(central, std::string::npos);
  for (size_t field : {size_t{20}, size_t{24}, size_t{42}}) {
    for (uint32_t value : {0x7fffffffu, 0xfffffffeu, 0xffffffffu}) {
      std::string bytes = good;
      std::memcpy(bytes.data() + central + field, &value, sizeof value);
      EXPECT_FALSE(attempt(bytes)) << field << " " << value;
    }
  }
  for (int64_t extent : {int64_t{1} << 62, int64_t{1} << 32, int64_t{-1}, int64_t{7}}) {
    PickleWriter out;
    out.global("torch._utils", "_rebuild_tensor_v2")
        .mark()
        .mark()
        .text("storage")
        .global("torch", "FloatStorage");
    out.text("0")
        .text("cpu")
        .integer(6)
        .tuple()
        .persistent()
        .integer(0)
        .mark()
        .integer(extent)
        .integer(extent);
    out.tuple().mark().integer(extent).integer(1).tuple().boolean(false).none().tuple().reduce();
    EXPECT_FALSE(attempt(archive(out.finish()))) << extent;
  }
}

// Texts that claim to be longer than the file, and references to memos, marks and containers that
// do not exist.
TEST_F(FuzzTorchFile, PicklesWithFalseClaimsAreRefused) {
  for (const std::string& text :
       {std::string("\x80\x02X\xff\xff\xff\xff", 7),
        std::string("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", 11),
        std::string("\x80\x02h\x05."), std::string("\x80\x02t."), std::string("\x80\x02R."),
        std::string("\x80\x02}K\x01s."), std::string("\x80\x02K\x01K\x02u."),
        std::string("\x80\x02.."), std::string("."), std::string("\x80\x09N."),
        std::string("\x80\x02(((((((((."), std::string("\x80\x02K\x01K\x02R."),
        std::string("\x80\x02i\x01os\nsystem\n.")})
    EXPECT_FALSE(attempt(archive(text)));
  // A list that contains itself.
  EXPECT_TRUE(
      attempt(archive("\x80\x02]q\x01h\x01"
                      "a.")));
}

// Uses the 64-bit fields of files above 4 GiB in a small file.
TEST_F(FuzzTorchFile, SixtyFourBitFieldsAreRead) {
  for (int64_t from : {0, 100, 300, 500}) {
    std::filesystem::remove(path_);
    ZipWriter writer(path_, from);
    std::string large(400, 'x');
    writer.add("archive/data.pkl", pickle());
    writer.add("archive/data/0", std::string(24, '\1'));
    writer.add("archive/other", large);
    writer.finish();
    std::string good = get_file(path_);
    ZipArchive zip(path_);
    ASSERT_EQ(zip.entries().size(), 3u);
    EXPECT_EQ(zip.find("archive/other")->bytes, 400);
    EXPECT_EQ(good.substr(static_cast<size_t>(zip.find("archive/other")->begin), 400), large);
    EXPECT_TRUE(attempt(good));
    for (uint32_t i = 0; i < draws(500); ++i) {
      Dice dice = dice_of(24, i);
      attempt(mutate_bytes(good, dice));
    }
    for (size_t size = 0; size < good.size(); size += 7)
      EXPECT_FALSE(attempt(good.substr(0, size))) << size;
  }
}

// Entries deflated by zlib: one that inflates to hundreds of times its size is read in little
// memory, and one that claims another size is refused.
TEST_F(FuzzTorchFile, DeflatedEntriesAreReadWithinTheLimit) {
  std::string plain(1 << 20, '\0'), packed(4096, '\0');
  z_stream stream = {};
  ASSERT_EQ(zlib().begin_deflate(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY,
                                 ZLIB_VERSION, sizeof stream),
            Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(zlib().deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  zlib().end_deflate(&stream);
  auto crc = static_cast<uint32_t>(
      zlib().checksum(0, reinterpret_cast<const Bytef*>(plain.data()), plain.size()));
  auto made = [&](uint32_t bytes) {
    std::string name = "a/data.pkl", out;
    auto put = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
    auto common = [&] {
      put(uint16_t{20}), put(uint16_t{0}), put(uint16_t{8}), put(uint32_t{0}), put(crc);
      put(static_cast<uint32_t>(packed.size())), put(bytes),
          put(static_cast<uint16_t>(name.size())), put(uint16_t{0});
    };
    put(uint32_t{0x04034b50}), common(), out += name, out += packed;
    auto begin = static_cast<uint32_t>(out.size());
    put(uint32_t{0x02014b50}), put(uint16_t{20}), common();
    out.append(10, '\0'), put(uint32_t{0}), out += name;
    auto size = static_cast<uint32_t>(out.size()) - begin;
    put(uint32_t{0x06054b50}), put(uint32_t{0}), put(uint16_t{1}), put(uint16_t{1}), put(size),
        put(begin), put(uint16_t{0});
    return out;
  };
  auto check = [&](uint32_t bytes) {
    put_file(path_, made(bytes));
    return attempts_.run([&] {
      ZipArchive zip(path_);
      zip.check(zip.entries().at(0));
      std::array<std::byte, 16> part;
      for (int64_t at : {int64_t{1000}, int64_t{1 << 19}, int64_t{5}})
        zip.read(zip.entries()[0], at, part);
      EXPECT_EQ(part[3], std::byte{0});
    });
  };
  auto right = static_cast<uint32_t>(plain.size());
  EXPECT_TRUE(check(right));
  for (uint32_t wrong : {0u, right - 1, right + 1, 0x7fffffffu})
    EXPECT_FALSE(check(wrong)) << wrong;
  for (uint32_t i = 0; i < draws(500); ++i) {
    Dice dice = dice_of(23, i);
    attempt(mutate_bytes(made(right), dice));
  }
}

}  // namespace
}  // namespace ds::test
