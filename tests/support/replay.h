#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ds::test {

// What a process did to the files below a folder, as crash/record_shim.c wrote it down.
struct FileEvent {
  char kind = 0;  // as in record_shim.c
  int handle = 0;
  int64_t offset = 0;
  std::string bytes;
};
std::vector<FileEvent> read_events(const std::string& log);

// How a replay treats what was not synced when the power went.
enum class Loss : uint8_t {
  all,      // nothing of it is there
  none,     // all of it is there
  ordered,  // of each file and each folder the first so many of its changes
  any       // each write, each sector of a write, and each name of a folder as a coin falls
};

// Makes `to`, an empty folder, what `root` may look like after a power cut before events[end]. A
// file's data and size are safe from the sync of that file on, a folder's names from the sync of
// that folder on; nothing else is: the name of a synced file may be lost, and a renamed file may be
// empty.
void replay(const std::vector<FileEvent>& events, size_t end, const std::string& root,
            const std::string& to, Loss loss, std::mt19937& random);

}  // namespace ds::test
