#pragma once
#include <libaio.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "io/request.h"

namespace ds {

// An executor of requests, one at a time. A request is cut into chunks, with up to `depth` chunks
// in flight. With a depth of 1, or if the kernel refuses io_setup (logged once for each object),
// the chunks are transferred one by one with pread and pwrite. A depth of 1 avoids io_setup because
// its context takes some 30 ms to destroy. Only one thread at a time may use an object.
class Transfer {
 public:
  Transfer(std::string_view name, size_t chunk_bytes, int depth);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Returns when every byte has been transferred. Throws DS_ERROR_IO, or DS_ERROR_CORRUPT if a read
  // meets the end of the file, with path and label. Even then no chunk is in flight, so the memory
  // may be freed.
  void run(const IoRequest& request);

 private:
  struct Chunk {
    iocb control{};
    // The part that remains to be transferred, relative to the start of the request.
    size_t begin = 0, bytes = 0;
  };
  void run_blocking(const IoRequest& request);
  void prepare(const IoRequest& request, Chunk& chunk);
  // Submits waiting_ to the kernel. Returns false if the kernel does not accept all of it now.
  bool submit();
  // Waits for at least one completion.
  void reap(const IoRequest& request);
  // Waits for all chunks in flight and ignores their results.
  void drain();
  // Transfers these bytes of the request with pread or pwrite.
  void blocking(const IoRequest& request, size_t begin, size_t bytes) const;

  size_t chunk_bytes_;
  // Null if chunks are transferred one by one with pread and pwrite.
  io_context_t context_ = nullptr;
  // One slot for each chunk in flight, reused by each request.
  std::vector<Chunk> chunks_;
  // Chunks that are prepared but not yet accepted by the kernel.
  std::vector<iocb*> waiting_;
  std::vector<Chunk*> free_;
  std::vector<io_event> events_;
  size_t in_flight_ = 0;
};

}  // namespace ds
