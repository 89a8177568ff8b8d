/* The header alone, and twice, in every language it is meant for. */
#include "ds.h"
/* again */
#include "ds.h"

ds_status use(ds_log_level level);
ds_status use(ds_log_level level) { return level == DS_LOG_LEVEL_ERROR ? DS_ERROR_USER : DS_OK; }
