#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.h"
#include "core/base/json.h"

namespace ds {

// Memory of one rank outside its plan, by part: exact if libds knows the bytes, measured if only
// the process or its GPU does. "links between devices" and "scratch of kernels" are GPU memory, if
// there is a GPU. Any other part is the growth of the process while the part was created: bytes in
// use in glibc's heap and executable anonymous mappings (oneDNN's code). So primitives that an
// earlier engine has cached are not counted again, and ranks that are threads of one process count
// each other's bytes: for them the row is an estimate, mostly too high. Under another malloc only
// the exact parts are known; table() says so.
class Overhead {
 public:
  // Bytes of a thread's stack. [M] A compute thread touches 8 KiB of it, an I/O lane 16.
  static constexpr int64_t kStackBytes = int64_t{64} << 10;
  // Bytes that calls need while they run: labels, requests, counters, the text of a manifest. [M]
  // 154 KiB while a GPT is saved.
  static constexpr int64_t kCallBytes = int64_t{192} << 10;

  // Runs `body` and adds the growth of the process to `part`. The growth is negative if `body`
  // frees more memory than it allocates. Calls must not be nested.
  void measure(const std::string& part, const std::function<void()>& body);
  // Adds a number of bytes that is known exactly.
  void add(const std::string& part, int64_t bytes);
  // Raises `part` to at least this much, for memory that only one of several users needs at a time.
  void raise_to(const std::string& part, int64_t bytes);

  int64_t total() const;
  // Returns the bytes of a part; 0 for an unknown part.
  int64_t bytes(const std::string& part) const;
  // Returns rows "overhead PART BYTES" and their total, as in memory_table().
  std::string table() const;
  // Returns the bytes by part, and "total".
  Json json() const;

 private:
  // The parts in the order in which they were first added.
  std::vector<std::pair<std::string, int64_t>> parts_;
};

// Adds the parts whose bytes are known: the communicator's staging, the blocks of a checkpoint's
// transfers (one more if state is in files), the stacks of `threads`, and the memory of running
// calls.
void add_known_overhead(Overhead& overhead, const CommGroups& comm, int threads, bool files);

}  // namespace ds
