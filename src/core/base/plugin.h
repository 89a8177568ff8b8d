#pragma once
#include <string_view>

#include "ds_plugin.h"

namespace ds {

// The transport or the device of libds_NAME.so, from a folder of DS_PLUGIN_PATH (separated by ':'),
// from beside this library or from its lib/ neighbour; loaded once and kept. nullptr when there is
// none. DS_ERROR_UNSUPPORTED when it cannot be loaded or was made with another build, naming the
// file.
const ds_plugin_transport_table* load_transport(std::string_view name);
const ds_plugin_device_table* load_device(std::string_view name);

}  // namespace ds
