/* Tests graph outputs that are not separate results of a node: inputs, parameters, the loss, the
 * same value twice. Proves {graph.output_of_any} and {graph.output_inferred}. */
#include <stdio.h>
#include <string.h>

#include "support.h"

/* The values of the graph below. */
enum { OUT, X, TARGET, W, B, LOSS, VALUES };
enum { ROWS = 3, IN = 4, WIDE = 2 };

/* Builds y = relu(x W^T + b) with a loss against a target. The listed values become outputs 1 and
 * up. */
static ds_graph* make_graph(int32_t values[VALUES], const int* outputs, int count) {
  const int64_t x[] = {-1, IN}, y[] = {-1, WIDE}, w[] = {WIDE, IN}, b[] = {WIDE};
  ds_graph* graph = NULL;
  int32_t inputs[3], pair[2];
  int i;
  check_ok(ds_graph_create("outputs", ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x, 2, &values[X]), "x");
  check_ok(ds_graph_input(graph, "target", DS_DTYPE_F32, y, 2, &values[TARGET]), "target");
  check_ok(ds_graph_param(graph, "w", w, 2, "normal", 0.5, &values[W]), "w");
  check_ok(ds_graph_param(graph, "b", b, 1, "ones", 0, &values[B]), "b");
  inputs[0] = values[X];
  inputs[1] = values[W];
  inputs[2] = values[B];
  check_ok(ds_graph_op(graph, "linear", inputs, 3, NULL, &values[OUT]), "linear");
  pair[0] = values[OUT];
  pair[1] = values[TARGET];
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &values[LOSS]), "mse");
  check_ok(ds_graph_output(graph, "loss", values[LOSS]), "loss");
  for (i = 0; i < count; ++i) {
    char name[16];
    snprintf(name, sizeof name, "out.%d", i);
    check_ok(ds_graph_output(graph, name, values[outputs[i]]), "output");
  }
  return graph;
}

typedef struct run {
  double losses[3], evaluated;
  float w[WIDE * IN], b[WIDE], infer[ROWS * IN];
  size_t count;
} run;

static float x_data[ROWS * IN], target_data[ROWS * WIDE];

static run train(const int* outputs, int count) {
  const int64_t x[] = {ROWS, IN}, y[] = {ROWS, WIDE};
  static const char config[] =
      "{\"train_batch_size\": 3, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
      "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}}";
  int32_t values[VALUES];
  ds_graph* graph = make_graph(values, outputs, count);
  ds_engine* engine = NULL;
  ds_tensor *batch[2] = {NULL, NULL}, *out = NULL;
  const ds_tensor* inputs[2];
  run r = {{0}, 0, {0}, {0}, {0}, 1};
  void* data = NULL;
  int64_t dims[4];
  size_t rank = 0, i;
  int s;
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  check_ok(ds_tensor_create(DS_DTYPE_F32, x, 2, NULL, x_data, NULL, &batch[0]), "x");
  check_ok(ds_tensor_create(DS_DTYPE_F32, y, 2, NULL, target_data, NULL, &batch[1]), "y");
  inputs[0] = batch[0];
  inputs[1] = batch[1];
  for (s = 0; s < 3; ++s) check_ok(ds_train_batch(engine, inputs, 2, NULL, &r.losses[s]), "train");
  check_ok(ds_eval_batch(engine, inputs, 2, NULL, &r.evaluated), "evaluate");
  check_ok(ds_engine_read(engine, 0, "master", r.w, WIDE * IN), "read w");
  check_ok(ds_engine_read(engine, 1, "master", r.b, WIDE), "read b");
  if (count > 0) {
    check_ok(ds_infer(engine, inputs, 2, NULL, &out), "infer");
    check_ok(ds_tensor_info(out, NULL, dims, NULL, 4, &rank, NULL, &data), "info");
    for (i = 0; i < rank; ++i) r.count *= (size_t)dims[i];
    if (outputs[0] == OUT)
      check(rank == 2 && dims[0] == ROWS && dims[1] == WIDE, "the shape of output 1");
    memcpy(r.infer, data, r.count * sizeof(float));
    ds_tensor_destroy(out);
  }
  ds_tensor_destroy(batch[0]);
  ds_tensor_destroy(batch[1]);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  return r;
}

static void same_run(const run* a, const run* b, const char* what) {
  check(memcmp(a->losses, b->losses, sizeof a->losses) == 0 && a->evaluated == b->evaluated, what);
  check(memcmp(a->w, b->w, sizeof a->w) == 0 && memcmp(a->b, b->b, sizeof a->b) == 0, what);
}

static void holds(const run* r, const float* values, size_t count, const char* what) {
  check(r->count == count && memcmp(r->infer, values, count * sizeof(float)) == 0, what);
}

/* With the key "inferred", inference computes the losses of single targets, whatever the loss adds
 * up: their sum over the three targets is three times the loss of the evaluation. */
static void infer_losses(void) {
  static const char config[] =
      "{\"train_micro_batch_size_per_gpu\": 1, \"inferred\": \"token_losses\", \"run\": "
      "{\"sequence\": "
      "4}, \"model\": {\"family\": \"gpt\", \"vocab\": 8, \"layers\": 1, \"hidden\": 8, \"heads\": "
      "1}}";
  const int64_t dims[] = {4};
  int32_t tokens[] = {1, 2, 3, 4}, targets[] = {2, 3, -100, 5}, values[VALUES];
  ds_graph* graph = NULL;
  ds_engine* engine = NULL;
  ds_tensor *batch[2] = {NULL, NULL}, *out = NULL;
  const ds_tensor* inputs[2];
  void* data = NULL;
  const float* losses;
  int64_t shape[2];
  size_t rank = 0;
  double mean = 0;
  check_ok(ds_graph_from_config(config, 1, &graph), "graph");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  check_ok(ds_tensor_create(DS_DTYPE_I32, dims, 1, NULL, tokens, NULL, &batch[0]), "tokens");
  check_ok(ds_tensor_create(DS_DTYPE_I32, dims, 1, NULL, targets, NULL, &batch[1]), "targets");
  inputs[0] = batch[0];
  inputs[1] = batch[1];
  check_ok(ds_eval_batch(engine, inputs, 2, NULL, &mean), "evaluate");
  check_ok(ds_infer(engine, inputs, 2, NULL, &out), "infer");
  check_ok(ds_tensor_info(out, NULL, shape, NULL, 2, &rank, NULL, &data), "info");
  losses = data;
  check(rank == 1 && shape[0] == 4 && losses[2] == 0, "one loss for each row");
  mean -= ((double)losses[0] + losses[1] + losses[3]) / 3;
  check(mean < 1e-6 && mean > -1e-6, "the mean of the losses is the loss");
  ds_tensor_destroy(out);
  ds_tensor_destroy(batch[0]);
  ds_tensor_destroy(batch[1]);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  engine = NULL;
  graph = make_graph(values, NULL, 0);
  check_error(ds_engine_create(NULL, "{\"train_batch_size\": 3, \"inferred\": \"token_losses\"}",
                               graph, NULL, &engine),
              DS_ERROR_CONFIG, "inferred: \"token_losses\" needs a cross_entropy; graph 'outputs'");
  ds_graph_destroy(graph);
}

int main(void) {
  static const int x[] = {X, X}, target[] = {TARGET}, w[] = {W, X}, b[] = {B, B}, loss[] = {LOSS},
                   out[] = {OUT, OUT};
  const int64_t ids_dims[] = {-1}, scalar[] = {1};
  int32_t values[VALUES], ids = -1;
  float evaluated;
  ds_graph* graph;
  ds_engine* engine = NULL;
  run plain, r;
  int i;
  infer_losses();
  for (i = 0; i < ROWS * IN; ++i) x_data[i] = (float)(i % 5) / 4 - 0.5f;
  for (i = 0; i < ROWS * WIDE; ++i) target_data[i] = (float)(i % 3);
  plain = train(NULL, 0);
  r = train(x, 2);
  same_run(&plain, &r, "output 1 is an input");
  holds(&r, x_data, ROWS * IN, "x");
  r = train(target, 1);
  same_run(&plain, &r, "output 1 is the target");
  holds(&r, target_data, ROWS * WIDE, "target");
  r = train(w, 2);
  same_run(&plain, &r, "output 1 is a parameter");
  holds(&r, r.w, WIDE * IN, "w");
  r = train(b, 2);
  same_run(&plain, &r, "output 1 and 2 are one parameter");
  holds(&r, r.b, WIDE, "b");
  r = train(loss, 1);
  same_run(&plain, &r, "output 1 is the loss");
  evaluated = (float)r.evaluated;
  holds(&r, &evaluated, 1, "the loss");
  r = train(out, 2);
  same_run(&plain, &r, "one value is two outputs");
  check(r.count == ROWS * WIDE, "y");
  /* An integer as output 1 is refused when the engine is created, because ds_infer cannot return
   * it. */
  graph = make_graph(values, NULL, 0);
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, ids_dims, 1, &ids), "ids");
  check_ok(ds_graph_output(graph, "ids", ids), "output");
  check_error(ds_engine_create(NULL, "{\"train_batch_size\": 3}", graph, NULL, &engine),
              DS_ERROR_INVALID_ARGUMENT,
              "output 1 of graph 'outputs' must be of a floating type, got i32[n]");
  ds_graph_destroy(graph);
  graph = make_graph(values, out, 1);
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, ids_dims, 1, &ids), "ids");
  check_ok(ds_graph_output(graph, "ids", ids), "output");
  check_ok(ds_engine_create(NULL, "{\"train_batch_size\": 3}", graph, NULL, &engine),
           "output 2 is of any type");
  ds_engine_destroy(engine);
  engine = NULL;
  ds_graph_destroy(graph);
  /* The loss may be a parameter. */
  check_ok(ds_graph_create("itself", 1, &graph), "graph");
  check_ok(ds_graph_param(graph, "p", scalar, 0, "ones", 0, &values[0]), "p");
  check_ok(ds_graph_output(graph, "itself", values[0]), "output");
  check_ok(ds_engine_create(
               NULL,
               "{\"train_batch_size\": 1, \"gradient_clipping\": 0, \"optimizer\": {\"type\": "
               "\"SGD\", \"params\": {\"lr\": 0.25}}}",
               graph, NULL, &engine),
           "engine");
  {
    double first = 0;
    float p = 0;
    check_ok(ds_train_batch(engine, NULL, 0, NULL, &first), "train");
    check_ok(ds_engine_read(engine, 0, "master", &p, 1), "read");
    check(first == 1 && p == 0.75f, "a loss that is its parameter");
  }
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  return 0;
}
