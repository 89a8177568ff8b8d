// Only the size of the output is wanted, so each block of output overwrites the previous one.
#include "data/gzip.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "io/zlib.h"

namespace ds {

// A window of 15 + 16 selects a gzip header and trailer. A text may be larger than zlib's 32-bit
// counter, so it is passed in parts.
int64_t gzip_bytes(std::string_view text) {
  constexpr int kLevel = 9, kGzipWindow = 15 + 16, kMemory = 8;
  constexpr size_t kMostAtOnce = size_t{1} << 30;
  z_stream stream{};
  if (zlib().begin_deflate(&stream, kLevel, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY,
                           ZLIB_VERSION, sizeof stream) != Z_OK) {
    raise(DS_ERROR_OUT_OF_MEMORY, "zlib does not have enough memory to compress {} bytes",
          text.size());
  }
  std::vector<Bytef> out(1 << 16);
  int64_t bytes = 0;
  int code = Z_OK;
  do {
    size_t part = std::min(text.size(), kMostAtOnce);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(part);
    text.remove_prefix(part);
    int flush = text.empty() ? Z_FINISH : Z_NO_FLUSH;
    do {
      stream.next_out = out.data();
      stream.avail_out = static_cast<uInt>(out.size());
      code = zlib().deflate(&stream, flush);
      bytes += static_cast<int64_t>(out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (code != Z_STREAM_END);
  zlib().end_deflate(&stream);
  return bytes;
}

}  // namespace ds
