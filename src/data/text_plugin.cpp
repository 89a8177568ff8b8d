// The plugin returns errors as status, message and key; here they become an Error again.
#include "data/text_plugin.h"

#include <new>

#include "core/base/error.h"
#include "core/base/plugin.h"
#include "ds.h"

namespace ds {

// The first call loads the plugin; if that throws, the next call tries again.
const ds_plugin_text_table& text_plugin() {
  static const ds_plugin_text_table& table = []() -> const ds_plugin_text_table& {
    const ds_plugin_text_table* found = load_text();
    if (!found) {
      raise(
          DS_ERROR_UNSUPPORTED,
          "tokenizers and chat templates need libds_text.so, which is neither beside libds nor in "
          "a folder of DS_PLUGIN_PATH: install the package libds-text");
    }
    return *found;
  }();
  return table;
}

std::string text_plugin_state() {
  try {
    return load_text() ? "here" : "no plugin";
  } catch (const Error& error) {
    return error.what();
  }
}

void check_text(int32_t status) {
  if (status == DS_OK) return;
  const std::string message = text_plugin().message();
  // An empty message means that there was no memory even for the message.
  if (status == DS_ERROR_OUT_OF_MEMORY && message.empty()) throw std::bad_alloc();
  throw Error(static_cast<ds_status>(status), message, {.key = text_plugin().key()});
}

}  // namespace ds
