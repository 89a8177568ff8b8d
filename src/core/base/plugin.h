#pragma once
#include <string_view>

#include "ds_plugin.h"

namespace ds {

// These functions load the transport or device of libds_NAME.so, or the text functions of
// libds_text.so. They search the folders of DS_PLUGIN_PATH (separated by ':'), this library's own
// folder and the lib/ folder beside it. A plugin is loaded once and stays loaded. These functions
// return nullptr if the plugin's file does not exist, and throw DS_ERROR_UNSUPPORTED, naming the
// file, if it cannot be loaded or belongs to another build.
const ds_plugin_transport_table* load_transport(std::string_view name);
const ds_plugin_device_table* load_device(std::string_view name);
const ds_plugin_text_table* load_text();

}  // namespace ds
