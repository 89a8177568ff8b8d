/* Tests each call of delegate mode by itself: calls before ds_engine_start, leases and their views,
 * gradients, and the equal order of calls on all ranks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { RANKS = 2, PARAMS = 3, NUMEL = 40 };

static char folder[512];

/* These wrappers call functions for one parameter without a stream. */
static ds_status gather(ds_engine* engine, int32_t param) {
  return ds_gather_params(engine, &param, 1, NULL);
}
static ds_status release(ds_engine* engine, int32_t param) {
  return ds_release_params(engine, &param, 1, NULL);
}
static ds_status view(ds_engine* engine, int32_t param, ds_tensor** out) {
  return ds_engine_param_view(engine, param, NULL, out);
}
static ds_status grad_view(ds_engine* engine, int32_t param, ds_tensor** out) {
  return ds_engine_grad_view(engine, param, NULL, out);
}
static ds_status give(ds_engine* engine, int32_t param, const ds_tensor* grad) {
  return ds_grad_ready(engine, param, grad, NULL);
}
static float* memory_of(const ds_tensor* tensor) {
  void* data = NULL;
  check_ok(ds_tensor_info(tensor, NULL, NULL, NULL, 0, NULL, NULL, &data), "memory");
  return data;
}
static ds_tensor* tensor_of(float* values) {
  const int64_t dims[1] = {NUMEL};
  ds_tensor* out = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, values, NULL, &out), "tensor");
  return out;
}

static const char* const sgd =
    "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 0, \"optimizer\": {\"type\": "
    "\"SGD\", \"params\": {\"lr\": 0.5}}, \"zero_optimization\": {\"stage\": 3, "
    "\"stage3_param_persistence_threshold\": 0}}";

/* Returns an engine with parameters h.0, h.1 and h.2 that has not been started. */
static ds_engine* registered(ds_comm* comm, const char* config, int64_t numel) {
  ds_engine* engine = NULL;
  int32_t param = -1, p;
  check_ok(ds_engine_create(comm, config, NULL, NULL, &engine), "create");
  for (p = 0; p < PARAMS; ++p) {
    char name[8];
    snprintf(name, sizeof name, "h.%d", (int)p);
    check_ok(ds_engine_param_add(engine, name, DS_DTYPE_NONE, &numel, 1, &param), "parameter");
    check(param == p, "the order of calls is its number");
  }
  return engine;
}

static ds_engine* started(ds_comm* comm) {
  ds_engine* engine = registered(comm, sgd, NUMEL);
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

static void early(ds_status status, const char* call) {
  if (status == DS_ERROR_STATE) return;
  fprintf(stderr, "%s before ds_engine_start: %s: %s\n", call, ds_status_name(status),
          ds_last_error_message());
  check(0, call);
}

/* Proves {delegate.start.first} and {delegate.add.state}. */
static void before_the_start(void) {
  float values[NUMEL] = {0};
  ds_engine* engine = registered(NULL, sgd, NUMEL);
  ds_tensor *grad = tensor_of(values), *out = NULL;
  int64_t first = 0, count = 0, dims[1] = {NUMEL};
  int32_t param = 0, group = -1;
  early(gather(engine, 0), "ds_gather_params");
  early(release(engine, 0), "ds_release_params");
  early(view(engine, 0, &out), "ds_engine_param_view");
  early(grad_view(engine, 0, &out), "ds_engine_grad_view");
  early(give(engine, 0, grad), "ds_grad_ready");
  early(ds_engine_evaluate(engine, 1), "ds_engine_evaluate");
  early(ds_backward(engine), "ds_backward");
  early(ds_step(engine), "ds_step");
  early(ds_engine_read(engine, 0, "master", values, NUMEL), "ds_engine_read");
  early(ds_engine_write(engine, 0, "master", values, NUMEL), "ds_engine_write");
  early(ds_engine_local_range(engine, 0, &first, &count), "ds_engine_local_range");
  early(ds_engine_read_local(engine, 0, "master", values, NUMEL), "ds_engine_read_local");
  early(ds_engine_write_local(engine, 0, "master", values, NUMEL), "ds_engine_write_local");
  early(ds_engine_refresh(engine), "ds_engine_refresh");
  early(ds_engine_freeze(engine, &param, 1, 1), "ds_engine_freeze");
  early(ds_engine_group_add(engine, &param, 1, NULL, &group), "ds_engine_group_add");
  early(ds_checkpoint_save(engine, folder, NULL), "ds_checkpoint_save");
  early(ds_checkpoint_load(engine, folder, NULL, NULL), "ds_checkpoint_load");
  early(ds_checkpoint_load_model(engine, folder), "ds_checkpoint_load_model");
  early(ds_checkpoint_save_model(engine, folder, NULL), "ds_checkpoint_save_model");
  check_ok(ds_engine_start(engine), "none of these did harm");
  check_error(ds_engine_param_add(engine, "late", DS_DTYPE_NONE, dims, 1, &param), DS_ERROR_STATE,
              "");
  check_error(ds_engine_start(engine), DS_ERROR_STATE, "once");
  check(ds_engine_param_count(engine) == PARAMS, "three parameters");
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

/* Proves {delegate.start.budget}. */
static void budget(void) {
  char config[1024];
  ds_engine* engine;
  strcpy(config, sgd);
  strcpy(strrchr(config, '}'), ", \"memory_budget\": {\"device\": 1000}}");
  engine = registered(NULL, config, 10000);
  check_error(ds_engine_start(engine), DS_ERROR_OUT_OF_MEMORY, "memory_budget");
  check(strchr(ds_last_error_message(), '\n') && strstr(ds_last_error_message(), "gradients"),
        "a table");
  ds_engine_destroy(engine);
}

/* Proves {delegate.start.same}. */
static void others(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = registered(comm, sgd, rank == 0 ? NUMEL : NUMEL + 1);
  (void)data;
  check_error(ds_engine_start(engine), DS_ERROR_CONFIG, "models differ");
  ds_engine_destroy(engine);
}

/* Proves {delegate.view.stays} and {delegate.view.later}: h.0 has two leases while other parameters
 * are leased and released; the view is read after its lease has ended and its engine has been
 * destroyed. */
static void views(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  ds_tensor *first = NULL, *again = NULL, *late = NULL;
  const float* place;
  volatile float read = 0;
  int32_t p;
  int i;
  (void)rank, (void)data;
  check_ok(gather(engine, 0), "gather");
  check_ok(view(engine, 0, &first), "view");
  place = memory_of(first);
  check_ok(gather(engine, 0), "gather again");
  for (p = 1; p < PARAMS; ++p) check_ok(gather(engine, p), "gather");
  for (p = PARAMS - 1; p > 0; --p) check_ok(release(engine, p), "release");
  check_ok(release(engine, 0), "release one of two");
  check_ok(view(engine, 0, &again), "view again");
  check(memory_of(again) == place && place[NUMEL - 1] == 0, "where they were");
  check_ok(release(engine, 0), "release the last");
  check_error(view(engine, 0, &late), DS_ERROR_STATE, "gathered");
  check_error(release(engine, 0), DS_ERROR_STATE, "is released 1 times, but has 0");
  ds_engine_destroy(engine);
  for (i = 0; i < NUMEL; ++i) read = place[i];
  (void)read;
  ds_tensor_destroy(first);
  ds_tensor_destroy(again);
}

/* Proves {delegate.grad.once} and {engine.pieces.missing}: h.1 gets no gradient. */
static void gradients(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  float ones[NUMEL], mean[NUMEL];
  ds_tensor* grad;
  int i;
  (void)rank, (void)data;
  for (i = 0; i < NUMEL; ++i) ones[i] = 1;
  grad = tensor_of(ones);
  check_ok(give(engine, 2, grad), "h.2");
  check_ok(give(engine, 0, grad), "h.0, out of order");
  check_error(give(engine, 2, grad), DS_ERROR_STATE, "'h.2' has its gradient");
  check_ok(ds_backward(engine), "backward");
  check_error(give(engine, 1, grad), DS_ERROR_STATE, "'h.1' comes after 1 of 1 micro-steps");
  check_ok(ds_engine_read(engine, 0, "grad", mean, NUMEL), "mean");
  check(mean[0] == 1, "given");
  check_ok(ds_engine_read(engine, 1, "grad", mean, NUMEL), "mean");
  check(mean[0] == 0 && mean[NUMEL - 1] == 0, "zero");
  check_ok(ds_step(engine), "step");
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

/* Proves {delegate.grads}. */
static void list_of_gradients(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  float ones[NUMEL], twos[NUMEL], mean[NUMEL];
  const int32_t params[3] = {2, 0, 2};
  const ds_tensor* grads[3];
  ds_tensor *one, *two;
  int i;
  (void)rank, (void)data;
  for (i = 0; i < NUMEL; ++i) ones[i] = 1, twos[i] = 2;
  one = tensor_of(ones), two = tensor_of(twos);
  grads[0] = one, grads[1] = two, grads[2] = NULL;
  check_error(ds_grads_ready(engine, params, 1, NULL, NULL), DS_ERROR_INVALID_ARGUMENT, "grads");
  check_ok(ds_grads_ready(engine, params, 2, grads, NULL), "two gradients");
  check_error(ds_grads_ready(engine, params + 1, 2, grads + 1, NULL), DS_ERROR_STATE,
              "'h.0' has its gradient");
  check_error(ds_grads_ready(engine, params + 2, 1, grads + 2, NULL), DS_ERROR_INVALID_ARGUMENT,
              "grads[0] must not be NULL");
  check_ok(ds_grads_ready(engine, params, 0, grads, NULL), "no gradient");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_engine_read(engine, 2, "grad", mean, NUMEL), "mean");
  check(mean[0] == 1, "the first of the list");
  check_ok(ds_engine_read(engine, 0, "grad", mean, NUMEL), "mean");
  check(mean[NUMEL - 1] == 2, "the second of the list");
  check_ok(ds_step(engine), "step");
  ds_tensor_destroy(one);
  ds_tensor_destroy(two);
  ds_engine_destroy(engine);
}

/* Proves {delegate.grad_view}: requesting the view of a gradient begins the step. */
static void place_first(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  float mean[NUMEL];
  ds_tensor *place = NULL, *again = NULL;
  int i;
  (void)rank, (void)data;
  check_ok(grad_view(engine, 1, &place), "the place");
  check_error(ds_engine_evaluate(engine, 1), DS_ERROR_STATE, "");
  check_ok(grad_view(engine, 1, &again), "again");
  check(memory_of(place) == memory_of(again), "the same place");
  for (i = 0; i < NUMEL; ++i) memory_of(place)[i] = 2;
  check_ok(give(engine, 1, place), "gradient");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_engine_read(engine, 1, "grad", mean, NUMEL), "mean");
  check(mean[0] == 2 && mean[NUMEL - 1] == 2, "what was written there");
  check_ok(ds_step(engine), "step");
  ds_tensor_destroy(place);
  ds_tensor_destroy(again);
  ds_engine_destroy(engine);
}

/* Proves {delegate.order.differs}: the ranks hand over gradients in different orders. */
static void order(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  float ones[NUMEL] = {1};
  ds_tensor* grad = tensor_of(ones);
  ds_status status = DS_OK;
  int32_t i;
  (void)data;
  for (i = 0; i < PARAMS && status == DS_OK; ++i)
    status = give(engine, rank == 0 ? i : PARAMS - 1 - i, grad);
  if (status == DS_OK) status = ds_backward(engine);
  if (status == DS_OK) status = ds_step(engine);
  check_error(status, DS_ERROR_COMM, "");
  check_error(ds_step(engine), DS_ERROR_POISONED, "");
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

/* Proves {delegate.evaluate}: an evaluation may lease in another order than a step, and refuses
 * calls that belong to a step. */
static void evaluation(int rank, ds_comm* comm, void* data) {
  ds_engine* engine = started(comm);
  float ones[NUMEL] = {1};
  ds_tensor *grad = tensor_of(ones), *out = NULL;
  char *before = NULL, *after = NULL;
  int32_t p;
  int s;
  (void)rank, (void)data;
  for (s = 0; s < 4; ++s) {
    for (p = 0; p < PARAMS; ++p) check_ok(gather(engine, p), "gather");
    for (p = 0; p < PARAMS; ++p) check_ok(give(engine, p, grad), "gradient");
    check_ok(ds_backward(engine), "backward");
    for (p = 0; p < PARAMS; ++p) check_ok(release(engine, p), "release");
    check_ok(ds_step(engine), "step");
    if (s != 1) continue;
    check_ok(ds_engine_plan_print(engine, &before), "the step that was recorded");
    check_ok(ds_engine_evaluate(engine, 1), "evaluate");
    for (p = PARAMS - 1; p >= 0; --p) {
      check_ok(gather(engine, p), "gather");
      check_ok(release(engine, p), "release");
    }
    check_error(give(engine, 0, grad), DS_ERROR_STATE, "ds_engine_evaluate has ended it");
    check_error(grad_view(engine, 0, &out), DS_ERROR_STATE, "ds_engine_evaluate has ended it");
    check_error(ds_backward(engine), DS_ERROR_STATE, "ds_engine_evaluate has ended it");
    check_error(ds_step(engine), DS_ERROR_STATE, "ds_engine_evaluate has ended it");
    check_ok(ds_engine_evaluate(engine, 0), "train");
  }
  check_ok(ds_engine_plan_print(engine, &after), "the step that was recorded");
  check(strcmp(before, after) == 0, "the order of steps is the same");
  ds_text_destroy(before);
  ds_text_destroy(after);
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

/* Proves {delegate.weight} and {delegate.weight.missing}: rank r's gradient is r + 1, with a weight
 * of 3 r + 1. */
static void weights(int rank, ds_comm* comm, void* data) {
  char config[1024];
  ds_engine* engine;
  float values[NUMEL], mean[NUMEL];
  ds_tensor* grad;
  double weight = 0;
  int i;
  (void)data;
  strcpy(config, sgd);
  strcpy(strrchr(config, '}'), ", \"loss_average\": \"tokens\"}");
  engine = registered(comm, config, NUMEL);
  check_ok(ds_engine_start(engine), "start");
  for (i = 0; i < NUMEL; ++i) values[i] = (float)(rank + 1);
  grad = tensor_of(values);
  check_ok(give(engine, 0, grad), "gradient");
  check_error(ds_backward(engine), DS_ERROR_STATE, "micro_weight");
  check_error(ds_engine_set(engine, "micro_weight", -1), DS_ERROR_INVALID_ARGUMENT,
              "at least 0, got -1");
  check_ok(ds_engine_get(engine, "micro_weight", &weight), "none yet");
  check(weight != weight, "NaN");
  check_ok(ds_engine_set(engine, "micro_weight", 3 * rank + 1), "weight");
  check_ok(ds_engine_get(engine, "micro_weight", &weight), "weight");
  check(weight == 3 * rank + 1, "as it was set");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_engine_read(engine, 0, "grad", mean, NUMEL), "mean");
  check(mean[0] > 0.599f && mean[0] < 0.601f, "3 / 5");
  check_ok(ds_step(engine), "step");
  check_ok(ds_engine_read(engine, 0, "master", mean, NUMEL), "master");
  check(mean[0] < -0.299f && mean[0] > -0.301f, "a step of 0.5");
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
  engine = started(comm);
  check_error(ds_engine_set(engine, "micro_weight", 1), DS_ERROR_STATE, "loss_average");
  ds_engine_destroy(engine);
}

/* Proves {delegate.add.dtype}. A model in bf16 keeps a parameter in f32, whose small changes bf16
 * would round away. */
static void types(void) {
  const char* config =
      "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0, "
      "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}, "
      "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1}}}";
  const int64_t dims[1] = {2};
  const int32_t both[2] = {0, 1};
  const float ones[2] = {1, 1}, small[2] = {-0.0009765625f, 0};
  ds_engine* engine = NULL;
  int32_t param = -1;
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "engine");
  check_error(ds_engine_param_add(engine, "p", DS_DTYPE_F16, dims, 1, &param),
              DS_ERROR_INVALID_ARGUMENT, "must be bf16 or f32, got f16");
  check_error(ds_engine_param_add(engine, "p", DS_DTYPE_I32, dims, 1, &param),
              DS_ERROR_INVALID_ARGUMENT, "i32");
  check_ok(ds_engine_param_add(engine, "usual", DS_DTYPE_NONE, dims, 1, &param), "usual");
  check_ok(ds_engine_param_add(engine, "router", DS_DTYPE_F32, dims, 1, &param), "router");
  check_ok(ds_engine_start(engine), "start");
  for (int32_t p = 0; p < 2; ++p) check_ok(ds_engine_write(engine, p, "master", ones, 2), "write");
  for (int step = 0; step < 3; ++step) {
    check_ok(ds_gather_params(engine, both, 2, NULL), "gather");
    for (int32_t p = 0; p < 2; ++p) {
      ds_tensor *view = NULL, *grad = NULL;
      ds_dtype dtype = DS_DTYPE_NONE;
      void* data = NULL;
      size_t count = 0;
      check_ok(ds_engine_param_view(engine, p, NULL, &view), "view");
      check_ok(ds_tensor_info(view, &dtype, NULL, NULL, 0, &count, NULL, &data), "info");
      check(dtype == (p == 0 ? DS_DTYPE_BF16 : DS_DTYPE_F32), "the type of the view");
      if (p == 1) check(((float*)data)[0] == 1 + (float)step * 0.0009765625f, "not rounded");
      ds_tensor_destroy(view);
      check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, (void*)small, NULL, &grad), "grad");
      check_ok(ds_grad_ready(engine, p, grad, NULL), "grad_ready");
      ds_tensor_destroy(grad);
    }
    check_ok(ds_release_params(engine, both, 2, NULL), "release");
    check_ok(ds_backward(engine), "backward");
    check_ok(ds_step(engine), "step");
  }
  ds_engine_destroy(engine);
}

int main(int argc, char** argv) {
  snprintf(folder, sizeof folder, "%s/delegate_calls", argc > 1 ? argv[1] : ".");
  before_the_start();
  types();
  budget();
  run_ranks("api_others", RANKS, others, NULL);
  run_ranks("api_views", RANKS, views, NULL);
  run_ranks("api_gradients", RANKS, gradients, NULL);
  run_ranks("api_grads", RANKS, list_of_gradients, NULL);
  run_ranks("api_place_first", RANKS, place_first, NULL);
  run_ranks("api_order", RANKS, order, NULL);
  run_ranks("api_evaluation", RANKS, evaluation, NULL);
  run_ranks("api_weights", RANKS, weights, NULL);
  return 0;
}
