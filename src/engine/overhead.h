#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.h"
#include "core/base/json.h"

namespace ds {

// Memory of one rank outside its plan, by part: exact where libds knows the bytes, measured where
// only the process or its GPU does. "links between devices" and "scratch of kernels" are of a GPU,
// where there is one. Any other part is what the process grew by while it was made: bytes in use in
// glibc's heap and executable anonymous mappings (oneDNN's code). So what an earlier engine left
// for this one (cached primitives) is not counted again, and ranks that are threads of one process
// count each other's bytes: for them the row is an estimate, mostly too high. Under another malloc
// only exact parts are known; table() says so.
class Overhead {
 public:
  // Of a thread's stack: [M] a compute thread touches 8 KiB of it, an I/O lane 16.
  static constexpr int64_t kStackBytes = int64_t{64} << 10;
  // Of running calls: labels, requests, counters, the text of a manifest. [M] 154 KiB while a GPT
  // is saved.
  static constexpr int64_t kCallBytes = int64_t{192} << 10;

  // Adds what the process grows by while body runs to `part`; body may also give back. Not nested.
  void measure(const std::string& part, const std::function<void()>& body);
  // Adds bytes that libds knows.
  void add(const std::string& part, int64_t bytes);
  // `part` is at least this much: what one of several takes at a time.
  void raise_to(const std::string& part, int64_t bytes);

  int64_t total() const;
  int64_t bytes(const std::string& part) const;  // 0: no such part
  // Rows "overhead PART BYTES" and their total, as in memory_table().
  std::string table() const;
  Json json() const;  // bytes by part, and "total"

 private:
  std::vector<std::pair<std::string, int64_t>> parts_;  // in order of first mention
};

// Adds what is known: the communicator's staging, the blocks of a checkpoint's transfers (one more
// where state lives in files), the stacks of `threads` and what running calls take.
void add_known_overhead(Overhead& overhead, const CommGroups& comm, int threads, bool files);

}  // namespace ds
