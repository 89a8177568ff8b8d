#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ds::test {

// A file operation of a process below a folder, as crash/record_shim.c recorded it.
struct FileEvent {
  // The letter that record_shim.c writes for this operation.
  char kind = 0;
  int handle = 0;
  int64_t offset = 0;
  std::string bytes;
};
std::vector<FileEvent> read_events(const std::string& log);

// The fate of changes that were not synced before a power cut.
enum class Loss : uint8_t {
  // All of these changes are lost.
  all,
  // None of these changes is lost.
  none,
  // For each file and each folder, the first changes survive, up to a random one.
  ordered,
  // Each write, each sector of a write and each entry of a folder survives or not at random.
  any
};

// Fills the empty folder `to` with a state that `root` may have after a power cut before
// events[end]. A sync of a file makes its data and size durable, and a sync of a folder the names
// in it. Nothing else is durable: the name of a synced file may be lost, and a renamed file may be
// empty.
void replay(const std::vector<FileEvent>& events, size_t end, const std::string& root,
            const std::string& to, Loss loss, std::mt19937& random);

}  // namespace ds::test
