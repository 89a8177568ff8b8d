#include "core/base/plugin.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// Returns the folders to search, in order: the folders of DS_PLUGIN_PATH, the folder of this
// library, and the lib/ folder beside that folder.
std::vector<fs::path> folders() {
  std::vector<fs::path> out;
  if (const char* given = std::getenv("DS_PLUGIN_PATH")) {
    std::string_view list(given);
    for (size_t at = 0; at <= list.size();) {
      size_t end = std::min(list.find(':', at), list.size());
      if (end > at) out.emplace_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  // This library's file is the one that contains load_transport().
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&load_transport), &here) != 0 && here.dli_fname) {
    std::error_code code;
    fs::path own = fs::canonical(here.dli_fname, code);
    if (!code) {
      out.push_back(own.parent_path());
      out.push_back(own.parent_path().parent_path() / "lib");
    }
  }
  return out;
}

// Loads the first libds_NAME.so that is found and returns its table. Tables of all kinds begin with
// struct_size and build. Both must match, because a plugin works only with the library build for
// which it was compiled.
template <typename Table>
const Table* load(std::string_view name, const char* symbol) {
  for (const fs::path& folder : folders()) {
    std::string file = (folder / fmt::format("libds_{}.so", name)).string();
    std::error_code code;
    if (!fs::exists(file, code)) continue;
    // RTLD_NODELETE: a plugin stays loaded until the process ends.
    void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object) raise(DS_ERROR_UNSUPPORTED, "plugin '{}' cannot be loaded: {}", file, dlerror());
    auto entry = reinterpret_cast<const Table* (*)()>(dlsym(object, symbol));
    if (!entry) raise(DS_ERROR_UNSUPPORTED, "plugin '{}' has no symbol {}", file, symbol);
    const Table* table = entry();
    bool same =
        table->struct_size == sizeof *table && std::strcmp(table->build, DS_PLUGIN_BUILD) == 0;
    if (!same) {
      raise(DS_ERROR_UNSUPPORTED,
            "plugin '{}' belongs to build '{}' of libds, but this library is build '{}'; use the "
            "plugin of this build",
            file, table->build, DS_PLUGIN_BUILD);
    }
    return table;
  }
  return nullptr;
}

}  // namespace

const ds_plugin_transport_table* load_transport(std::string_view name) {
  return load<ds_plugin_transport_table>(name, "ds_plugin_transport");
}

const ds_plugin_device_table* load_device(std::string_view name) {
  return load<ds_plugin_device_table>(name, "ds_plugin_devices");
}

const ds_plugin_text_table* load_text() {
  return load<ds_plugin_text_table>("text", "ds_plugin_text");
}

}  // namespace ds
