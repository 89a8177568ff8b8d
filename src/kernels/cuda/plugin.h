#pragma once
#include "ds_plugin.h"

// Returns the plugin's table of functions. libds looks this function up in libds_cuda.so.
extern "C" __attribute__((visibility("default"))) const ds_plugin_device_table* ds_plugin_devices(
    void);
