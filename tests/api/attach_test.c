#define _POSIX_C_SOURCE 200809L
/* Tests attachments of checkpoints: what is kept, who reads it, and what is refused. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static char base[512];

/* Creates a delegate engine with a parameter "w" of 4 elements. */
static ds_engine* engine_of(ds_comm* comm) {
  const int64_t dims[1] = {4};
  char config[512];
  ds_engine* engine = NULL;
  int32_t param = -1;
  mlp_config(config, sizeof config, 0, 1, comm ? ds_comm_size(comm) : 1);
  check_ok(ds_engine_create(comm, config, NULL, NULL, &engine), "engine");
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 1, &param), "w");
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

static void attach(ds_engine* engine, const char* name, ds_dtype dtype, const int64_t* dims,
                   size_t dims_count, const int64_t* strides, const void* data) {
  ds_tensor* value = NULL;
  check_ok(ds_tensor_create(dtype, dims, dims_count, strides, (void*)data, NULL, &value), name);
  check_ok(ds_checkpoint_attach(engine, name, value), name);
  ds_tensor_destroy(value);
}

/* Checks that the attachment has this type, number of dimensions and content. */
static void expect(const ds_engine* engine, const char* name, int32_t rank, ds_dtype dtype,
                   size_t dims_count, const void* content, size_t bytes) {
  ds_tensor* value = NULL;
  ds_dtype found = DS_DTYPE_NONE;
  int64_t dims[8];
  size_t count = 99;
  void* data = NULL;
  check_ok(ds_checkpoint_attachment(engine, name, rank, &value), name);
  check_ok(ds_tensor_info(value, &found, dims, NULL, 8, &count, NULL, &data), name);
  check(found == dtype && count == dims_count, name);
  check(bytes == 0 || memcmp(data, content, bytes) == 0, name);
  ds_tensor_destroy(value);
}

/* Proves {checkpoint.attach.kept}, {checkpoint.attach.copied}, {checkpoint.attach.again},
 * {checkpoint.attachment.none} and {checkpoint.attachment.early}. */
static void one_rank(const char* folder) {
  const int64_t pair[1] = {2}, matrix[2] = {2, 3}, down[2] = {1, 2}, none[2] = {0, 5};
  ds_engine *engine = engine_of(NULL), *other = engine_of(NULL);
  ds_tensor* value = NULL;
  double two[2] = {1.5, -2};
  const double kept[2] = {1.5, -2};
  /* By columns in memory, so that the rows are 0 1 2 and 10 11 12. */
  const int32_t columns[6] = {0, 10, 1, 11, 2, 12}, rows[6] = {0, 1, 2, 10, 11, 12};
  const uint8_t blob[2] = {7, 255};
  char file[700];
  check_error(ds_checkpoint_attachment(engine, "pair", 0, &value), DS_ERROR_STATE, "'pair'");
  attach(engine, "blob", DS_DTYPE_U8, pair, 1, NULL, "xx");
  attach(engine, "blob", DS_DTYPE_U8, pair, 1, NULL, blob);
  attach(engine, "pair", DS_DTYPE_F64, pair, 1, NULL, two);
  two[0] = 99;
  attach(engine, "matrix", DS_DTYPE_I32, matrix, 2, down, columns);
  attach(engine, "scalar", DS_DTYPE_I32, NULL, 0, NULL, columns + 3);
  attach(engine, "nothing", DS_DTYPE_F32, none, 2, NULL, kept);
  /* A file where the folder of checkpoints would be. */
  snprintf(file, sizeof file, "%s-file", folder);
  fclose(fopen(file, "w"));
  check(ds_checkpoint_save(engine, file, NULL) != DS_OK, "a save that fails");
  check_ok(ds_checkpoint_save(engine, folder, NULL), "save");
  check_error(ds_checkpoint_attachment(engine, "pair", 0, &value), DS_ERROR_STATE, "'pair'");
  check_ok(ds_checkpoint_load(other, folder, NULL, NULL), "load");
  expect(other, "blob", 0, DS_DTYPE_U8, 1, blob, sizeof blob);
  expect(other, "pair", 0, DS_DTYPE_F64, 1, kept, sizeof kept);
  expect(other, "matrix", 0, DS_DTYPE_I32, 2, rows, sizeof rows);
  expect(other, "scalar", 0, DS_DTYPE_I32, 0, columns + 3, 4);
  expect(other, "nothing", 0, DS_DTYPE_F32, 2, NULL, 0);
  check_error(ds_checkpoint_attachment(other, "more", 0, &value), DS_ERROR_NOT_FOUND, "'more'");
  check(value == NULL, "no tensor");
  check_error(ds_checkpoint_attachment(other, "pair", 1, &value), DS_ERROR_NOT_FOUND,
              "rank must be below 1");
  check_error(ds_checkpoint_attachment(other, "pair", -1, &value), DS_ERROR_INVALID_ARGUMENT, "-1");
  /* Attachments belong to one save. */
  check_ok(ds_checkpoint_save(engine, folder, NULL), "save again");
  check_ok(ds_checkpoint_load(other, folder, NULL, NULL), "load again");
  check_error(ds_checkpoint_attachment(other, "pair", 0, &value), DS_ERROR_NOT_FOUND,
              "has no attachments");
  /* A started save has them, too. */
  attach(engine, "pair", DS_DTYPE_F64, pair, 1, NULL, kept);
  check_ok(ds_checkpoint_save(engine, folder, "{\"async\": true}"), "start a save");
  check_ok(ds_checkpoint_wait(engine), "wait");
  check_ok(ds_checkpoint_load(other, folder, NULL, NULL), "load the started one");
  expect(other, "pair", 0, DS_DTYPE_F64, 1, kept, sizeof kept);
  /* Another checkpoint of the same name is not taken for the one that was loaded. */
  snprintf(file, sizeof file, "%s-again", folder);
  check_ok(ds_checkpoint_save(engine, file, NULL), "save elsewhere");
  check_ok(ds_checkpoint_load(other, file, NULL, NULL), "load from there");
  snprintf(file, sizeof file, "rm -rf '%s-again'", folder);
  check(system(file) == 0, "remove it");
  check_error(ds_checkpoint_attachment(other, "pair", 0, &value), DS_ERROR_IO, "does not exist");
  snprintf(file, sizeof file, "%s-again", folder);
  attach(engine, "pair", DS_DTYPE_F64, pair, 1, NULL, kept);
  check_ok(ds_checkpoint_save(engine, file, NULL), "save there again");
  check_error(ds_checkpoint_attachment(other, "pair", 0, &value), DS_ERROR_IO, "is another one");
  ds_engine_destroy(engine);
  ds_engine_destroy(other);
}

/* A started save that fails leaves its attachments to the next one, but for newer values. */
static void started(const char* folder) {
  const int64_t one[1] = {1}, big[1] = {4000000};
  const float old = 1, new = 2;
  char config[512], path[700], moved[700];
  int32_t param = -1;
  ds_engine *engine = NULL, *other = NULL;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "engine");
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, big, 1, &param), "w");
  check_ok(ds_engine_start(engine), "start");
  attach(engine, "a", DS_DTYPE_F32, one, 1, NULL, &old);
  attach(engine, "b", DS_DTYPE_F32, one, 1, NULL, &old);
  check_ok(ds_checkpoint_save(engine, folder, "{\"async\": true}"), "start a save");
  snprintf(path, sizeof path, "%s/step-00000000-1", folder);
  snprintf(moved, sizeof moved, "%s-moved", folder);
  check(rename(path, moved) == 0, "take its folder away");
  attach(engine, "b", DS_DTYPE_F32, one, 1, NULL, &new);
  if (ds_checkpoint_wait(engine) != DS_OK) { /* the thread may have been faster */
    check_ok(ds_checkpoint_save(engine, folder, NULL), "save");
    check_ok(ds_engine_create(NULL, config, NULL, NULL, &other), "engine");
    check_ok(ds_engine_param_add(other, "w", DS_DTYPE_NONE, big, 1, &param), "w");
    check_ok(ds_engine_start(other), "start");
    check_ok(ds_checkpoint_load(other, folder, NULL, NULL), "load");
    expect(other, "a", 0, DS_DTYPE_F32, 1, &old, sizeof old);
    expect(other, "b", 0, DS_DTYPE_F32, 1, &new, sizeof new);
    ds_engine_destroy(other);
  }
  ds_engine_destroy(engine);
}

static void refused(void) {
  const int64_t dims[1] = {1};
  char name[520];
  int i;
  ds_engine* engine = engine_of(NULL);
  ds_tensor* value = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, NULL, NULL, &value), "value");
  check_error(ds_checkpoint_attach(engine, "", value), DS_ERROR_INVALID_ARGUMENT,
              "name must not be empty");
  check_error(ds_checkpoint_attach(engine, NULL, value), DS_ERROR_INVALID_ARGUMENT, "name");
  check_error(ds_checkpoint_attach(engine, "__metadata__", value), DS_ERROR_INVALID_ARGUMENT,
              "__metadata__");
  check_error(ds_checkpoint_attach(engine, "a\xff", value), DS_ERROR_INVALID_ARGUMENT,
              "name must be UTF-8");
  memset(name, 'n', sizeof name);
  name[513] = 0;
  check_error(ds_checkpoint_attach(engine, name, value), DS_ERROR_INVALID_ARGUMENT,
              "at most 512 bytes, got 513");
  for (i = 0; i < 4096; ++i) {
    snprintf(name, sizeof name, "%d", i);
    check_ok(ds_checkpoint_attach(engine, name, value), name);
  }
  check_ok(ds_checkpoint_attach(engine, "7", value), "a later value");
  check_error(ds_checkpoint_attach(engine, "more", value), DS_ERROR_INVALID_ARGUMENT,
              "at most 4096 tensors");
  check_error(ds_checkpoint_attach(engine, "a", NULL), DS_ERROR_INVALID_ARGUMENT, "value");
  check_error(ds_checkpoint_attach(NULL, "a", value), DS_ERROR_INVALID_ARGUMENT, "engine");
  ds_tensor_destroy(value);
  ds_engine_destroy(engine);
}

typedef struct place {
  const char* folder;
  int32_t rank, size;
} place;

static ds_comm* join(const place* here) {
  ds_comm_options options;
  ds_comm* comm = NULL;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = here->rank;
  options.size = here->size;
  check_ok(ds_comm_create("threads://attach", &options, &comm), "join");
  return comm;
}

/* Each rank but rank 1 attaches its number. */
static void* save_rank(void* user_data) {
  const place* here = user_data;
  ds_comm* comm = join(here);
  ds_engine* engine = engine_of(comm);
  if (here->rank != 1) attach(engine, "number", DS_DTYPE_I32, NULL, 0, NULL, &here->rank);
  check_ok(ds_checkpoint_save(engine, here->folder, NULL), "save");
  ds_engine_destroy(engine);
  ds_comm_destroy(comm);
  return NULL;
}

static void* load_rank(void* user_data) {
  const place* here = user_data;
  const int32_t numbers[3] = {0, 1, 2};
  ds_comm* comm = join(here);
  ds_engine* engine = engine_of(comm);
  ds_tensor* value = NULL;
  check_ok(ds_checkpoint_load(engine, here->folder, NULL, NULL), "load");
  expect(engine, "number", 0, DS_DTYPE_I32, 0, &numbers[0], 4);
  expect(engine, "number", 2, DS_DTYPE_I32, 0, &numbers[2], 4);
  check_error(ds_checkpoint_attachment(engine, "number", 1, &value), DS_ERROR_NOT_FOUND,
              "rank 1 has attached no 'number'");
  ds_engine_destroy(engine);
  ds_comm_destroy(comm);
  return NULL;
}

static void run(void* (*body)(void*), const char* folder, int32_t size) {
  pthread_t threads[3];
  place places[3];
  int32_t r;
  for (r = 0; r < size; ++r) {
    places[r].folder = folder;
    places[r].rank = r;
    places[r].size = size;
    check(pthread_create(&threads[r], NULL, body, &places[r]) == 0, "thread");
  }
  for (r = 0; r < size; ++r) check(pthread_join(threads[r], NULL) == 0, "join");
}

/* Proves {checkpoint.attach.own} and {checkpoint.attachment.any}: three ranks save, two load. */
static void several_ranks(const char* folder) {
  run(save_rank, folder, 3);
  run(load_rank, folder, 2);
  run(load_rank, folder, 3);
}

int main(int argc, char** argv) {
  char folder[600], command[600];
  snprintf(base, sizeof base, "%s/attach_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(base) != NULL, "a folder");
  snprintf(folder, sizeof folder, "%s/one", base);
  one_rank(folder);
  snprintf(folder, sizeof folder, "%s/started", base);
  started(folder);
  refused();
  snprintf(folder, sizeof folder, "%s/ranks", base);
  several_ranks(folder);
  snprintf(command, sizeof command, "rm -rf '%s'", base);
  check(system(command) == 0, "clean up");
  return 0;
}
