#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/file.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

std::string with_length(const std::string& header, std::string data, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  // Returns the message with which a file with these bytes is refused, or "" if it is accepted.
  std::string refusal(const std::string& bytes, ds_status status = DS_ERROR_CORRUPT) {
    overwrite(bytes);
    try {
      read_safetensors_header(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      EXPECT_NE(std::string(e.what()).find(path_), std::string::npos) << e.what();
      return e.what();
    }
    return "";
  }
  std::string refusal_of_header(const std::string& header, size_t data_bytes,
                                ds_status status = DS_ERROR_CORRUPT) {
    return refusal(with_length(header, std::string(data_bytes, '\0'), header.size()), status);
  }
  // Overwrites the file without truncating it to zero bytes first, because some file systems then
  // flush at every close.
  void overwrite(const std::string& bytes) {
    File file(path_, File::Mode::write);
    file.write(bytes.data(), bytes.size(), 0);
    file.resize(static_cast<int64_t>(bytes.size()));
  }
  test::TempFolder folder_;
  std::string path_ = folder_ / "a.safetensors";
};

std::vector<SafetensorEntry> sample_entries() {
  return {{"z.weight", DS_DTYPE_BF16, {3, 5}, 0, 0},
          {"a", DS_DTYPE_F32, {}, 0, 0},
          {"empty", DS_DTYPE_F64, {0, 7}, 0, 0},
          {"q\"uote", DS_DTYPE_I64, {2, 1, 2}, 0, 0},
          {"u", DS_DTYPE_U8, {3}, 0, 0}};
}

TEST_F(Safetensors, PlannedEntriesReadBack) {
  auto entries = sample_entries();
  std::string header = plan_safetensors(entries, {{"format", "pt"}, {"key", "x y"}});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(entries[0].begin, static_cast<int64_t>(header.size()));
  EXPECT_EQ(entries[0].bytes, 30);
  EXPECT_EQ(entries[1].begin, entries[0].begin + 30);
  int64_t end = entries.back().begin + entries.back().bytes;
  EXPECT_EQ(refusal(header + std::string(static_cast<size_t>(end) - header.size(), '\1')), "");
  SafetensorHeader back = read_safetensors_header(path_);
  EXPECT_EQ(back.file_bytes, end);
  ASSERT_EQ(back.entries.size(), entries.size());
  for (const auto& entry : entries) {
    const SafetensorEntry* found = back.find(entry.name);
    ASSERT_TRUE(found) << entry.name;
    EXPECT_EQ(found->dtype, entry.dtype);
    EXPECT_EQ(found->shape, entry.shape);
    EXPECT_EQ(found->begin, entry.begin);
    EXPECT_EQ(found->bytes, entry.bytes);
  }
  EXPECT_EQ(back.find("none"), nullptr);
  EXPECT_EQ(back.metadata,
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"key", "x y"}}));
}

TEST_F(Safetensors, PlanRefusesInvalidEntries) {
  std::vector<SafetensorEntry> twice{{"a", DS_DTYPE_F32, {1}, 0, 0},
                                     {"a", DS_DTYPE_F32, {1}, 0, 0}};
  EXPECT_THROW(plan_safetensors(twice, {}), Error);
  std::vector<SafetensorEntry> negative{{"a", DS_DTYPE_F32, {-1}, 0, 0}};
  EXPECT_THROW(plan_safetensors(negative, {}), Error);
  std::vector<SafetensorEntry> huge{
      {"a", DS_DTYPE_F32, {int64_t{1} << 40, int64_t{1} << 40}, 0, 0}};
  EXPECT_THROW(plan_safetensors(huge, {}), Error);
  std::vector<SafetensorEntry> reserved{{"__metadata__", DS_DTYPE_F32, {1}, 0, 0}};
  EXPECT_THROW(plan_safetensors(reserved, {}), Error);
  std::vector<SafetensorEntry> none{{"a", DS_DTYPE_NONE, {1}, 0, 0}};
  EXPECT_THROW(plan_safetensors(none, {}), Error);
}

TEST_F(Safetensors, EntriesComeInFileOrder) {
  std::string header =
      R"({"b": {"dtype": "U8", "shape": [2], "data_offsets": [3, 5]}, "e": {"dtype": "F32", "shape": [0],
          "data_offsets": [3, 3]}, "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})";
  ASSERT_EQ(refusal_of_header(header, 5), "");
  SafetensorHeader back = read_safetensors_header(path_);
  ASSERT_EQ(back.entries.size(), 3u);
  EXPECT_EQ(back.entries[0].name + back.entries[1].name + back.entries[2].name, "aeb");
}

TEST_F(Safetensors, HostileHeaderLengthsAreRefused) {
  EXPECT_THROW(read_safetensors_header(folder_ / "none"), Error);
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("1234567"), "");
  EXPECT_NE(refusal(with_length("", "", 0)), "");
  EXPECT_EQ(refusal(with_length("{}", "", 2)), "");
  for (uint64_t length :
       {uint64_t{3}, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    EXPECT_NE(refusal(with_length("{}", "", length)).find("at most 2"), std::string::npos)
        << length;
  }
  {
    // The file is large enough for the length that it declares.
    File sparse(path_, File::Mode::write);
    uint64_t length = uint64_t{1} << 40;
    sparse.write(&length, 8, 0);
    ASSERT_EQ(ftruncate(sparse.fd(), int64_t{1} << 41), 0);
  }
  EXPECT_THROW(read_safetensors_header(path_), Error);
}

// A header above the limit is refused because of its length, whatever it contains.
TEST_F(Safetensors, HeadersLargerThanThoseOfModelsAreRefusedUnread) {
  constexpr size_t limit = size_t{16} << 20;
  EXPECT_NE(
      refusal_of_header(std::string(limit + 1, ' '), 0).find(fmt::format("at most {}", limit)),
      std::string::npos);
  std::vector<SafetensorEntry> entries(1);
  entries[0] = {std::string(limit, 'n'), DS_DTYPE_F32, {1}, 0, 0};
  EXPECT_THROW(plan_safetensors(entries, {}), Error);
}

TEST_F(Safetensors, HostileHeadersAreRefused) {
  auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
           offsets + "}}";
  };
  EXPECT_EQ(refusal_of_header(tensor("U8", "[8]", "[0, 8]"), 8), "");
  for (const auto& [shape, offsets] : std::vector<std::pair<std::string, std::string>>{
           {"[8]", "[0, 9]"},
           {"[8]", "[8, 0]"},
           {"[8]", "[-8, 0]"},
           {"[8]", "[0]"},
           {"[8]", "[0, 4, 8]"},
           {"[8]", "{}"},
           {"[8]", "[0, 8.5]"},
           {"[9]", "[0, 8]"},
           {"[-8]", "[0, 8]"},
           {"[-2, -4]", "[0, 8]"},
           // The product of the dimensions is 0 modulo 2^64.
           {"[4294967296, 4294967296, 8]", "[0, 8]"},
           {"[9223372036854775808]", "[0, 8]"},
           {"[8]", "[0, 18446744073709551615]"},
           {"[1e30]", "[0, 8]"},
           {"[\"8\"]", "[0, 8]"},
           {"null", "[0, 8]"},
           // The file has more bytes than the tensors.
           {"[4]", "[0, 4]"},
           // Bytes 0 to 3 belong to no tensor.
           {"[4]", "[4, 8]"},
       }) {
    std::string what = refusal_of_header(tensor("U8", shape, offsets), 8);
    EXPECT_NE(what, "") << shape << offsets;
  }
  EXPECT_NE(refusal_of_header(tensor("F31", "[2]", "[0, 8]"), 8).find("F31"), std::string::npos);
  EXPECT_NE(refusal_of_header(tensor("I8", "[8]", "[0, 8]"), 8, DS_ERROR_UNSUPPORTED), "");
  EXPECT_EQ(refusal_of_header(tensor("BOOL", "[8]", "[0, 8]"), 8), "");
  for (const char* header : {"[]", "1", "{\"t\": 1}", "{\"t\": {}}", "{\"__metadata__\": 1}",
                             "{\"__metadata__\": {\"a\": 1}}", "{", "\xff\xff"}) {
    EXPECT_NE(refusal_of_header(header, 0), "") << header;
  }
  EXPECT_NE(refusal_of_header(std::string(5000, '['), 0), "");
}

TEST_F(Safetensors, OverlapsAndDuplicatesAreRefused) {
  std::string u8 = R"({"dtype": "U8", "shape": [4], "data_offsets": )";
  EXPECT_EQ(refusal_of_header("{\"a\": " + u8 + "[0, 4]}, \"b\": " + u8 + "[4, 8]}}", 8), "");
  std::string overlap =
      refusal_of_header("{\"a\": " + u8 + "[0, 4]}, \"b\": " + u8 + "[2, 6]}}", 6);
  EXPECT_NE(overlap.find("tensor 'b' begins"), std::string::npos) << overlap;
  std::string twice = refusal_of_header("{\"a\": " + u8 + "[0, 4]}, \"a\": " + u8 + "[4, 8]}}", 8);
  EXPECT_NE(twice.find("duplicate key 'a'"), std::string::npos) << twice;
}

// Each truncation of a valid file is refused with ds::Error, and each seeded mutation is either
// parsed or refused.
TEST_F(Safetensors, MutatedFilesAreParsedOrRefused) {
  auto entries = sample_entries();
  std::string good = plan_safetensors(entries, {{"format", "pt"}});
  good += std::string(
      static_cast<size_t>(entries.back().begin + entries.back().bytes) - good.size(), '\0');
  int accepted = 0, refused = 0;
  auto attempt = [&](const std::string& bytes) {
    overwrite(bytes);
    try {
      SafetensorHeader header = read_safetensors_header(path_);
      for (const auto& e : header.entries) {
        ASSERT_GE(e.begin, 8);
        ASSERT_GE(e.bytes, 0);
        ASSERT_LE(e.begin + e.bytes, header.file_bytes);
      }
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (size_t length = 0; length < good.size(); ++length) attempt(good.substr(0, length));
  EXPECT_EQ(accepted, 0);
  static constexpr char alphabet[] = "0123456789-{}[],:\"\\eE. \xff";
  for (uint32_t i = 0; i < 4000; ++i) {
    auto w = philox({i, 0, 0, 0}, {99, 0});
    std::string bytes = good;
    for (uint32_t k = 0; k <= w[0] % 3; ++k) {
      auto v = philox({i, k, 1, 0}, {99, 0});
      size_t at = v[0] % bytes.size();
      char c = v[2] % 2 == 0 ? static_cast<char>(v[1]) : alphabet[v[1] % (sizeof alphabet - 1)];
      if (v[3] % 4 == 0) {
        bytes.erase(at, 1 + v[2] % 5);
      } else if (v[3] % 4 == 1) {
        bytes.insert(at, 1, c);
      } else {
        bytes[at] = c;
      }
    }
    attempt(bytes);
  }
  // Changes of names and of data leave a valid file.
  EXPECT_GT(accepted, 10);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ds
