#include "comm/plugin_entry.h"

// The one symbol that a plugin exports. DS_PLUGIN_BUILD is the build of libds for which the plugin
// was compiled; any other build refuses it.
extern "C" __attribute__((visibility("default"))) const ds_plugin_transport_table*
ds_plugin_transport(void) {
  namespace transport = ds::transport;
  static const ds_plugin_transport_table table = {sizeof(ds_plugin_transport_table),
                                                  transport::kName,
                                                  DS_PLUGIN_BUILD,
                                                  transport::open_link,
                                                  transport::start,
                                                  transport::poll,
                                                  transport::beat,
                                                  transport::abort_group,
                                                  transport::aborted_by,
                                                  transport::has_left,
                                                  transport::moved,
                                                  transport::stall,
                                                  transport::message,
                                                  transport::close_link};
  return &table;
}
