/* Includes the header without any other, and twice, in every supported language. */
#include "ds.h"
/* The second time. */
#include "ds.h"

ds_status use(ds_log_level level);
ds_status use(ds_log_level level) { return level == DS_LOG_LEVEL_ERROR ? DS_ERROR_USER : DS_OK; }
