#include "engine/overhead.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>

#include "checkpoint/manifest.h"
#include "core/base/file_stream.h"
#include "io/direct_blocks.h"

namespace ds {
namespace {

// Returns the bytes of this process's executable mappings that belong to no file. A line of maps is
// "7f0a12340000-7f0a12380000 rwxp 00000000 00:00 0", followed by a path or "[vdso]" if the mapping
// has a name.
int64_t anonymous_code() {
  InputFile maps("/proc/self/maps");
  std::string line;
  int64_t sum = 0;
  while (std::getline(maps, line)) {
    unsigned long low = 0, high = 0, inode = 0;
    char rights[5] = {}, name[2] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu %1s", &low, &high, rights, &inode,
                    name) != 4)
      continue;
    if (rights[2] == 'x' && inode == 0) sum += static_cast<int64_t>(high - low);
  }
  return sum;
}

// A sanitizer replaces the allocator. The allocator of the C library is then never initialized, and
// two concurrent calls of mallinfo2() would race to initialize it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t heap_now() { return 0; }
#else
int64_t heap_now() {
  // `uordblks` counts the bytes in use in the heap, and `hblkhd` the bytes of blocks that were
  // mapped individually.
  struct mallinfo2 heap = mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}
#endif

int64_t taken_now() { return heap_now() + anonymous_code(); }

}  // namespace

void Overhead::measure(const std::string& part, const std::function<void()>& body) {
  int64_t before = taken_now();
  body();
  add(part, taken_now() - before);
}

void Overhead::add(const std::string& part, int64_t bytes) {
  auto at =
      std::find_if(parts_.begin(), parts_.end(), [&](const auto& p) { return p.first == part; });
  if (at == parts_.end()) at = parts_.emplace(at, part, 0);
  at->second += bytes;
}

void Overhead::raise_to(const std::string& part, int64_t least) {
  if (least > bytes(part)) add(part, least - bytes(part));
}

int64_t Overhead::bytes(const std::string& part) const {
  for (const auto& [name, bytes] : parts_) {
    // A part is negative if its body freed more than it allocated.
    if (name == part) return std::max<int64_t>(bytes, 0);
  }
  return 0;
}

int64_t Overhead::total() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : parts_) sum += std::max<int64_t>(bytes, 0);
  return sum;
}

std::string Overhead::table() const {
  std::string out;
  for (const auto& [name, bytes] : parts_) {
    out += fmt::format("{:<10}{:<26}{:>16}\n", "overhead", name, std::max<int64_t>(bytes, 0));
  }
  out += fmt::format("{:<10}{:<26}{:>16}{}\n", "overhead", "total", total(),
                     heap_now() > 0 ? "" : "  without the heap: malloc is not glibc's");
  return out;
}

Json Overhead::json() const {
  Json out{Json::Object()};
  for (const auto& [name, bytes] : parts_) out.set(name, std::max<int64_t>(bytes, 0));
  out.set("total", total());
  return out;
}

void add_known_overhead(Overhead& overhead, const CommGroups& comm, int threads, bool files) {
  overhead.add("communicator staging", comm.overhead_bytes());
  overhead.add("checkpoint blocks",
               static_cast<int64_t>(kPieceBytes) * (files ? 2 : 1) + DirectBlocks::kMapped);
  overhead.add("thread stacks", threads * Overhead::kStackBytes);
  overhead.add("running calls", Overhead::kCallBytes);
}

}  // namespace ds
