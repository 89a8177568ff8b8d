/* Tests a host with its own forward and backward that releases late, changes the order of its calls
 * and evaluates between steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { RANKS = 2, PARAMS = 3, NUMEL = 300, STEPS = 6 };

static const char* folder;

static void gather(ds_engine* engine, int32_t param, float wanted) {
  ds_tensor* view = NULL;
  void* data = NULL;
  check_ok(ds_gather_params(engine, &param, 1, NULL), "gather");
  check_ok(ds_engine_param_view(engine, param, NULL, &view), "view");
  check_ok(ds_tensor_info(view, NULL, NULL, NULL, 0, NULL, NULL, &data), "memory of the view");
  check(((float*)data)[NUMEL - 1] == wanted, "the value of the parameter");
  ds_tensor_destroy(view);
}

/* Hands over a gradient; if in_place is set, it is written directly into the engine's memory.
 * Proves {delegate.grad_view}. */
static void give(ds_engine* engine, int32_t param, ds_tensor* grad, int in_place) {
  ds_tensor *view = NULL, *again = NULL;
  void *data = NULL, *same = NULL;
  int i;
  if (!in_place) {
    check_ok(ds_grad_ready(engine, param, grad, NULL), "gradient");
    return;
  }
  check_ok(ds_engine_grad_view(engine, param, NULL, &view), "place of the gradient");
  check_ok(ds_engine_grad_view(engine, param, NULL, &again), "again");
  check_ok(ds_tensor_info(view, NULL, NULL, NULL, 0, NULL, NULL, &data), "memory");
  check_ok(ds_tensor_info(again, NULL, NULL, NULL, 0, NULL, NULL, &same), "memory again");
  check(data == same, "the same place");
  for (i = 0; i < NUMEL; ++i) ((float*)data)[i] = 1.0f;
  check_ok(ds_grad_ready(engine, param, view, NULL), "gradient in place");
  ds_tensor_destroy(again);
  check_error(ds_engine_grad_view(engine, param, NULL, &again), DS_ERROR_STATE, "has its gradient");
  ds_tensor_destroy(view);
}

/* Trains with gradients of 1 and a learning rate of 0.5. Proves {delegate.order.changes}. */
static void train(ds_engine* engine, ds_tensor* grad, int step) {
  static const int32_t usual[PARAMS] = {2, 1, 0}, other[PARAMS] = {2, 0, 1};
  float mean[NUMEL];
  int micro, p;
  for (micro = 0; micro < 2; ++micro) {
    const int32_t* order = step % 3 == 2 && micro == 1 ? other : usual;
    for (p = 0; p < PARAMS; ++p) gather(engine, p, (float)p - 0.5f * (float)step);
    for (p = 0; p < PARAMS; ++p) give(engine, order[p], grad, p == 1);
    check_ok(ds_backward(engine), "backward");
    check_ok(ds_release_params(engine, usual, PARAMS, NULL), "release after backward");
  }
  for (p = 0; p < PARAMS; ++p) {
    check_ok(ds_engine_read(engine, p, "grad", mean, NUMEL), "mean gradient");
    check(mean[0] == 1.0f && mean[NUMEL - 1] == 1.0f, "it is 1 whatever the order");
  }
  check_ok(ds_step(engine), "step");
}

/* Proves {delegate.between}, {delegate.release.often}, {delegate.evaluate.unannounced},
 * {engine.freeze.leased} and {engine.group_add.leased}: odd evaluations are announced, the others
 * are not. */
static void evaluate(ds_engine* engine, int step, int odd) {
  static const int32_t twice[2] = {1, 1};
  int32_t p, group = -1;
  float values[NUMEL] = {0};
  char path[256];
  if (odd) {
    ds_tensor* none = NULL;
    check_ok(ds_engine_evaluate(engine, 1), "announce it");
    check_error(ds_backward(engine), DS_ERROR_STATE, "ds_backward needs training");
    check_error(ds_engine_grad_view(engine, 0, NULL, &none), DS_ERROR_STATE,
                "ds_engine_grad_view needs training");
  }
  for (p = 0; p < PARAMS; ++p) {
    int32_t param = odd ? PARAMS - 1 - p : p;
    gather(engine, param, (float)param - 0.5f * (float)step);
    if (p > 0) check_ok(ds_release_params(engine, &param, 1, NULL), "release");
  }
  p = odd ? PARAMS - 1 : 0;
  check_error(ds_release_params(engine, twice, 2, NULL), DS_ERROR_STATE,
              "'h.1' is released 2 times, but has 0");
  check_error(ds_engine_write(engine, 1, "master", values, NUMEL), DS_ERROR_STATE,
              odd ? "while parameter 'h.2' is leased" : "while parameter 'h.0' is leased");
  check_error(ds_engine_freeze(engine, &p, 1, 1), DS_ERROR_STATE,
              odd ? "while parameter 'h.2' is leased" : "while parameter 'h.0' is leased");
  check_error(ds_engine_group_add(engine, &p, 1, NULL, &group), DS_ERROR_STATE,
              odd ? "while parameter 'h.2' is leased" : "while parameter 'h.0' is leased");
  if (odd)
    check_error(ds_engine_evaluate(engine, 0), DS_ERROR_STATE, "while parameter 'h.2' is leased");
  snprintf(path, sizeof path, "%s/delegate_checkpoint", folder);
  check_ok(ds_checkpoint_save(engine, path, NULL), "save under a lease");
  check_ok(ds_release_params(engine, &p, 1, NULL), "release the first");
  check_ok(ds_checkpoint_load(engine, path, NULL, NULL), "load between steps");
  check_ok(ds_engine_freeze(engine, NULL, 0, 1), "freeze nothing");
  if (odd) check_ok(ds_engine_evaluate(engine, 0), "training again");
}

/* Initializes each parameter with its index. Proves {engine.init.values} and {engine.init.local}:
 * the callback is called for exactly the elements that this rank updates. */
static ds_status number_of(int32_t param, const char* name, int64_t first, float* data,
                           size_t count, void* user_data) {
  size_t i;
  check(*(ds_engine**)user_data != NULL, "called inside ds_engine_start");
  check(name[2] - '0' == param, "its name");
  check(first >= 0 && first + (int64_t)count <= NUMEL && count < NUMEL, "a part");
  for (i = 0; i < count; ++i) {
    check(data[i] == 0, "zeros so far");
    data[i] = (float)param;
  }
  return DS_OK;
}

/* One rank hands over a gradient with a NaN: the step is skipped on all ranks, and some rank names
 * the parameter. */
static void bad_gradient(int rank, ds_comm* comm, ds_engine* engine, ds_tensor* grad) {
  const int64_t dims[1] = {NUMEL};
  float values[NUMEL] = {0}, named = 0, all = 0;
  ds_tensor* bad = NULL;
  ds_step_result last;
  char* text = NULL;
  int micro, p;
  values[7] = (float)NAN;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, values, NULL, &bad), "a bad gradient");
  for (micro = 0; micro < 2; ++micro) {
    for (p = 0; p < PARAMS; ++p)
      check_ok(ds_grad_ready(engine, p, p == 1 && rank == 1 ? bad : grad, NULL), "gradient");
    check_ok(ds_backward(engine), "backward");
  }
  check_ok(ds_step(engine), "step");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  check(last.skipped == 1, "skipped");
  check_ok(ds_engine_skip_reason(engine, &text), "reason");
  check(strstr(text, "first tensor with NaN or infinity: ") != NULL, "a reason");
  named = strstr(text, "the gradient of 'h.1'") != NULL;
  check(named == 1 || strstr(text, "none on this rank") != NULL,
        "the parameter, or none of this rank's");
  check_ok(ds_comm_all_reduce(comm, &named, 1, DS_DTYPE_F32, &all), "how many ranks name it");
  check(all >= 1, "one names it");
  ds_text_destroy(text);
  ds_tensor_destroy(bad);
}

static void host(int rank, ds_comm* comm, void* data) {
  const char* device = data;
  const char* format =
      "{\"device\": \"%s\", \"train_micro_batch_size_per_gpu\": 1, "
      "\"gradient_accumulation_steps\": 2, \"gradient_clipping\": 0, \"optimizer\": {\"type\": "
      "\"SGD\", \"params\": {\"lr\": 0.5}}, \"zero_optimization\": {\"stage\": 3, "
      "\"stage3_param_persistence_threshold\": 0}}";
  const int64_t dims[1] = {NUMEL};
  float ones[NUMEL];
  ds_engine_options options;
  ds_engine* engine = NULL;
  ds_tensor* grad = NULL;
  int32_t param = -1;
  int i, p, step;
  char config[512];
  snprintf(config, sizeof config, format, device);
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.init = number_of;
  options.init_user_data = &engine;
  check_ok(ds_engine_create(comm, config, NULL, &options, &engine), "create");
  for (i = 0; i < NUMEL; ++i) ones[i] = 1.0f;
  for (p = 0; p < PARAMS; ++p) {
    char name[8];
    snprintf(name, sizeof name, "h.%d", p);
    check_ok(ds_engine_param_add(engine, name, DS_DTYPE_NONE, dims, 1, &param), "parameter");
  }
  check_ok(ds_engine_start(engine), "start");
  check_error(ds_engine_start(engine), DS_ERROR_STATE, "ds_engine_start must be called once");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, ones, NULL, &grad), "gradient tensor");
  for (step = 0; step < STEPS; ++step) {
    if (step % 2 == 1) evaluate(engine, step, step == 3);
    train(engine, grad, step);
  }
  bad_gradient(rank, comm, engine, grad);
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

static ds_status fails_at_last(int32_t param, const char* name, int64_t first, float* data,
                               size_t count, void* user_data) {
  (void)name;
  (void)first;
  (void)user_data;
  memset(data, 0, count * sizeof *data);
  return param == PARAMS - 1 ? DS_ERROR_IO : DS_OK;
}

/* Proves {engine.init.fails} and {delegate.start.user}: rank 1 cannot read its initial values and
 * rank 0 sets none, so neither can train. */
static void failing_values(int rank, ds_comm* comm, void* data) {
  const char* config =
      "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3}, "
      "\"optimizer\": {}}";
  const int64_t dims[1] = {NUMEL};
  ds_engine_options options;
  ds_engine* engine = NULL;
  ds_tensor* view = NULL;
  int32_t param = -1;
  int p;
  (void)data;
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  if (rank == 1) options.init = fails_at_last;
  check_ok(ds_engine_create(comm, config, NULL, &options, &engine), "create");
  check_error(ds_engine_start(engine), DS_ERROR_STATE, "ds_engine_start needs a parameter");
  if (rank == 0)
    check_ok(ds_engine_param_add(engine, "h.0", DS_DTYPE_NONE, dims, 1, &param),
             "one rank is early");
  check_error(ds_engine_start(engine), DS_ERROR_STATE, "rank 1: ds_engine_start needs a parameter");
  for (p = rank == 0; p < PARAMS; ++p) {
    char name[8];
    snprintf(name, sizeof name, "h.%d", p);
    check_ok(ds_engine_param_add(engine, name, DS_DTYPE_NONE, dims, 1, &param), "parameter");
  }
  check_error(ds_engine_start(engine), DS_ERROR_USER,
              "options.init returned -7 for parameter 'h.2'");
  check_error(ds_gather_params(engine, &param, 1, NULL), DS_ERROR_POISONED, "h.2");
  check_error(ds_engine_grad_view(engine, param, NULL, &view), DS_ERROR_POISONED, "h.2");
  check_error(ds_engine_param_view(engine, param, NULL, &view), DS_ERROR_POISONED, "h.2");
  check_error(ds_engine_start(engine), DS_ERROR_POISONED, "h.2");
  ds_engine_destroy(engine);
}

/* Adds 1 to the drawn value, and counts the elements. Proves {engine.init.values} and
 * {engine.init.local} with a graph. */
static ds_status one_more(int32_t param, const char* name, int64_t first, float* data, size_t count,
                          void* user_data) {
  size_t i;
  check(param >= 0 && name != NULL && first >= 0, "what for");
  for (i = 0; i < count; ++i) data[i] += 1;
  *(int64_t*)user_data += (int64_t)count;
  return DS_OK;
}

static void values_of_a_graph(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine *drawn = NULL, *given = NULL;
  ds_engine_options options;
  int64_t seen = 0, sum = 0, first, count;
  float before[MLP_HIDDEN * MLP_IN], after[MLP_HIDDEN * MLP_IN];
  int32_t param = -1, p;
  int i;
  (void)rank;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  check_ok(ds_engine_create(comm, config, graph, &options, &drawn), "drawn values");
  options.init = one_more;
  options.init_user_data = &seen;
  check_ok(ds_engine_create(comm, config, graph, &options, &given), "values of the host");
  check_ok(ds_engine_param_find(given, "fc1.weight", &param), "find");
  check_ok(ds_engine_read(drawn, param, "param", before, MLP_HIDDEN * MLP_IN), "drawn");
  check_ok(ds_engine_read(given, param, "param", after, MLP_HIDDEN * MLP_IN), "given");
  for (i = 0; i < MLP_HIDDEN * MLP_IN; ++i) check(after[i] == before[i] + 1, "one more");
  for (p = 0; p < ds_engine_param_count(given); ++p) {
    check_ok(ds_engine_local_range(given, p, &first, &count), "range");
    sum += count;
  }
  check(sum == seen, "called for what this rank updates, once");
  options.init = fails_at_last;
  ds_engine_destroy(given);
  check_error(ds_engine_create(comm, config, graph, &options, &given), DS_ERROR_USER,
              "returned -7");
  check(given == NULL, "no engine");
  ds_engine_destroy(drawn);
  ds_graph_destroy(graph);
}

int main(int argc, char** argv) {
  folder = argc > 1 ? argv[1] : ".";
  run_ranks("delegate-host", RANKS, host, "cpu");
  run_ranks("delegate-device", RANKS, host, (void*)test_device());
  run_ranks("delegate-failing", RANKS, failing_values, NULL);
  run_ranks("delegate-values", RANKS, values_of_a_graph, NULL);
  return 0;
}
