#include "io/tensor_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "io/file.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class TensorFolderTest : public testing::Test {
 protected:
  // Writes a safetensors file of f32 vectors.
  void write_tensors(const std::string& name,
                     const std::vector<std::pair<std::string, int64_t>>& tensors) {
    std::vector<SafetensorEntry> entries;
    for (const auto& [tensor, numel] : tensors)
      entries.push_back({tensor, DS_DTYPE_F32, {numel}, 0, 0});
    std::string bytes = plan_safetensors(entries, {});
    for (const auto& entry : entries) bytes.append(static_cast<size_t>(entry.bytes), '\1');
    write_file_atomic(folder_ / name, bytes);
  }
  void write_index(const std::string& map) {
    write_file_atomic(folder_ / "model.safetensors.index.json",
                      R"({"metadata": {"total_size": 20}, "weight_map": )" + map + "}");
  }
  void two_shards() {
    write_tensors("a.safetensors", {{"x", 2}, {"y", 1}});
    write_tensors("b.safetensors", {{"z", 3}});
  }
  std::string refusal(ds_status status = DS_ERROR_CORRUPT) {
    return message_of([&] { read_tensor_folder(folder_.path()); }, status);
  }
  TempFolder folder_;
};

constexpr const char* kGoodMap =
    R"({"x": "a.safetensors", "z": "b.safetensors", "y": "a.safetensors"})";

TEST_F(TensorFolderTest, ReadsOneFileOrShards) {
  two_shards();
  write_index(kGoodMap);
  TensorFolder sharded = read_tensor_folder(folder_.path());
  EXPECT_TRUE(sharded.sharded);
  ASSERT_EQ(sharded.files.size(), 2u);
  EXPECT_EQ(sharded.files[0].name, "a.safetensors");
  EXPECT_EQ(sharded.file_path(1), folder_ / "b.safetensors");
  EXPECT_EQ(sharded.files[1].header.entries.at(0).name, "z");
  write_tensors("model.safetensors", {{"w", 4}});
  TensorFolder single = read_tensor_folder(folder_.path());
  EXPECT_FALSE(single.sharded);
  ASSERT_EQ(single.files.size(), 1u);
  EXPECT_EQ(single.files[0].header.entries.at(0).name, "w");
}

TEST_F(TensorFolderTest, IndexAndShardsMustAgree) {
  two_shards();
  write_index(R"({"x": "a.safetensors", "z": "b.safetensors"})");
  expect_names(refusal(), {"a.safetensors", "'y'"});
  write_index(R"({"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"})");
  expect_names(refusal(), {"a.safetensors", "'y'", "'b.safetensors'"});
  write_index(
      R"({"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors", "gone": "b.safetensors"})");
  expect_names(refusal(), {"b.safetensors", "'gone'"});
  write_tensors("b.safetensors", {{"z", 3}, {"x", 2}});
  write_index(kGoodMap);
  expect_names(refusal(), {"b.safetensors", "'x'", "'a.safetensors'"});
}

TEST_F(TensorFolderTest, ShardsMustBeFilesOfTheFolder) {
  two_shards();
  for (const char* name : {"../b.safetensors", "/etc/passwd", "sub/b.safetensors", "..", "b.bin",
                           "", ".safetensors"}) {
    write_index(R"({"x": "a.safetensors", "y": "a.safetensors", "z": ")" + std::string(name) +
                "\"}");
    expect_names(refusal(), {"index.json", "'z'"});
  }
  write_index(R"({"z": "b.safetensors\u0000.safetensors"})");
  expect_names(refusal(), {"index.json", "\\u0000"});
  write_index(R"({"x": "a.safetensors", "y": "a.safetensors", "z": "none.safetensors"})");
  expect_names(refusal(DS_ERROR_NOT_FOUND),
               {"none.safetensors", "does not exist", "index.json", "'z'"});
  std::filesystem::resize_file(folder_ / "b.safetensors",
                               std::filesystem::file_size(folder_ / "b.safetensors") - 1);
  write_index(kGoodMap);
  expect_names(refusal(), {"b.safetensors", "cut off"});
}

TEST_F(TensorFolderTest, DamagedIndexesAreRefused) {
  two_shards();
  write_index(R"({"x": "a.safetensors", "x": "b.safetensors"})");
  expect_names(refusal(), {"index.json", "duplicate key 'x'"});
  write_index("{}");
  expect_names(refusal(), {"index.json", "weight_map"});
  for (const char* map : {"[]", "3", R"({"x": 1})", R"({"x": "a.safetensors")"}) {
    write_index(map);
    const bool whole = std::string_view(map).find('.') == std::string_view::npos;
    expect_names(refusal(), {whole ? "index.json: weight_map" : "index.json"});
  }
  write_file_atomic(folder_ / "model.safetensors.index.json", "{}");
  expect_names(refusal(), {"weight_map"});
  // The index becomes a sparse file of 1 TiB.
  std::filesystem::resize_file(folder_ / "model.safetensors.index.json", 1LL << 40);
  expect_names(refusal(), {"index.json", "33554432", "1099511627776"});
}

TEST_F(TensorFolderTest, AnIndexWithAnyByteChangedIsReadOrRefused) {
  two_shards();
  write_index(kGoodMap);
  std::string path = folder_ / "model.safetensors.index.json", good = read_file(path);
  for (size_t at = 0; at < good.size(); ++at) {
    for (char c : {'\0', '"', '{', '}', ',', '/', '0', '\xff', static_cast<char>(good[at] ^ 1)}) {
      File(path, File::Mode::write).write(&c, 1, static_cast<int64_t>(at));
      try {
        EXPECT_EQ(read_tensor_folder(folder_.path()).files.size(), 2u);
      } catch (const Error& error) {
        EXPECT_TRUE(error.status() == DS_ERROR_CORRUPT || error.status() == DS_ERROR_NOT_FOUND)
            << error.what();
      }
    }
    File(path, File::Mode::write).write(&good[at], 1, static_cast<int64_t>(at));
  }
}

TEST_F(TensorFolderTest, OtherFilesAreRefusedAndLinksAreRead) {
  expect_names(refusal(DS_ERROR_NOT_FOUND), {"model.safetensors"});
  std::filesystem::create_symlink("model.safetensors", folder_ / "model.safetensors");
  expect_names(refusal(DS_ERROR_IO), {"model.safetensors", "symbolic links"});
  std::filesystem::remove(folder_ / "model.safetensors");
  std::filesystem::create_directory(folder_ / "model.safetensors");
  expect_names(refusal(), {"model.safetensors", "regular file"});
  std::filesystem::remove(folder_ / "model.safetensors");
  // Opening a FIFO would block forever.
  ASSERT_EQ(mkfifo((folder_ / "model.safetensors").c_str(), 0600), 0);
  expect_names(refusal(), {"model.safetensors", "regular file"});
  std::filesystem::remove(folder_ / "model.safetensors");
  write_tensors("blob", {{"w", 4}});
  // The cache of the Hugging Face hub links files like this.
  std::filesystem::create_symlink("blob", folder_ / "model.safetensors");
  EXPECT_EQ(read_tensor_folder(folder_.path()).files.at(0).header.entries.at(0).name, "w");
  std::filesystem::create_symlink("model.safetensors.index.json",
                                  folder_ / "model.safetensors.index.json");
  std::filesystem::remove(folder_ / "model.safetensors");
  expect_names(refusal(DS_ERROR_IO), {"index.json", "symbolic links"});
}

}  // namespace
}  // namespace ds::test
