#pragma once
#include "ds_plugin.h"

// What libds looks up in libds_cuda.so.
extern "C" __attribute__((visibility("default"))) const ds_plugin_device_table* ds_plugin_devices(
    void);
