/* Tests that an engine forgets a step whose backward pass has failed in the host. */
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { PARAMS = 2, SIZE = 40, MICROS = 2 };

static void give(ds_engine* engine, int param, float value) {
  const int64_t dims[1] = {SIZE};
  float values[SIZE];
  ds_tensor* grad = NULL;
  for (int e = 0; e < SIZE; ++e) values[e] = value + (float)e;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, values, NULL, &grad), "grad");
  check_ok(ds_grad_ready(engine, param, grad, NULL), "grad_ready");
  ds_tensor_destroy(grad);
}

static void micro_step(ds_engine* engine, float value) {
  for (int p = PARAMS; p-- > 0;) give(engine, p, value);
  check_ok(ds_backward(engine), "backward");
}

typedef struct run {
  int stage, drops;
  float values[PARAMS * SIZE];
} run;

static void train(int rank, ds_comm* comm, void* data) {
  run* r = data;
  const int64_t dims[1] = {SIZE};
  const int32_t first = 0;
  char config[512];
  ds_engine* engine = NULL;
  int32_t param = -1;
  mlp_config(config, sizeof config, r->stage, MICROS, ds_comm_size(comm));
  check_ok(ds_engine_create(comm, config, NULL, NULL, &engine), "engine");
  check_error(ds_engine_drop_step(engine), DS_ERROR_STATE, "ds_engine_start must come first");
  check_ok(ds_engine_param_add(engine, "a", DS_DTYPE_NONE, dims, 1, &param), "a");
  check_ok(ds_engine_param_add(engine, "b", DS_DTYPE_NONE, dims, 1, &param), "b");
  check_ok(ds_engine_start(engine), "start");
  for (int step = 0; step < 6; ++step) {
    if (r->drops) {
      check_ok(ds_engine_drop_step(engine), "between steps");
      /* After any number of gradients and micro-steps, and after all of them. */
      for (int calls = 0; calls < step; ++calls) {
        if (calls == 2) micro_step(engine, 100);
        if (calls == 4) micro_step(engine, 300);
      }
      if (step < 5) give(engine, 1, 200);
      check_ok(ds_gather_params(engine, &first, 1, NULL), "lease");
      check_error(ds_engine_drop_step(engine), DS_ERROR_STATE, "'a' is leased");
      check_ok(ds_release_params(engine, &first, 1, NULL), "release");
      check_ok(ds_engine_drop_step(engine), "drop");
      check_error(ds_step(engine), DS_ERROR_STATE, "0 are done");
    }
    for (int micro = 0; micro < MICROS; ++micro) micro_step(engine, (float)(step + micro + rank));
    check_ok(ds_step(engine), "step");
  }
  for (int p = 0; p < PARAMS; ++p)
    check_ok(ds_engine_read(engine, p, "master", r->values + p * SIZE, SIZE), "read");
  ds_engine_destroy(engine);
}

static void train_rank(int rank, ds_comm* comm, void* data) {
  run own = *(run*)data;
  train(rank, comm, &own);
  if (rank == 0) memcpy(data, &own, sizeof own);
}

/* Proves {delegate.drop} and {delegate.drop.idle}. */
int main(void) {
  for (int world = 1; world <= 3; world += 2) {
    for (int stage = 0; stage <= 3; ++stage) {
      char name[64];
      run plain = {.stage = stage}, dropped = {.stage = stage, .drops = 1};
      snprintf(name, sizeof name, "plain-%d-%d", world, stage);
      run_ranks(name, world, train_rank, &plain);
      snprintf(name, sizeof name, "dropped-%d-%d", world, stage);
      run_ranks(name, world, train_rank, &dropped);
      check(memcmp(plain.values, dropped.values, sizeof plain.values) == 0, name);
    }
  }
  return 0;
}
