/* A host with forward and backward of its own (linear regression by hand) lets libds keep,
 * partition and update its parameters: ZeRO stage 3. Run: libds launch -n 2 example_delegate */
#include <ds.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 3, ROWS = 32 };

static void must(ds_status status) {
  if (status == DS_OK) return;
  fprintf(stderr, "delegate: %s: %s\n", ds_status_name(status), ds_last_error_message());
  exit(1);
}

static float* values(ds_engine* engine, int32_t param, ds_tensor** view) {
  void* data;
  must(ds_engine_param_view(engine, param, NULL, view));
  must(ds_tensor_info(*view, NULL, NULL, NULL, 0, NULL, NULL, &data));
  return data;
}

/* Mean squared error of w x + b on this rank's rows, and its gradients. */
static double forward_backward(const float* w, const float* b, int rank, float* dw, float* db) {
  double loss = 0;
  for (int i = 0; i < FEATURES; ++i) dw[i] = 0;
  *db = 0;
  for (int row = 0; row < ROWS; ++row) {
    float x[FEATURES], error = *b - 0.5f;
    for (int i = 0; i < FEATURES; ++i) {
      x[i] = (float)(((rank * ROWS + row) * (2 * i + 3)) % 17) / 8.0f - 1.0f;
      error += (w[i] - (float)(i + 1)) * x[i]; /* the truth: w = 1, 2, 3 and b = 0.5 */
    }
    loss += error * error / ROWS;
    for (int i = 0; i < FEATURES; ++i) dw[i] += 2 * error * x[i] / ROWS;
    *db += 2 * error / ROWS;
  }
  return loss;
}

int main(void) {
  const char* config =
      "{\"train_micro_batch_size_per_gpu\": 32, \"gradient_accumulation_steps\": 1,"
      " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.05}},"
      " \"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}}";
  const int64_t w_dims[] = {FEATURES}, b_dims[] = {1};
  float dw[FEATURES], db[1];
  double loss = 0;
  int32_t params[2];
  ds_comm* comm;
  ds_engine* engine;
  ds_tensor *w, *b, *w_grad, *b_grad;
  must(ds_comm_create("env", NULL, &comm));
  must(ds_engine_create(comm, config, NULL, NULL, &engine));
  must(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, w_dims, 1, &params[0]));
  must(ds_engine_param_add(engine, "b", DS_DTYPE_NONE, b_dims, 1, &params[1]));
  must(ds_engine_start(engine));
  must(ds_tensor_create(DS_DTYPE_F32, w_dims, 1, NULL, dw, NULL, &w_grad));
  must(ds_tensor_create(DS_DTYPE_F32, b_dims, 1, NULL, db, NULL, &b_grad));
  for (int step = 0; step < 300; ++step) {
    must(ds_gather_params(engine, params, 2, NULL));
    loss = forward_backward(values(engine, params[0], &w), values(engine, params[1], &b),
                            ds_comm_rank(comm), dw, db);
    ds_tensor_destroy(w);
    ds_tensor_destroy(b);
    must(ds_release_params(engine, params, 2, NULL));
    must(ds_grad_ready(engine, params[0], w_grad, NULL));
    must(ds_grad_ready(engine, params[1], b_grad, NULL));
    must(ds_backward(engine));
    must(ds_step(engine));
  }
  if (ds_comm_rank(comm) == 0) printf("%d ranks, loss %.6f\n", (int)ds_comm_size(comm), loss);
  ds_tensor_destroy(w_grad);
  ds_tensor_destroy(b_grad);
  ds_engine_destroy(engine);
  ds_comm_destroy(comm);
  return loss < 1e-3 ? 0 : 1;
}
