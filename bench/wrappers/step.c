/* bench/wrappers.py: a step of y = x w^T + b with a mean squared error, 4 rows of 3 and 2. Reads
 * numbers of steps from stdin and prints the microseconds of one step for each. The programs of the
 * wrappers do the same on other numbers. */
#include <ds.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(ds_status status) {
  if (status == DS_OK) return;
  fprintf(stderr, "%s\n", ds_last_error_message());
  exit(1);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

int main(void) {
  static const char* config =
      "{\"train_micro_batch_size_per_gpu\": 4, \"optimizer\": {\"type\": \"SGD\", \"params\": "
      "{\"lr\": 0.01}}}";
  const int64_t x_dims[] = {-1, 3}, y_dims[] = {-1, 2}, w_dims[] = {2, 3}, rows3[] = {4, 3},
                rows2[] = {4, 2};
  static float x[12] = {0.5f}, target[8] = {0.25f};
  int32_t values[3], targets, y, pair[2], loss;
  ds_graph* graph = NULL;
  check(ds_graph_create("linear", 4, &graph));
  check(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &values[0]));
  check(ds_graph_input(graph, "target", DS_DTYPE_F32, y_dims, 2, &targets));
  check(ds_graph_param(graph, "w", w_dims, 2, "normal", 0.1, &values[1]));
  check(ds_graph_param(graph, "b", w_dims, 1, "zeros", 0, &values[2]));
  check(ds_graph_op(graph, "linear", values, 3, NULL, &y));
  pair[0] = y;
  pair[1] = targets;
  check(ds_graph_op(graph, "mse", pair, 2, NULL, &loss));
  check(ds_graph_output(graph, "loss", loss));
  ds_engine_options options;
  check(ds_engine_options_init(&options, sizeof options));
  options.threads = 1;
  ds_engine* engine = NULL;
  check(ds_engine_create(NULL, config, graph, &options, &engine));
  int steps;
  while (scanf("%d", &steps) == 1) {
    double begin = now(), out = 0;
    for (int i = 0; i < steps; ++i) { /* like the wrappers, makes new tensors for each step */
      ds_tensor* inputs[2] = {NULL, NULL};
      check(ds_tensor_create(DS_DTYPE_F32, rows3, 2, NULL, x, NULL, &inputs[0]));
      check(ds_tensor_create(DS_DTYPE_F32, rows2, 2, NULL, target, NULL, &inputs[1]));
      check(ds_train_batch(engine, (const ds_tensor* const*)inputs, 2, NULL, &out));
      ds_tensor_destroy(inputs[0]);
      ds_tensor_destroy(inputs[1]);
    }
    printf("%.4f\n", (now() - begin) / steps);
    fflush(stdout);
  }
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  return 0;
}
