#include "io/file.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// Status of the error that `body` must throw; its message must contain `part`.
ds_status status_of(const std::function<void()>& body, const std::string& part) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.status();
  }
  return DS_OK;
}

TEST(File, ReadsWhatItWrote) {
  test::TempFolder folder;
  std::string path = folder / "a.bin";
  File file(path, File::Mode::write_new);
  file.write("hello world", 11, 0);
  file.write("W", 1, 6);
  file.sync();
  EXPECT_EQ(file.size(), 11);
  char back[5];
  file.read(back, 5, 6);
  EXPECT_EQ(std::string(back, 5), "World");
  EXPECT_EQ(read_file(path), "hello World");

  File moved = std::move(file);
  EXPECT_FALSE(file.open());
  EXPECT_EQ(moved.path(), path);
  moved.resize(100000);
  EXPECT_EQ(File(path, File::Mode::read).size(), 100000);
  moved.resize(5);
  EXPECT_EQ(read_file(path), "hello");
  EXPECT_EQ(File(path, File::Mode::read_write).size(), 5);
  EXPECT_EQ(File(path, File::Mode::write_new).size(), 0);
}

TEST(File, ErrorsNamePathAndReason) {
  test::TempFolder folder;
  std::string path = folder / "a.bin";
  EXPECT_EQ(status_of([&] { File(path, File::Mode::read); }, path), DS_ERROR_NOT_FOUND);
  EXPECT_EQ(status_of([&] { read_file(path); }, path), DS_ERROR_NOT_FOUND);
  EXPECT_EQ(status_of([&] { read_file(folder.path()); }, "Is a directory"), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { File(folder / "x/y", File::Mode::write_new); }, "x/y"), DS_ERROR_NOT_FOUND);
  write_file_atomic(path, "0123456789");
  char buffer[20];
  File reader(path, File::Mode::read);
  EXPECT_EQ(
      status_of([&] { reader.read(buffer, 20, 0); }, "20 bytes wanted at offset 0, but the file has 10"),
      DS_ERROR_CORRUPT);
  EXPECT_EQ(status_of([&] { reader.write("x", 1, 0); }, "Bad file descriptor"), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { File().read(buffer, 1, 0); }, "Bad file descriptor"), DS_ERROR_IO);
  File full("/dev/full", File::Mode::read_write);
  EXPECT_EQ(status_of([&] { full.write("x", 1, 0); }, "No space left"), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { make_folders(path + "/sub"); }, path), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { make_folders(path); }, path), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { list_folder(folder / "none"); }, "none"), DS_ERROR_NOT_FOUND);
}

TEST(File, ResizeReservesSpace) {
  test::TempFolder folder;
  File file(folder / "huge", File::Mode::write_new);
  EXPECT_EQ(status_of([&] { file.resize(int64_t{1} << 60); }, "reserve"), DS_ERROR_IO);
}

TEST(File, AtomicWriteReplaces) {
  test::TempFolder folder;
  std::string path = folder / "a.json";
  write_file_atomic(path, "one");
  write_file_atomic(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a.json"});
  // A target that cannot be replaced stays, and no temporary file is left.
  make_folders(folder / "b/c");
  EXPECT_EQ(status_of([&] { write_file_atomic(folder / "b", "x"); }, "rename"), DS_ERROR_IO);
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"a.json", "b"}));
}

TEST(File, Folders) {
  test::TempFolder folder;
  make_folders(folder / "x/y/z");
  make_folders(folder / "x/y/z");
  EXPECT_TRUE(exists(folder / "x/y/z"));
  EXPECT_FALSE(exists(folder / "x/q"));
  for (const char* name : {"x/b", "x/a", "x/c"}) write_file_atomic(folder / name, "");
  EXPECT_EQ(list_folder(folder / "x"), (std::vector<std::string>{"a", "b", "c", "y"}));
  EXPECT_EQ(read_file(folder / "x/a"), "");
}

TEST(File, ScratchHasNoName) {
  test::TempFolder folder;
  File scratch = File::scratch(folder.path(), /*direct=*/false);
  scratch.resize(8192);
  scratch.write("abc", 3, 4096);
  char back[3];
  scratch.read(back, 3, 4096);
  EXPECT_EQ(std::string(back, 3), "abc");
  EXPECT_TRUE(list_folder(folder.path()).empty());
  EXPECT_EQ(status_of([&] { File::scratch(folder / "none", false); }, "none"), DS_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace ds
