/* ds.h: the public C interface of libds. This header is the specification.
 *
 * Dialect: C99, only <stddef.h> and <stdint.h>; opaque handles; no by-value structs, macros or inline functions.
 */
#ifndef DS_H
#define DS_H

#include <stddef.h>
#include <stdint.h>

#ifndef DS_API
#if defined(DS_BUILDING) && defined(__GNUC__)
#define DS_API __attribute__((visibility("default")))
#else
#define DS_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a call: each negative code asks something else of the caller. */
typedef enum ds_status {
  DS_OK = 0,
  DS_ERROR_INVALID_ARGUMENT = -1, /* the call is wrong: change the argument named in the message */
  DS_ERROR_CONFIG = -2,           /* the configuration is wrong: change the key named in the message */
  DS_ERROR_NOT_FOUND = -3,        /* a name, file or folder does not exist */
  DS_ERROR_STATE = -4,            /* right call, wrong moment: see the call order of the function */
  DS_ERROR_UNSUPPORTED = -5,      /* known, but not in this build, machine or version */
  DS_ERROR_OUT_OF_MEMORY = -6,    /* the plan exceeds a budget or the system refuses memory */
  DS_ERROR_IO = -7,               /* the file system refused: the message has path and errno text */
  DS_ERROR_CORRUPT = -8,          /* a file's content contradicts itself or its hash */
  DS_ERROR_COMM = -9,             /* a peer died, diverged or timed out: restart the group */
  DS_ERROR_NUMERIC = -10,         /* NaN or infinity; the update was skipped, the engine is usable */
  DS_ERROR_POISONED = -11,        /* an earlier failure left this handle unusable: destroy it */
  DS_ERROR_USER = -12,            /* a callback asked to stop */
  DS_ERROR_INTERNAL = -13,        /* a defect of libds: report the message */
  DS_STATUS_FORCE_INT32 = 0x7FFFFFFF
} ds_status;

/* Element types of tensors. 16-bit floats cross this interface as uint16_t bit patterns. */
typedef enum ds_dtype {
  DS_DTYPE_NONE = 0,
  DS_DTYPE_F32 = 1,
  DS_DTYPE_BF16 = 2,
  DS_DTYPE_F16 = 3,
  DS_DTYPE_F64 = 4,
  DS_DTYPE_I32 = 5,
  DS_DTYPE_I64 = 6,
  DS_DTYPE_U8 = 7,
  DS_DTYPE_FORCE_INT32 = 0x7FFFFFFF
} ds_dtype;

#ifdef __cplusplus
}
#endif

#endif /* DS_H */
