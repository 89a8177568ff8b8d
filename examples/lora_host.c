/* A host in the style of ggml: it has its own graph and keeps its weights in blocks of 4 bits,
 * which libds never sees. The factors of a low-rank adapter are the parameters. At ZeRO stage 2
 * they stay where they are, so the graph points at them once. Run: libds launch -n 2
 * example_lora_host */
#include <ds.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN = 64, OUT = 48, RANK = 4, ROWS = 16, BLOCK = 32 };

static const float scale = 2.0f; /* alpha / rank */

/* 32 weights of a row: value = size * (code - 8). */
typedef struct block {
  float size;
  uint8_t codes[BLOCK / 2];
} block;

/* The graph: loss = mean (W x + scale B A x - target)^2, with the base W of blocks. */
typedef struct graph {
  block base[OUT][IN / BLOCK];
  const float *a, *b; /* RANK x IN and OUT x RANK, in the engine's memory */
  float grad_a[RANK * IN], grad_b[OUT * RANK];
} graph;

static void must(ds_status status) {
  if (status == DS_OK) return;
  fprintf(stderr, "lora_host: %s: %s\n", ds_status_name(status), ds_last_error_message());
  exit(1);
}

/* Numbers between -1 and 1 that depend only on `seed`. */
static float number(uint32_t seed) {
  seed = (seed ^ 61u) ^ (seed >> 16);
  seed *= 9u;
  seed ^= seed >> 4;
  seed *= 0x27d4eb2du;
  seed ^= seed >> 15;
  return (float)(seed & 0xffffu) / 32767.5f - 1.0f;
}

static float base_weight(const graph* g, int row, int column) {
  const block* from = &g->base[row][column / BLOCK];
  int i = column % BLOCK;
  return from->size * (float)((from->codes[i / 2] >> (i % 2 * 4) & 15) - 8);
}

/* The change of W that the adapter has to learn, of rank 2. */
static float change(int row, int column) {
  float sum = 0;
  for (int r = 0; r < 2; ++r)
    sum += number((uint32_t)(1000 + 2 * row + r)) * number((uint32_t)(5000 + 2 * column + r));
  return 0.2f * sum;
}

/* Runs forward and backward on this rank's rows of one batch, and returns the loss. */
static double forward_backward(graph* g, int rank, int batch) {
  double loss = 0;
  for (int i = 0; i < RANK * IN; ++i) g->grad_a[i] = 0;
  for (int i = 0; i < OUT * RANK; ++i) g->grad_b[i] = 0;
  for (int row = 0; row < ROWS; ++row) {
    float x[IN], h[RANK], dh[RANK] = {0};
    for (int i = 0; i < IN; ++i)
      x[i] = number((uint32_t)(((batch * 8 + rank) * ROWS + row) * IN + i));
    for (int r = 0; r < RANK; ++r) {
      h[r] = 0;
      for (int i = 0; i < IN; ++i) h[r] += g->a[r * IN + i] * x[i];
    }
    for (int o = 0; o < OUT; ++o) {
      float y = 0, target = 0, dy;
      for (int i = 0; i < IN; ++i) {
        float w = base_weight(g, o, i);
        y += w * x[i];
        target += (w + change(o, i)) * x[i];
      }
      for (int r = 0; r < RANK; ++r) y += scale * g->b[o * RANK + r] * h[r];
      dy = 2 * (y - target) / (OUT * ROWS);
      loss += (y - target) * (y - target) / (OUT * ROWS);
      for (int r = 0; r < RANK; ++r) {
        g->grad_b[o * RANK + r] += scale * dy * h[r];
        dh[r] += scale * dy * g->b[o * RANK + r];
      }
    }
    for (int r = 0; r < RANK; ++r)
      for (int i = 0; i < IN; ++i) g->grad_a[r * IN + i] += dh[r] * x[i];
  }
  return loss;
}

/* Initial values: A is random, B is zero, so the model begins as its base. */
static ds_status initial(int32_t param, const char* name, int64_t first, float* data, size_t count,
                         void* user_data) {
  (void)name;
  (void)user_data;
  for (size_t i = 0; i < count; ++i)
    data[i] = param == 0 ? 0.1f * number(9000 + (uint32_t)first + (uint32_t)i) : 0;
  return DS_OK;
}

/* Returns the address of a parameter that is whole on every rank. It stays the same while the
 * engine lives, after every step. */
static const float* address(ds_engine* engine, int32_t param) {
  ds_tensor* view;
  void* data;
  must(ds_engine_param_view(engine, param, NULL, &view));
  must(ds_tensor_info(view, NULL, NULL, NULL, 0, NULL, NULL, &data));
  ds_tensor_destroy(view);
  return data;
}

int main(void) {
  const char* config =
      "{\"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": 1,"
      " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02, \"weight_decay\": 0}},"
      " \"zero_optimization\": {\"stage\": 2}}";
  const int64_t a_dims[] = {RANK, IN}, b_dims[] = {OUT, RANK};
  static graph g;
  double first = 0, loss = 0;
  int32_t params[2];
  ds_engine_options options;
  ds_comm* comm;
  ds_engine* engine;
  ds_tensor* grads[2];
  for (int o = 0; o < OUT; ++o) {
    for (int k = 0; k < IN / BLOCK; ++k) {
      g.base[o][k].size = 0.05f;
      for (int i = 0; i < BLOCK / 2; ++i)
        g.base[o][k].codes[i] = (uint8_t)(number((uint32_t)((o * 2 + k) * 16 + i)) * 127 + 128);
    }
  }
  must(ds_comm_create("env", NULL, &comm));
  must(ds_engine_options_init(&options, sizeof options));
  options.init = initial;
  must(ds_engine_create(comm, config, NULL, &options, &engine));
  must(ds_engine_param_add(engine, "lora_a", DS_DTYPE_NONE, a_dims, 2, &params[0]));
  must(ds_engine_param_add(engine, "lora_b", DS_DTYPE_NONE, b_dims, 2, &params[1]));
  must(ds_engine_start(engine));
  g.a = address(engine, params[0]);
  g.b = address(engine, params[1]);
  must(ds_tensor_create(DS_DTYPE_F32, a_dims, 2, NULL, g.grad_a, NULL, &grads[0]));
  must(ds_tensor_create(DS_DTYPE_F32, b_dims, 2, NULL, g.grad_b, NULL, &grads[1]));
  for (int step = 0; step < 150; ++step) {
    loss = forward_backward(&g, ds_comm_rank(comm), step);
    if (step == 0) first = loss;
    must(ds_grads_ready(engine, params, 2, (const ds_tensor* const*)grads, NULL));
    must(ds_backward(engine));
    must(ds_step(engine));
  }
  if (ds_comm_rank(comm) == 0)
    printf("%d ranks, loss %.3f to %.3f\n", (int)ds_comm_size(comm), first, loss);
  ds_tensor_destroy(grads[0]);
  ds_tensor_destroy(grads[1]);
  ds_engine_destroy(engine);
  ds_comm_destroy(comm);
  return loss < 1e-3 * first ? 0 : 1;
}
