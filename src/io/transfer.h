#pragma once
#include <libaio.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "io/request.h"

namespace ds {

// Carries out one IoRequest at a time, cut into chunks of which up to `depth` are in flight
// together. With a depth of 1, or where the kernel has no asynchronous I/O (io_setup refused;
// logged once per object), the chunks run one by one with pread and pwrite: what io_setup makes
// takes some 30 ms to destroy. One thread at a time.
class Transfer {
 public:
  Transfer(std::string_view name, size_t chunk_bytes, int depth);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Returns when every byte has been moved. Throws DS_ERROR_IO with path and label; no chunk is in
  // flight any more then, so the memory may be freed.
  void run(const IoRequest& request);

 private:
  struct Chunk {
    iocb control{};
    size_t begin = 0, bytes = 0;  // what is left of it, relative to the request
  };
  void run_blocking(const IoRequest& request);
  void prepare(const IoRequest& request, Chunk& chunk);
  bool submit();  // hands waiting_ to the kernel as far as it takes them; false: it takes none
  void reap(const IoRequest& request);  // waits for one completion at least
  void drain();
  // Moves these bytes of the request with pread or pwrite.
  void blocking(const IoRequest& request, size_t begin, size_t bytes) const;

  size_t chunk_bytes_;
  io_context_t context_ = nullptr;  // null: blocking
  std::vector<Chunk> chunks_;       // slots, reused by each request
  std::vector<iocb*> waiting_;      // prepared, not yet accepted by the kernel
  std::vector<Chunk*> free_;
  std::vector<io_event> events_;
  size_t in_flight_ = 0;
};

}  // namespace ds
