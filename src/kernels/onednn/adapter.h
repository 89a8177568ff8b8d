#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/matrix_product.h"

namespace ds::onednn {

// A single-threaded matmul primitive. Several threads may call run() of one object at the same
// time: each run uses a separate context, which is created when first needed and then kept. The
// constructor throws DS_ERROR_UNSUPPORTED if oneDNN lacks an implementation.
class Matmul {
 public:
  explicit Matmul(const MatrixShape& key);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Computes the product. `bias` is ignored unless the key has one. `scratch` is at least 64-byte
  // aligned; it is used if `available` covers scratch_bytes(), otherwise the context allocates a
  // buffer and keeps it.
  void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch,
           size_t available) const;
  // Creates contexts for `threads` concurrent runs, with `available` bytes of scratch for each run,
  // and lets oneDNN generate the code that it would otherwise generate at its first run.
  void reserve(int threads, size_t available) const;
  // Returns an upper estimate of the bytes that oneDNN allocates and frees in each run.
  int64_t run_bytes() const;
  // Returns the bytes of scratchpad that a run needs.
  size_t scratch_bytes() const;
  // Returns oneDNN's name for the implementation, such as "brg:avx512_core_bf16".
  std::string implementation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A guard: while it exists, OpenMP regions that this thread opens have one thread. The destructor
// restores the thread's previous setting.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Returns the version of the oneDNN library loaded at run time, such as "2.6.3".
std::string version();
// Returns the instruction set that oneDNN uses, such as "avx512_core_bf16".
std::string effective_isa();
// Caps oneDNN's instruction set at "sse4", "avx2", "avx512", "avx512_bf16" or another name of kIsas
// (adapter.cpp). Returns "", or the reason for a failure. The cap works only if the process has not
// yet created a oneDNN primitive.
std::string limit_isa(const std::string& isa);

}  // namespace ds::onednn
