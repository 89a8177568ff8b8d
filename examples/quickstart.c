/* The shortest training program: a small GPT on four fixed sentences. */
#include <ds.h>
#include <stdio.h>
#include <string.h>

static const char* config =
    "{\"train_micro_batch_size_per_gpu\": 4,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-3}},"
    " \"zero_optimization\": {\"stage\": 3}, \"run\": {\"sequence\": 32},"
    " \"model\": {\"family\": \"gpt\", \"layers\": 2, \"hidden\": 64, \"heads\": 4,"
    " \"vocab\": 256, \"positions\": 32}}";

int main(void) {
  const char* text =
      "To be, or not to be, is asked. Whether nobler is to suffer so. The slings, the arrows of "
      "fortune. Or take arms against troubles, all";
  const int64_t dims[] = {128};
  int32_t tokens[128], targets[128];
  double loss = 0;
  ds_graph* graph = NULL;
  ds_engine* engine = NULL;
  ds_tensor* inputs[2] = {NULL, NULL};
  for (int i = 0; i < 128; ++i) {
    tokens[i] = text[i % strlen(text)];
    targets[i] = i % 32 == 31 ? -100 : text[(i + 1) % strlen(text)];
  }
  ds_status status = ds_graph_from_config(config, 1, &graph);
  if (!status) status = ds_engine_create(NULL, config, graph, NULL, &engine);
  if (!status) status = ds_tensor_create(DS_DTYPE_I32, dims, 1, NULL, tokens, NULL, &inputs[0]);
  if (!status) status = ds_tensor_create(DS_DTYPE_I32, dims, 1, NULL, targets, NULL, &inputs[1]);
  for (int step = 0; step < 40 && !status; ++step) {
    status = ds_train_batch(engine, (const ds_tensor* const*)inputs, 2, NULL, &loss);
    if (!status && step % 10 == 9) printf("step %d loss %.4f\n", step + 1, loss);
  }
  if (status) fprintf(stderr, "%s: %s\n", ds_status_name(status), ds_last_error_message());
  ds_tensor_destroy(inputs[0]);
  ds_tensor_destroy(inputs[1]);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  return status || loss > 2.0;
}
