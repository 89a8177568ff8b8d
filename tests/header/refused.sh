#!/bin/sh
# Checks that the parser of ds.h refuses each of these additions to the header.
# usage: refused.sh PYTHON SOURCE_DIR
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
count=0
while IFS='|' read -r addition reason; do
  awk -v addition="$addition" '/^#ifdef __cplusplus/ && ++block == 2 { print addition } { print }' "$2/include/ds.h" > "$scratch/ds.h"
  if output=$("$1" "$2/tools/api_dump.py" "$scratch/ds.h" symbols); then
    echo "accepted: $addition"
    exit 1
  fi
  case $output in
    *"$reason"*) count=$((count + 1)) ;;
    *) echo "$addition: expected \"$reason\", said: $output"; exit 1 ;;
  esac
done <<'CASES'
#define DS_SQUARE(x) ((x) * (x))|preprocessor
#include <stdbool.h>|preprocessor
typedef union ds_value { double real; } ds_value;|type union is outside the dialect
DS_API int ds_plain(void);|type int is outside the dialect
DS_API ds_status ds_log(const char *format, ...);|expected a name
DS_API ds_comm ds_by_value(void);|ds_comm by value
DS_API ds_status ds_call(ds_log_fn fn);|ds_log_fn by value
typedef struct ds_point { size_t struct_size; int32_t x : 3; } ds_point;|bit-field
typedef struct ds_point { int32_t x; } ds_point;|does not begin with size_t struct_size
typedef struct ds_point { size_t struct_size; char *x; } ds_point;|pointer to char in a struct
typedef enum ds_color { DS_COLOR_RED = 0 } ds_color;|does not end with DS_COLOR_FORCE_INT32
typedef enum ds_color { DS_COLOR_RED, DS_COLOR_FORCE_INT32 = 0x7FFFFFFF } ds_color;|expected =
typedef ds_comm *ds_comm_handle;|expected (
static inline int32_t ds_one(void) { return 1; }|outside the dialect
DS_API void other(void);|does not begin with ds_
typedef void ds_done_fn(int32_t code);|does not end with void *user_data
CASES
echo "refused $count additions"
