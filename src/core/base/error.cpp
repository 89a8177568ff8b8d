#include "core/base/error.h"

namespace ds {

const char* status_name(ds_status status) {
  switch (status) {
    case DS_OK:
      return "ok";
    case DS_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case DS_ERROR_CONFIG:
      return "config";
    case DS_ERROR_NOT_FOUND:
      return "not found";
    case DS_ERROR_STATE:
      return "state";
    case DS_ERROR_UNSUPPORTED:
      return "unsupported";
    case DS_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    case DS_ERROR_IO:
      return "io";
    case DS_ERROR_CORRUPT:
      return "corrupt";
    case DS_ERROR_COMM:
      return "comm";
    case DS_ERROR_NUMERIC:
      return "numeric";
    case DS_ERROR_POISONED:
      return "poisoned";
    case DS_ERROR_USER:
      return "user";
    case DS_ERROR_INTERNAL:
      return "internal";
    default:
      return "unknown";
  }
}

}  // namespace ds
