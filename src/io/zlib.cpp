#include "io/zlib.h"

#include <dlfcn.h>

#include <type_traits>

#include "core/base/error.h"

namespace ds {
namespace {

// Opened at run time, so that libds also loads on machines without zlib.
constexpr const char* kLibrary = "libz.so.1";

Zlib open_zlib() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) raise(DS_ERROR_UNSUPPORTED, "zlib cannot be opened: {}; install zlib1g", dlerror());
  Zlib out{};
  // Sets `function` to the address of the named function. The type is that of zlib's header.
  auto find = [library](auto& function, const char* name) {
    void* address = dlsym(library, name);
    if (!address) raise(DS_ERROR_UNSUPPORTED, "'{}' has no {}", kLibrary, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(out.checksum, "crc32_z");
  find(out.begin_inflate, "inflateInit2_");
  find(out.inflate, "inflate");
  find(out.end_inflate, "inflateEnd");
  find(out.begin_deflate, "deflateInit2_");
  find(out.deflate, "deflate");
  find(out.end_deflate, "deflateEnd");
  return out;
}

}  // namespace

const Zlib& zlib() {
  // The first call opens the library. If that fails, the next call tries again.
  static const Zlib opened = open_zlib();
  return opened;
}

}  // namespace ds
