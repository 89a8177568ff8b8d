#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "not so: %s (last message: %s)\n", what, ds_last_error_message());
  exit(1);
}

void check_ok(ds_status status, const char* what) {
  if (status == DS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ds_status_name(status), ds_last_error_message());
  exit(1);
}

void check_error(ds_status status, ds_status wanted, const char* words) {
  if (status == wanted && strstr(ds_last_error_message(), words)) return;
  fprintf(stderr, "want %s with '%s', got %s: %s\n", ds_status_name(wanted), words,
          ds_status_name(status), ds_last_error_message());
  exit(1);
}

typedef struct rank_task {
  const char* name;
  int rank, size;
  rank_fn* body;
  void* data;
} rank_task;

ds_comm* join_ranks(const char* name, int rank, int size) {
  char url[128];
  ds_comm_options options;
  ds_comm* comm = NULL;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 20000;
  options.join_ms = 20000;
  snprintf(url, sizeof url, "threads://%s", name);
  check_ok(ds_comm_create(url, &options, &comm), "join");
  return comm;
}

const char* test_device(void) {
  const char* given = getenv("DS_TEST_DEVICE");
  return given ? given : "separate";
}

static void* run_rank(void* arg) {
  rank_task* task = arg;
  ds_comm* comm = join_ranks(task->name, task->rank, task->size);
  task->body(task->rank, comm, task->data);
  ds_comm_destroy(comm);
  return NULL;
}

void run_ranks(const char* name, int size, rank_fn* body, void* data) {
  enum { MOST = 8 };
  pthread_t threads[MOST];
  rank_task tasks[MOST];
  int r;
  check(size <= MOST, "at most 8 ranks");
  for (r = 0; r < size; ++r) {
    rank_task task = {name, r, size, body, data};
    tasks[r] = task;
    check(pthread_create(&threads[r], NULL, run_rank, &tasks[r]) == 0, "a thread");
  }
  for (r = 0; r < size; ++r) pthread_join(threads[r], NULL);
}

static int32_t param(ds_graph* graph, const char* name, int64_t rows, int64_t columns) {
  int64_t dims[2];
  int32_t value = -1;
  dims[0] = rows;
  dims[1] = columns;
  check_ok(ds_graph_param(graph, name, dims, columns > 0 ? 2 : 1, columns > 0 ? "normal" : "zeros",
                          0.5, &value),
           name);
  return value;
}

static int32_t op(ds_graph* graph, const char* name, int32_t a, int32_t b, int32_t c) {
  int32_t inputs[3], value = -1;
  inputs[0] = a;
  inputs[1] = b;
  inputs[2] = c;
  check_ok(ds_graph_op(graph, name, inputs, b < 0 ? 1 : c < 0 ? 2 : 3, NULL, &value), name);
  return value;
}

ds_graph* mlp_graph(void) {
  const int64_t x_dims[] = {-1, MLP_IN}, y_dims[] = {-1, MLP_OUT};
  ds_graph* graph = NULL;
  int32_t x, y, weight, bias, hidden, out;
  check_ok(ds_graph_create("mlp", MLP_ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &x), "x");
  check_ok(ds_graph_input(graph, "y", DS_DTYPE_F32, y_dims, 2, &y), "y");
  weight = param(graph, "fc1.weight", MLP_HIDDEN, MLP_IN);
  bias = param(graph, "fc1.bias", MLP_HIDDEN, 0);
  hidden = op(graph, "relu", op(graph, "linear", x, weight, bias), -1, -1);
  weight = param(graph, "fc2.weight", MLP_OUT, MLP_HIDDEN);
  bias = param(graph, "fc2.bias", MLP_OUT, 0);
  out = op(graph, "linear", hidden, weight, bias);
  check_ok(ds_graph_output(graph, "loss", op(graph, "mse", out, y, -1)), "loss");
  check_ok(ds_graph_output(graph, "prediction", out), "prediction");
  return graph;
}

void mlp_config(char* buffer, size_t buffer_size, int stage, int accumulation, int size) {
  snprintf(buffer, buffer_size,
           "{\"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d, "
           "\"gradient_accumulation_steps\": %d, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
           "{\"lr\": 0.01}}, \"gradient_clipping\": 1.0, \"zero_optimization\": {\"stage\": %d, "
           "\"stage3_param_persistence_threshold\": 0}, \"run\": {\"seed\": 7}}",
           MLP_ROWS * accumulation * size, MLP_ROWS, accumulation, stage);
}

ds_engine* mlp_engine(ds_comm* comm, const char* config) {
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  ds_engine_options options;
  check_ok(ds_engine_options_init(&options, sizeof options), "engine options");
  options.threads = 1;
  check_ok(ds_engine_create(comm, config, graph, &options, &engine), "engine");
  ds_graph_destroy(graph);
  return engine;
}

void make_batch(mlp_batch* batch, int rank, int first_micro, int micros) {
  int64_t x_dims[2], y_dims[2];
  int row, i;
  x_dims[0] = y_dims[0] = (int64_t)micros * MLP_ROWS;
  x_dims[1] = MLP_IN;
  y_dims[1] = MLP_OUT;
  check(micros <= 4, "at most 4 micro-steps");
  for (row = 0; row < micros * MLP_ROWS; ++row) {
    float sum = 0;
    int sample = (rank * 16 + first_micro) * MLP_ROWS + row;
    for (i = 0; i < MLP_IN; ++i) {
      float value = (float)((sample * 7 + i * 13) % 11) / 5.0f - 1.0f;
      batch->x[row * MLP_IN + i] = value;
      sum += value;
    }
    batch->y[row * MLP_OUT] = sum;
    batch->y[row * MLP_OUT + 1] = sum > 0 ? 1.0f : -1.0f;
  }
  check_ok(ds_tensor_create(DS_DTYPE_F32, x_dims, 2, NULL, batch->x, NULL, &batch->tensors[0]),
           "x");
  check_ok(ds_tensor_create(DS_DTYPE_F32, y_dims, 2, NULL, batch->y, NULL, &batch->tensors[1]),
           "y");
}

void free_batch(mlp_batch* batch) {
  ds_tensor_destroy(batch->tensors[0]);
  ds_tensor_destroy(batch->tensors[1]);
}

const ds_tensor* const* batch_inputs(const mlp_batch* batch) {
  return (const ds_tensor* const*)batch->tensors;
}
