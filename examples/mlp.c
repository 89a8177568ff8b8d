/* A two-layer perceptron defined, differentiated and trained from plain C: it learns XOR. */
#include <ds.h>
#include <stdio.h>
#include <stdlib.h>

static void must(ds_status status) {
  if (status == DS_OK) return;
  fprintf(stderr, "mlp: %s: %s\n", ds_status_name(status), ds_last_error_message());
  exit(1);
}

static int32_t param(ds_graph* graph, const char* name, int64_t rows, int64_t columns,
                     const char* init) {
  const int64_t dims[] = {rows, columns};
  int32_t out;
  must(ds_graph_param(graph, name, dims, columns ? 2 : 1, init, 0.7, &out));
  return out;
}

static int32_t linear(ds_graph* graph, int32_t x, int32_t weight, int32_t bias) {
  const int32_t inputs[] = {x, weight, bias};
  int32_t out;
  must(ds_graph_op(graph, "linear", inputs, 3, NULL, &out));
  return out;
}

/* Inputs x [n,2] and y [n,1]; outputs: the loss and the prediction. */
static ds_graph* define(int32_t* weight, int32_t* loss) {
  const int64_t x_dims[] = {-1, 2}, y_dims[] = {-1, 1};
  ds_graph* graph;
  int32_t x, y, bias, hidden, out_weight, pair[2];
  must(ds_graph_create("xor", 4, &graph));
  must(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &x));
  must(ds_graph_input(graph, "y", DS_DTYPE_F32, y_dims, 2, &y));
  *weight = param(graph, "fc1.weight", 16, 2, "normal");
  bias = param(graph, "fc1.bias", 16, 0, "zeros");
  hidden = linear(graph, x, *weight, bias);
  must(ds_graph_op(graph, "gelu", &hidden, 1, NULL, &hidden));
  out_weight = param(graph, "fc2.weight", 1, 16, "normal");
  bias = param(graph, "fc2.bias", 1, 0, "zeros");
  pair[0] = linear(graph, hidden, out_weight, bias);
  pair[1] = y;
  must(ds_graph_op(graph, "mse", pair, 2, NULL, loss));
  must(ds_graph_output(graph, "loss", *loss));
  must(ds_graph_output(graph, "prediction", pair[0]));
  return graph;
}

int main(void) {
  const char* config =
      "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.02}}}";
  const int64_t x_dims[] = {4, 2}, y_dims[] = {4, 1};
  float x[] = {0, 0, 0, 1, 1, 0, 1, 1}, y[] = {0, 1, 1, 0};
  int32_t weight, loss_value, grad;
  double loss = 1;
  void* guess;
  ds_tensor *inputs[2], *prediction;
  ds_engine* engine;
  ds_graph* graph = define(&weight, &loss_value);
  must(ds_engine_create(NULL, config, graph, NULL, &engine));
  must(ds_tensor_create(DS_DTYPE_F32, x_dims, 2, NULL, x, NULL, &inputs[0]));
  must(ds_tensor_create(DS_DTYPE_F32, y_dims, 2, NULL, y, NULL, &inputs[1]));
  for (int step = 0; step < 300; ++step)
    must(ds_train_batch(engine, (const ds_tensor* const*)inputs, 2, NULL, &loss));
  must(ds_infer(engine, (const ds_tensor* const*)inputs, 2, NULL, &prediction));
  must(ds_tensor_info(prediction, NULL, NULL, NULL, 0, NULL, NULL, &guess));
  for (int i = 0; i < 4; ++i)
    printf("%g xor %g = %.3f\n", x[2 * i], x[2 * i + 1], ((float*)guess)[i]);
  printf("loss %.6f\n", loss);

  /* An engine computes gradients by itself. This call adds a gradient to the graph by the same
   * rules. */
  must(ds_graph_grad(graph, loss_value, &weight, 1, &grad));
  printf("the gradient of fc1.weight is value %d of the graph\n", (int)grad);
  ds_tensor_destroy(prediction);
  ds_tensor_destroy(inputs[0]);
  ds_tensor_destroy(inputs[1]);
  ds_graph_destroy(graph);
  ds_engine_destroy(engine);
  return loss < 0.01 && grad > 0 ? 0 : 1;
}
