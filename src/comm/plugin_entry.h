#pragma once
#include <ds_plugin.h>

#include <cstdint>

// The functions that a transport plugin defines, as ds_plugin.h describes them. plugin_entry.cpp,
// which every plugin compiles, exports them in a table.
namespace ds::transport {

// The NAME of libds_NAME.so.
extern const char* const kName;

int32_t open_link(const char* address, int32_t rank, int32_t size, int64_t join_ms,
                  ds_plugin_link** out);
int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives);
int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs);
void beat(ds_plugin_link* link, uint64_t sign);
void abort_group(ds_plugin_link* link, const char* reason);
int32_t aborted_by(ds_plugin_link* link);
int32_t has_left(ds_plugin_link* link, int32_t rank);
uint64_t moved(ds_plugin_link* link, int32_t rank);
const char* stall(ds_plugin_link* link, int32_t rank);
const char* message(ds_plugin_link* link);
void close_link(ds_plugin_link* link);

}  // namespace ds::transport
