#define _POSIX_C_SOURCE 200809L
/* Tests parameters without elements, as they occur when models are divided over ranks: in native
 * and delegate mode, at every ZeRO stage, on every tier, on two ranks. Also tests sizes that no
 * host has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

enum { RANKS = 2, STEPS = 3 };

typedef struct task {
  char folder[600], config[1200];
  /* Whether the graph also has empty parameters. */
  int with_empty;
  float weights[MLP_HIDDEN * MLP_IN];
  double loss;
} task;

static const int64_t none[2] = {0, 4}, also_none[3] = {2, 0, 3};

/* Returns the perceptron. Empty parameters come after its own, because initial values depend on the
 * indices of parameters. */
static ds_graph* graph_of(int with_empty) {
  ds_graph* graph = mlp_graph();
  int32_t value = -1;
  if (!with_empty) return graph;
  check_ok(ds_graph_param(graph, "empty", none, 2, "zeros", 0, &value), "empty");
  check_ok(ds_graph_param(graph, "behind", also_none, 3, "normal", 1, &value), "behind");
  return graph;
}

static void native(int rank, ds_comm* comm, void* data) {
  task* t = (task*)data + rank;
  ds_graph* graph = graph_of(t->with_empty);
  ds_engine_options options;
  ds_engine* engine = NULL;
  mlp_batch batch;
  int32_t weight = -1, empty = -1;
  int64_t first = -1, count = -1, dims[4];
  size_t rank_of = 0;
  int s;
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.threads = 1;
  check_ok(ds_engine_create(comm, t->config, graph, &options, &engine), "engine");
  make_batch(&batch, rank, 0, 1);
  for (s = 0; s < STEPS; ++s) {
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &t->loss), "train");
    if (s > 0 || !t->with_empty) continue;
    check_ok(ds_engine_param_find(engine, "behind", &empty), "find");
    check_ok(ds_engine_param_info(engine, empty, NULL, dims, 4, &rank_of), "info");
    check(rank_of == 3 && dims[0] == 2 && dims[1] == 0 && dims[2] == 3, "its shape");
    check_ok(ds_engine_read(engine, empty, "param", NULL, 0), "read nothing");
    check_ok(ds_engine_read(engine, empty, "exp_avg", NULL, 0), "read no moments");
    check_ok(ds_engine_write(engine, empty, "master", NULL, 0), "write nothing");
    check_ok(ds_engine_local_range(engine, empty, &first, &count), "range");
    check(count == 0, "no element on any rank");
    check_ok(ds_engine_read_local(engine, empty, "master", NULL, 0), "read no local elements");
    check_ok(ds_engine_write_local(engine, empty, "master", NULL, 0), "write no local elements");
    check_ok(ds_engine_refresh(engine), "refresh");
    check_ok(ds_checkpoint_save(engine, t->folder, NULL), "save");
    check_ok(ds_checkpoint_load(engine, t->folder, NULL, NULL), "load");
    check_ok(ds_engine_freeze(engine, &empty, 1, 1), "freeze nothing");
    check_ok(ds_engine_freeze(engine, &empty, 1, 0), "train nothing");
  }
  check_ok(ds_engine_param_find(engine, "fc1.weight", &weight), "find");
  check_ok(ds_engine_read(engine, weight, "master", t->weights, MLP_HIDDEN * MLP_IN), "read");
  free_batch(&batch);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

static void delegate(int rank, ds_comm* comm, void* data) {
  task* t = (task*)data + rank;
  const int64_t dims[1] = {3};
  const float start[3] = {1, 2, 3};
  float one[3] = {1, 1, 1};
  ds_engine* engine = NULL;
  ds_tensor *grad = NULL, *nothing = NULL, *view = NULL;
  int32_t params[3];
  char model[700];
  size_t sizes = 0;
  int64_t shape[4];
  int s;
  check_ok(ds_engine_create(comm, t->config, NULL, NULL, &engine), "engine");
  check_ok(ds_engine_param_add(engine, "before", DS_DTYPE_NONE, none, 2, &params[0]), "before");
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 1, &params[1]), "w");
  check_ok(ds_engine_param_add(engine, "behind", DS_DTYPE_NONE, also_none, 3, &params[2]),
           "behind");
  check_ok(ds_engine_start(engine), "start");
  check_ok(ds_engine_write(engine, params[1], "master", start, 3), "values");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, one, NULL, &grad), "gradient");
  check_ok(ds_tensor_create(DS_DTYPE_F32, none, 2, NULL, NULL, NULL, &nothing), "no gradient");
  for (s = 0; s < STEPS; ++s) {
    check_ok(ds_gather_params(engine, params, 3, NULL), "gather");
    check_ok(ds_engine_param_view(engine, params[2], NULL, &view), "view");
    check_ok(ds_tensor_info(view, NULL, shape, NULL, 4, &sizes, NULL, NULL), "info");
    check(sizes == 3 && shape[1] == 0, "an empty view");
    ds_tensor_destroy(view);
    check_ok(ds_release_params(engine, params, 3, NULL), "release");
    check_ok(ds_grad_ready(engine, params[1], grad, NULL), "gradient");
    if (s < 2) check_ok(ds_grad_ready(engine, params[0], nothing, NULL), "gradient of nothing");
    check_ok(ds_backward(engine), "backward");
    check_ok(ds_step(engine), "step");
  }
  check_ok(ds_checkpoint_save(engine, t->folder, NULL), "save");
  check_ok(ds_checkpoint_load(engine, t->folder, NULL, NULL), "load");
  snprintf(model, sizeof model, "%s/model", t->folder);
  check_ok(ds_checkpoint_save_model(engine, model, NULL), "save a model");
  check_ok(ds_checkpoint_load_model(engine, model), "load a model");
  check_ok(ds_engine_read(engine, params[0], "master", NULL, 0), "read nothing");
  check_ok(ds_engine_read(engine, params[1], "master", t->weights, 3), "read");
  check(t->weights[0] < 1 && t->weights[2] < 3, "the others are trained");
  ds_tensor_destroy(grad);
  ds_tensor_destroy(nothing);
  ds_engine_destroy(engine);
}

/* At every stage, with states on the device and on nvme, and at stage 3 also on cpu, a run with
 * empty parameters has the losses and weights of a run without them. */
static void all_stages(const char* folder) {
  static task with[RANKS], without[RANKS], host[RANKS];
  static const char* const tiers[] = {"device", "cpu", "nvme"};
  int stage, tier, r;
  char name[64];
  for (stage = 0; stage <= 3; ++stage) {
    for (tier = 0; tier < 3; tier += stage == 3 ? 1 : 2) {
      const char* offload = tier == 0 ? "none" : tiers[tier];
      task base = {.with_empty = 0};
      snprintf(base.config, sizeof base.config,
               "{\"train_micro_batch_size_per_gpu\": %d, \"optimizer\": {\"type\": \"AdamW\", "
               "\"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": %d, "
               "\"stage3_param_persistence_threshold\": %d, \"offload_optimizer\": {\"device\": "
               "\"%s\", \"nvme_path\": \"%s\"}%s%s%s%s%s}, \"run\": {\"seed\": 7}}",
               MLP_ROWS, stage, tier == 1 ? 20 : 0, offload, folder,
               stage == 3 ? ", \"offload_param\": {\"device\": \"" : "", stage == 3 ? offload : "",
               stage == 3 ? "\", \"nvme_path\": \"" : "", stage == 3 ? folder : "",
               stage == 3 ? "\"}" : "");
      snprintf(base.folder, sizeof base.folder, "%s/%d-%d", folder, stage, tier);
      for (r = 0; r < RANKS; ++r) {
        with[r] = without[r] = host[r] = base;
        with[r].with_empty = 1;
        strcat(host[r].folder, "-delegate");
      }
      snprintf(name, sizeof name, "plain-%d-%d", stage, tier);
      run_ranks(name, RANKS, native, without);
      snprintf(name, sizeof name, "empty-%d-%d", stage, tier);
      run_ranks(name, RANKS, native, with);
      check(memcmp(with[1].weights, without[1].weights, sizeof with[1].weights) == 0 &&
                with[0].loss == without[0].loss,
            "empty parameters change no other");
      snprintf(name, sizeof name, "delegate-%d-%d", stage, tier);
      run_ranks(name, RANKS, delegate, host);
    }
  }
}

static void huge(void) {
  const int64_t dims[2] = {(int64_t)1 << 20, (int64_t)1 << 19}, rows[2] = {-1, 4},
                beyond[2] = {0, INT64_MAX};
  char config[512];
  ds_engine* engine = NULL;
  ds_graph* graph = mlp_graph();
  int32_t param = -1, value = -1;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "delegate");
  check_ok(ds_engine_param_add(engine, "small", DS_DTYPE_NONE, rows + 1, 1, &param), "small");
  check_ok(ds_engine_param_add(engine, "huge", DS_DTYPE_NONE, dims, 2, &param), "huge");
  check_error(ds_gather_params(engine, &param, 1, NULL), DS_ERROR_STATE,
              "ds_engine_start must come first");
  check_error(ds_engine_start(engine), DS_ERROR_OUT_OF_MEMORY,
              "the plan for 549755814144 elements needs ");
  check_error(ds_engine_start(engine), DS_ERROR_OUT_OF_MEMORY,
              "of host memory (1 rank), this machine has ");
  ds_engine_destroy(engine);
  engine = NULL;
  check_ok(ds_graph_param(graph, "huge", dims, 2, "normal", 0.5, &value), "a parameter of a graph");
  check_error(ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_OUT_OF_MEMORY,
              "elements needs ");
  strcpy(strrchr(config, '}'), ", \"memory_budget\": {\"device\": \"1 GiB\"}}");
  check_error(ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_OUT_OF_MEMORY,
              "memory_budget is too small");
  check(engine == NULL, "no engine");
  ds_graph_destroy(graph);
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "delegate");
  check_ok(ds_engine_param_add(engine, "empty", DS_DTYPE_NONE, beyond, 2, &param),
           "0 times anything is nothing");
  ds_engine_destroy(engine);
}

/* A model all of whose parameters are empty. */
static void nothing_else(void) {
  char config[512];
  ds_engine* engine = NULL;
  int32_t param = -1;
  int s;
  mlp_config(config, sizeof config, 3, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "engine");
  check_ok(ds_engine_param_add(engine, "empty", DS_DTYPE_NONE, none, 2, &param), "add");
  check_ok(ds_engine_start(engine), "start");
  for (s = 0; s < STEPS; ++s) {
    check_ok(ds_gather_params(engine, &param, 1, NULL), "gather");
    check_ok(ds_release_params(engine, &param, 1, NULL), "release");
    check_ok(ds_backward(engine), "backward");
    check_ok(ds_step(engine), "step");
  }
  ds_engine_destroy(engine);
}

static void refusals(void) {
  ds_graph* graph = mlp_graph();
  int32_t empty = -1, out = -1, value = -1;
  check_error(ds_graph_input(graph, "in", DS_DTYPE_F32, none, 2, &value), DS_ERROR_INVALID_ARGUMENT,
              "dims[0] must be 1 or more, or -1 for n, got 0");
  check_ok(ds_graph_param(graph, "empty", none, 2, "zeros", 0, &empty), "an empty parameter");
  check_error(ds_graph_op(graph, "relu", &empty, 1, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "relu: operand 0 must have at least 1 element, got f32[0,4]");
  ds_graph_destroy(graph);
}

int main(int argc, char** argv) {
  char folder[512], command[600];
  snprintf(folder, sizeof folder, "%s/empty_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(folder) != NULL, "a folder");
  refusals();
  nothing_else();
  huge();
  all_stages(folder);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command) == 0 ? 0 : 1;
}
