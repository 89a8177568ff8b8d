#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "io/owner.h"
#include "support/file_limit.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// Returns the status of the error that `body` must throw, and checks that its message contains
// `part`.
ds_status status_of(const std::function<void()>& body, const std::string& part) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.status();
  }
  return DS_OK;
}

TEST(File, ReadsBackWrittenBytes) {
  test::TempFolder folder;
  std::string path = folder / "a.bin";
  File file(path, File::Mode::create);
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
  EXPECT_EQ(File(path, File::Mode::write).size(), 5);
  EXPECT_EQ(status_of([&] { File(path, File::Mode::create); }, "File exists"), DS_ERROR_IO);
}

TEST(File, ErrorsNamePathAndReason) {
  test::TempFolder folder;
  std::string path = folder / "a.bin";
  EXPECT_EQ(status_of([&] { File(path, File::Mode::read); }, path), DS_ERROR_NOT_FOUND);
  EXPECT_EQ(status_of([&] { read_file(path); }, path), DS_ERROR_NOT_FOUND);
  EXPECT_EQ(status_of([&] { read_file(folder.path()); }, "is a folder"), DS_ERROR_CORRUPT);
  EXPECT_EQ(status_of([&] { File(folder / "x/y", File::Mode::create); }, "x/y"),
            DS_ERROR_NOT_FOUND);
  write_file_atomic(path, "0123456789");
  char buffer[20];
  File reader(path, File::Mode::read);
  EXPECT_EQ(status_of([&] { reader.read(buffer, 20, 0); },
                      "20 bytes wanted at offset 0, but the file has 10"),
            DS_ERROR_CORRUPT);
  EXPECT_EQ(status_of([&] { reader.write("x", 1, 0); }, "Bad file descriptor"), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { File().read(buffer, 1, 0); }, "Bad file descriptor"), DS_ERROR_IO);
  {
    File full(folder / "full", File::Mode::create);
    test::FileLimit limit(0);
    EXPECT_EQ(status_of([&] { full.write("x", 1, 0); }, "File too large"), DS_ERROR_IO);
  }
  EXPECT_EQ(status_of([&] { make_folders(path + "/sub"); }, path), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { make_folders(path); }, path), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { list_folder(folder / "none"); }, "none"), DS_ERROR_NOT_FOUND);
}

TEST(File, OpeningOtherThanRegularFilesFailsAtOnce) {
  test::TempFolder folder;
  std::string path = folder / "odd";
  auto refusals = [&](const std::string& kind) {
    for (File::Mode mode : {File::Mode::read, File::Mode::write}) {
      EXPECT_EQ(status_of([&] { File(path, mode); }, kind), DS_ERROR_CORRUPT);
    }
    EXPECT_EQ(status_of([&] { File(path, File::Mode::create); }, "File exists"), DS_ERROR_IO);
    EXPECT_EQ(status_of([&] { read_file(path); }, path), DS_ERROR_CORRUPT);
    ::remove(path.c_str());
  };
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  refusals("is a pipe");
  make_folder(path);
  refusals("is a folder");
  sockaddr_un name{AF_UNIX, "odd"};
  int listener = socket(AF_UNIX, SOCK_STREAM, 0), before = open(".", O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(chdir(folder.path().c_str()), 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(fchdir(before), 0);
  close(listener);
  close(before);
  refusals("is a socket");
  for (const char* device : {"/dev/zero", "/dev/tty"}) {
    std::filesystem::create_symlink(device, path);
    EXPECT_EQ(status_of([&] { read_file(path); }, "is a device"), DS_ERROR_CORRUPT);
    EXPECT_EQ(status_of([&] { File(path, File::Mode::write); }, "symbolic link"), DS_ERROR_CORRUPT);
    ::remove(path.c_str());
  }
}

TEST(File, LinksAreReadThroughAndNeverWrittenThrough) {
  test::TempFolder folder;
  std::string victim = folder / "victim", link = folder / "link";
  write_file_atomic(victim, "mine");
  std::filesystem::create_symlink("victim", link);
  EXPECT_EQ(read_file(link), "mine");
  EXPECT_EQ(status_of([&] { File(link, File::Mode::write); }, "symbolic link"), DS_ERROR_CORRUPT);
  EXPECT_EQ(status_of([&] { File(link, File::Mode::create); }, "File exists"), DS_ERROR_IO);
  write_file_atomic(link, "new");
  EXPECT_EQ(read_file(link), "new");
  EXPECT_EQ(read_file(victim), "mine");
  std::filesystem::create_hard_link(victim, folder / "second");
  EXPECT_EQ(
      status_of([&] { File(victim, File::Mode::write); }, "must have one name, but the file has 2"),
      DS_ERROR_CORRUPT);
  EXPECT_NE(fresh_name(victim), fresh_name(victim));
}

TEST(File, ReadFileRefusesFilesAboveTheLimit) {
  test::TempFolder folder;
  std::string path = folder / "a";
  write_file_atomic(path, "0123456789");
  EXPECT_EQ(read_file(path, 10), "0123456789");
  EXPECT_EQ(status_of([&] { read_file(path, 9); }, "at most 9 bytes are possible, got 10"),
            DS_ERROR_CORRUPT);
}

TEST(Owner, OtherUsersFilesAndLinksAreRefused) {
  test::TempFolder folder;
  std::string file = folder / "file", inside = folder / "inside";
  require_own_file(file);
  require_own_folder(inside);
  write_file_atomic(file, "");
  make_folder(inside);
  require_own_file(file);
  require_own_folder(inside);
  EXPECT_EQ(status_of([&] { require_own_file(inside); }, "is a folder"), DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { require_own_folder(file); }, "is a file"), DS_ERROR_IO);
  std::filesystem::create_symlink("inside", folder / "link");
  EXPECT_EQ(status_of([&] { require_own_folder(folder / "link"); }, "is a symbolic link"),
            DS_ERROR_IO);
  require_own_folder(folder / "link/.");
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  for (const std::string& path : {file, inside}) ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
  EXPECT_EQ(status_of([&] { require_own_file(file); },
                      "belongs to user 4242, but this process to user 0"),
            DS_ERROR_IO);
  EXPECT_EQ(status_of([&] { require_own_folder(inside); }, "belongs to user 4242"), DS_ERROR_IO);
}

TEST(File, ResizeReservesSpace) {
  test::TempFolder folder;
  File file(folder / "huge", File::Mode::create);
  EXPECT_EQ(status_of([&] { file.resize(int64_t{1} << 60); }, "reserve"), DS_ERROR_IO);
}

TEST(File, AtomicWriteReplacesTheWholeFile) {
  test::TempFolder folder;
  std::string path = folder / "a.json";
  write_file_atomic(path, "one");
  write_file_atomic(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a.json"});
  // If the target cannot be replaced, it remains and no temporary file is left.
  make_folders(folder / "b/c");
  EXPECT_EQ(status_of([&] { write_file_atomic(folder / "b", "x"); }, "rename"), DS_ERROR_IO);
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"a.json", "b"}));
}

TEST(File, FoldersAreCreatedAndListedInOrder) {
  test::TempFolder folder;
  make_folders(folder / "x/y/z");
  make_folders(folder / "x/y/z");
  EXPECT_TRUE(exists(folder / "x/y/z"));
  EXPECT_FALSE(exists(folder / "x/q"));
  for (const char* name : {"x/b", "x/a", "x/c"}) write_file_atomic(folder / name, "");
  EXPECT_EQ(list_folder(folder / "x"), (std::vector<std::string>{"a", "b", "c", "y"}));
  EXPECT_EQ(read_file(folder / "x/a"), "");
}

// A host may have a timer whose signals interrupt system calls. tmpfs gives up a reservation as
// soon as a signal arrives.
TEST(File, SignalsDoNotEndCalls) {
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> done = false;
  std::thread sender([&done, target = pthread_self()] {
    while (!done) {
      pthread_kill(target, SIGUSR1);
      usleep(50);
    }
  });
  std::string message;
  try {
    test::TempFolder folder;
    for (const std::string& place : {folder.path(), std::string("/dev/shm")}) {
      if (access(place.c_str(), W_OK) != 0) continue;
      File file = File::scratch(place);
      for (int i = 0; i < 10; ++i) {
        file.resize(32 << 20);
        file.write("x", 1, i);
        file.sync();
        file.resize(0);
      }
    }
    for (int i = 0; i < 10; ++i) {
      write_file_atomic(folder / "a", "text");
      EXPECT_EQ(read_file(folder / "a"), "text");
    }
  } catch (const Error& error) {
    message = error.what();
  }
  done = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(message, "");
}

TEST(File, ScratchFilesHaveNoName) {
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
