#pragma once
#include <zlib.h>

namespace ds {

// The functions of zlib that libds calls. The library is opened when a function is first needed,
// and stays open. A process that reads and writes no zip or gzip data never loads it.
struct Zlib {
  decltype(&::crc32_z) checksum;
  decltype(&::inflateInit2_) begin_inflate;
  decltype(&::inflate) inflate;
  decltype(&::inflateEnd) end_inflate;
  decltype(&::deflateInit2_) begin_deflate;
  decltype(&::deflate) deflate;
  decltype(&::deflateEnd) end_deflate;
};

// Returns the opened functions. Throws DS_ERROR_UNSUPPORTED with the loader's reason if the library
// cannot be opened.
const Zlib& zlib();

}  // namespace ds
