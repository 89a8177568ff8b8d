#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/matrix_product.h"

namespace ds::onednn {

// A single-threaded matmul primitive. Threads may run one object at the same time; each takes one
// of its contexts, made on first use and kept. Throws DS_ERROR_UNSUPPORTED when oneDNN has no
// implementation.
class Matmul {
 public:
  explicit Matmul(const MatrixShape& key);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // bias is ignored unless the key has one. scratch: at least 64-byte aligned; used when it is
  // large enough for scratch_bytes(), else the context keeps a buffer of its own.
  void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch,
           size_t available) const;
  // Makes contexts for `threads` concurrent runs that each have `available` bytes of scratch, and
  // oneDNN's code for them.
  void reserve(int threads, size_t available) const;
  // Bytes that oneDNN takes from the heap for each run and gives back: an upper estimate.
  int64_t run_bytes() const;
  size_t scratch_bytes() const;
  std::string implementation() const;  // oneDNN's name, such as "brg:avx512_core_bf16"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While it lives, OpenMP regions that this thread opens have one thread; restores the thread's
// value.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// "2.6.3": the library loaded at run time.
std::string version();
// Instruction set that oneDNN uses, such as "avx512_core_bf16".
std::string effective_isa();
// Caps oneDNN's instruction set at "sse4", "avx2", "avx512" or "avx512_bf16"; "" when done, else
// the reason. Works only before oneDNN's first primitive of the process.
std::string limit_isa(const std::string& isa);

}  // namespace ds::onednn
