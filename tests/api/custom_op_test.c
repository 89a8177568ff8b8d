/* Tests custom ops of the host application: their bits compared with built-in ops, their gradients
 * compared with finite differences, errors and lifetimes. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

enum {
  IN = 4,
  MID = 8,
  OUT = 2,
  ROWS = MLP_ROWS,
  MICROS = 2,
  STEPS = 4,
  MOST_RANKS = 3,
  WEIGHTS = 2 * MID * IN + OUT * MID
};

/* A record of the calls of the callbacks. */
typedef struct record {
  int forwards, backwards, destroyed;
  /* The number of the call that fails. 0 means that none fails. */
  int fail_forward, fail_backward;
  int other_thread;
  pthread_t thread;
  ds_dtype dtype;
  int64_t rows;
} record;

static void begin_record(record* r) {
  memset(r, 0, sizeof *r);
  r->thread = pthread_self();
}

static void destroyed(void* user_data) { ++((record*)user_data)->destroyed; }

static void* info(const ds_tensor* tensor, ds_dtype* dtype, int64_t* count) {
  int64_t dims[4], strides[4];
  size_t rank = 0, d;
  const char* device = NULL;
  void* data = NULL;
  check_ok(ds_tensor_info(tensor, dtype, dims, strides, 4, &rank, &device, &data),
           "what a callback is given");
  check(strcmp(device, "cpu") == 0, "on the host");
  *count = 1;
  for (d = rank; d-- > 0; *count *= dims[d]) check(strides[d] == *count, "compact");
  return data;
}

static float get(ds_dtype dtype, const void* data, int64_t i) {
  uint32_t bits;
  float out;
  if (dtype == DS_DTYPE_F32) return ((const float*)data)[i];
  bits = (uint32_t)((const uint16_t*)data)[i] << 16;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static void put(ds_dtype dtype, void* data, int64_t i, float value) {
  uint32_t bits;
  if (dtype == DS_DTYPE_F32) {
    ((float*)data)[i] = value;
    return;
  }
  memcpy(&bits, &value, sizeof bits);
  ((uint16_t*)data)[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Computes out = a b, rounded once like by `mul`. */
static void multiply(const ds_tensor* a, const ds_tensor* b, ds_tensor* out) {
  ds_dtype dtype = DS_DTYPE_NONE, other = DS_DTYPE_NONE;
  int64_t count, i;
  const void *left = info(a, &dtype, &count), *right = info(b, &other, &count);
  void* to = info(out, &other, &count);
  check(dtype == other, "one element type");
  for (i = 0; i < count; ++i) put(dtype, to, i, get(dtype, left, i) * get(dtype, right, i));
}

static ds_status mul_forward(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                             void* user_data) {
  record* r = user_data;
  int64_t dims[2];
  if (++r->forwards == r->fail_forward) return DS_ERROR_IO;
  r->other_thread += !pthread_equal(r->thread, pthread_self());
  check_ok(ds_tensor_info(inputs[0], &r->dtype, dims, NULL, 2, NULL, NULL, NULL), "input");
  r->rows = dims[0];
  multiply(inputs[0], inputs[1], outputs[0]);
  return DS_OK;
}

static ds_status mul_backward(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                              const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                              void* user_data) {
  record* r = user_data;
  if (++r->backwards == r->fail_backward) return DS_ERROR_INVALID_ARGUMENT;
  r->other_thread += !pthread_equal(r->thread, pthread_self());
  check(outputs[0] != NULL, "results are there");
  multiply(output_grads[0], inputs[1], input_grads[0]);
  multiply(output_grads[0], inputs[0], input_grads[1]);
  return DS_OK;
}

static const ds_dtype one_like_input[] = {DS_DTYPE_NONE};
static const size_t one_matrix[] = {2};
static const int64_t rows_of_mid[] = {-1, MID};

static ds_custom_op mul_op(record* r) {
  ds_custom_op op;
  memset(&op, 0, sizeof op);
  op.struct_size = sizeof op;
  op.forward = mul_forward;
  op.backward = mul_backward;
  op.user_data = r;
  op.destroy = destroyed;
  op.outputs_count = 1;
  op.dtypes = one_like_input;
  op.dims_counts = one_matrix;
  op.dims = rows_of_mid;
  return op;
}

static int32_t linear(ds_graph* graph, int32_t x, const char* name, int64_t outputs,
                      int64_t inputs) {
  int64_t dims[2];
  int32_t pair[2], out = -1;
  dims[0] = outputs;
  dims[1] = inputs;
  pair[0] = x;
  check_ok(ds_graph_param(graph, name, dims, 2, "normal", 0.5, &pair[1]), name);
  check_ok(ds_graph_op(graph, "linear", pair, 2, NULL, &out), name);
  return out;
}

/* Returns a graph that multiplies two linear layers and applies a third one. The product is `mul`,
 * or a custom op if r is not NULL. */
static ds_graph* product_graph(record* r) {
  const int64_t x_dims[] = {-1, IN}, y_dims[] = {-1, OUT};
  ds_graph* graph = NULL;
  int32_t x, y, pair[2], product = -1, loss = -1;
  check_ok(ds_graph_create("product", ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &x), "x");
  check_ok(ds_graph_input(graph, "y", DS_DTYPE_F32, y_dims, 2, &y), "y");
  pair[0] = linear(graph, x, "left", MID, IN);
  pair[1] = linear(graph, x, "right", MID, IN);
  if (r) {
    ds_custom_op op = mul_op(r);
    check_ok(ds_graph_custom_op(graph, "own.mul", &op, pair, 2, &product), "own.mul");
  } else {
    check_ok(ds_graph_op(graph, "mul", pair, 2, NULL, &product), "mul");
  }
  pair[0] = linear(graph, product, "last", OUT, MID);
  pair[1] = y;
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &loss), "mse");
  check_ok(ds_graph_output(graph, "loss", loss), "loss");
  check_ok(ds_graph_output(graph, "prediction", pair[0]), "prediction");
  return graph;
}

static void configure(char* config, size_t size, int stage, int ranks, const char* more) {
  snprintf(config, size,
           "{\"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d, "
           "\"gradient_accumulation_steps\": %d, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
           "{\"lr\": 0.01}}, \"gradient_clipping\": 1.0, \"zero_optimization\": {\"stage\": %d, "
           "\"stage3_param_persistence_threshold\": 0}, \"run\": {\"seed\": 7}%s}",
           ROWS * MICROS * ranks, ROWS, MICROS, stage, more);
}

/* A batch converted to another element type, for an engine that computes in that type. */
typedef struct typed_batch {
  mlp_batch batch;
  uint16_t x[4 * ROWS * IN], y[4 * ROWS * OUT];
} typed_batch;

static const ds_tensor* const* make_typed(typed_batch* b, ds_dtype dtype, int rank, int first,
                                          int micros) {
  const int64_t x_dims[] = {(int64_t)micros * ROWS, IN}, y_dims[] = {(int64_t)micros * ROWS, OUT};
  int i;
  make_batch(&b->batch, rank, first, micros);
  if (dtype == DS_DTYPE_F32) return batch_inputs(&b->batch);
  for (i = 0; i < micros * ROWS * IN; ++i) put(dtype, b->x, i, b->batch.x[i]);
  for (i = 0; i < micros * ROWS * OUT; ++i) put(dtype, b->y, i, b->batch.y[i]);
  free_batch(&b->batch);
  check_ok(ds_tensor_create(dtype, x_dims, 2, NULL, b->x, NULL, &b->batch.tensors[0]), "x");
  check_ok(ds_tensor_create(dtype, y_dims, 2, NULL, b->y, NULL, &b->batch.tensors[1]), "y");
  return batch_inputs(&b->batch);
}

typedef struct outcome {
  int stage, ranks, by_callback;
  /* Additional members of the configuration. */
  const char* more;
  ds_dtype dtype;
  double losses[STEPS + 1];
  float weights[WEIGHTS], predictions[ROWS * OUT];
} outcome;

static void read_weights(ds_engine* engine, float* to) {
  check_ok(ds_engine_read(engine, 0, "master", to, MID * IN), "left");
  check_ok(ds_engine_read(engine, 1, "master", to + MID * IN, MID * IN), "right");
  check_ok(ds_engine_read(engine, 2, "master", to + 2 * MID * IN, OUT * MID), "last");
}

static void train(int rank, ds_comm* comm, void* data) {
  outcome* all = data;
  outcome mine = *all;
  record r;
  char config[1024];
  ds_graph* graph;
  ds_engine* engine = NULL;
  ds_tensor* predicted = NULL;
  ds_engine_options options;
  typed_batch b;
  const ds_tensor* const* inputs;
  void* values = NULL;
  int s;
  begin_record(&r);
  graph = product_graph(mine.by_callback ? &r : NULL);
  configure(config, sizeof config, mine.stage, mine.ranks, mine.more);
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.threads = 2;
  check_ok(ds_engine_create(comm, config, graph, &options, &engine), "engine");
  ds_graph_destroy(graph);
  for (s = 0; s < STEPS; ++s) {
    inputs = make_typed(&b, mine.dtype, rank, s, MICROS);
    check_ok(ds_train_batch(engine, inputs, 2, NULL, &mine.losses[s]), "step");
    free_batch(&b.batch);
  }
  inputs = make_typed(&b, mine.dtype, rank, 9, 1);
  check_ok(ds_eval_batch(engine, inputs, 2, NULL, &mine.losses[STEPS]), "evaluation");
  check_ok(ds_infer(engine, inputs, 2, NULL, &predicted), "inference");
  free_batch(&b.batch);
  check_ok(ds_tensor_info(predicted, NULL, NULL, NULL, 0, NULL, NULL, &values), "predictions");
  memcpy(mine.predictions, values, sizeof mine.predictions);
  ds_tensor_destroy(predicted);
  read_weights(engine, mine.weights);
  if (mine.by_callback) {
    check(r.forwards == STEPS * MICROS + 2 && r.backwards == STEPS * MICROS,
          "one call for each micro-step");
    check(r.dtype == mine.dtype && r.rows == ROWS, "the compute type, and the rows that there are");
    check(r.other_thread == 0, "on the thread of the call");
    check(r.destroyed == 0, "user_data lives as long as the engine");
  }
  ds_engine_destroy(engine);
  check(r.destroyed == mine.by_callback, "and ends with it");
  if (rank == 0) *all = mine;
}

static outcome run(int stage, int ranks, int by_callback, const char* more, ds_dtype dtype) {
  outcome out;
  char name[64];
  static int count = 0;
  memset(&out, 0, sizeof out);
  out.stage = stage;
  out.ranks = ranks;
  out.by_callback = by_callback;
  out.more = more;
  out.dtype = dtype;
  snprintf(name, sizeof name, "custom_op_%d", ++count);
  run_ranks(name, ranks, train, &out);
  return out;
}

static void same_bits(const outcome* a, const outcome* b, const char* named) {
  check(memcmp(a->losses, b->losses, sizeof a->losses) == 0, named);
  check(memcmp(a->weights, b->weights, sizeof a->weights) == 0, named);
  check(memcmp(a->predictions, b->predictions, sizeof a->predictions) == 0, named);
}

/* Compares bits at every stage, on one and three ranks, with accumulation, in both compute types
 * and with recomputation. */
static void bits_of_the_built_in(void) {
  const char* bf16 = ", \"bf16\": {\"enabled\": true}";
  const char* recompute = ", \"recompute\": \"cheap\"";
  int ranks, stage;
  for (ranks = 1; ranks <= MOST_RANKS; ranks += 2) {
    outcome f32 = run(0, ranks, 0, "", DS_DTYPE_F32), half = run(0, ranks, 0, bf16, DS_DTYPE_BF16);
    check(f32.losses[STEPS - 1] < f32.losses[0], "it learns");
    check(memcmp(f32.weights, half.weights, sizeof f32.weights) != 0, "bf16 has other bits");
    for (stage = 0; stage <= 3; ++stage) {
      outcome own = run(stage, ranks, 1, "", DS_DTYPE_F32),
              own_half = run(stage, ranks, 1, bf16, DS_DTYPE_BF16);
      same_bits(&own, &f32, "the bits of mul in f32");
      same_bits(&own_half, &half, "the bits of mul in bf16");
    }
  }
  {
    outcome plain = run(3, 1, 0, "", DS_DTYPE_F32), again = run(3, 1, 1, recompute, DS_DTYPE_F32);
    outcome tiers = run(3, 1, 1, ", \"emulate_tiers\": true", DS_DTYPE_F32);
    same_bits(&again, &plain, "recomputed");
    same_bits(&tiers, &plain, "with a memory of its own for the device");
  }
}

/* Trains three steps with so many micro-steps each that their program repeats one of them. */
static void long_step(record* r, float* weights) {
  enum { MANY = 64 };
  static float x[MANY * ROWS * IN], y[MANY * ROWS * OUT];
  const int64_t x_dims[] = {MANY * ROWS, IN}, y_dims[] = {MANY * ROWS, OUT};
  ds_graph* graph = product_graph(r);
  ds_engine* engine = NULL;
  ds_tensor* made[2];
  char config[256], *text = NULL;
  double loss = 0;
  int i;
  for (i = 0; i < MANY * ROWS * IN; ++i) x[i] = (float)(i * 7 % 23) / 11.0f - 1;
  for (i = 0; i < MANY * ROWS * OUT; ++i) y[i] = (float)(i * 5 % 19) / 9.0f - 1;
  snprintf(config, sizeof config,
           "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d, "
           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}",
           ROWS, MANY);
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  ds_graph_destroy(graph);
  check_ok(ds_engine_plan_print(engine, &text), "plan");
  check(strstr(text, "repeat") != NULL, "a micro-step is repeated");
  ds_text_destroy(text);
  check_ok(ds_tensor_create(DS_DTYPE_F32, x_dims, 2, NULL, x, NULL, &made[0]), "x");
  check_ok(ds_tensor_create(DS_DTYPE_F32, y_dims, 2, NULL, y, NULL, &made[1]), "y");
  for (i = 0; i < 3; ++i)
    check_ok(ds_train_batch(engine, (const ds_tensor* const*)made, 2, NULL, &loss), "step");
  read_weights(engine, weights);
  check(!r || (r->forwards == 3 * MANY && r->backwards == 3 * MANY),
        "one call for each micro-step");
  ds_tensor_destroy(made[0]);
  ds_tensor_destroy(made[1]);
  ds_engine_destroy(engine);
}

static void long_accumulation(void) {
  float built_in[WEIGHTS], own[WEIGHTS];
  record r;
  begin_record(&r);
  long_step(NULL, built_in);
  long_step(&r, own);
  check(memcmp(built_in, own, sizeof own) == 0, "the bits of mul");
}

/* Computes y = tanh(a w + ids) and the scalar s = mean(y^2). */
static ds_status mixed_forward(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                               void* user_data) {
  ds_dtype dtype;
  int64_t count, rows, columns, i;
  const float *a = info(inputs[0], &dtype, &count), *w = info(inputs[1], &dtype, &columns);
  const int32_t* ids = info(inputs[2], &dtype, &rows);
  float *y = info(outputs[0], &dtype, &count), *s = info(outputs[1], &dtype, &i);
  double sum = 0;
  check(i == 1 && dtype == DS_DTYPE_F32 && count == rows * columns, "shapes");
  for (i = 0; i < count; ++i) {
    y[i] = tanhf(a[i] * w[i % columns] + (float)ids[i / columns]);
    sum += (double)y[i] * y[i];
  }
  *s = (float)(sum / (double)count);
  ++((record*)user_data)->forwards;
  return DS_OK;
}

/* Computes da = dz w and dw, the sum of dz a over rows, where dz = (1 - y^2) (dy + 2 ds y / count).
 */
static ds_status mixed_backward(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                                const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                                void* user_data) {
  record* r = user_data;
  ds_dtype dtype;
  int64_t count, columns, i;
  const float *a = info(inputs[0], &dtype, &count), *w = info(inputs[1], &dtype, &columns);
  const float *y = info(outputs[0], &dtype, &count),
              *dy = output_grads[0] ? info(output_grads[0], &dtype, &count) : NULL;
  const float* ds = output_grads[1] ? info(output_grads[1], &dtype, &i) : NULL;
  float* da = input_grads[0] ? info(input_grads[0], &dtype, &count) : NULL;
  float* dw = input_grads[1] ? info(input_grads[1], &dtype, &columns) : NULL;
  count = 0;
  info(outputs[0], &dtype, &count);
  check(input_grads[2] == NULL, "integers have no gradient");
  for (i = 0; dw && i < columns; ++i) dw[i] = 0;
  for (i = 0; i < count; ++i) {
    float dz = (1 - y[i] * y[i]) * ((dy ? dy[i] : 0) + (ds ? 2 * *ds * y[i] / (float)count : 0));
    if (da) da[i] = dz * w[i % columns];
    if (dw) dw[i % columns] += dz * a[i];
  }
  r->backwards += 1;
  /* Records which gradients are missing. */
  r->fail_forward = !da;
  r->fail_backward = (dy ? 0 : 1) + (ds ? 0 : 2);
  return DS_OK;
}

/* Returns a graph with the mixed op. If `through` is set, the op's input comes from a layer
 * instead of the graph's input. If `both` is set, the scalar is part of the loss. */
static ds_graph* mixed_graph(record* r, int through, int both) {
  const ds_dtype dtypes[] = {DS_DTYPE_NONE, DS_DTYPE_F32};
  const size_t dims_counts[] = {2, 0};
  const int64_t x_dims[] = {-1, IN}, w_dims[] = {IN}, ids_dims[] = {-1};
  ds_custom_op op = mul_op(r);
  ds_graph* graph = NULL;
  int32_t in[3], x, own = -1, pair[2];
  op.forward = mixed_forward;
  op.backward = mixed_backward;
  op.outputs_count = 2;
  op.dtypes = dtypes;
  op.dims_counts = dims_counts;
  op.dims = x_dims;
  check_ok(ds_graph_create("mixed", ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &x), "x");
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, ids_dims, 1, &in[2]), "ids");
  check_ok(ds_graph_param(graph, "w", w_dims, 1, "normal", 0.5, &in[1]), "w");
  in[0] = through ? linear(graph, x, "layer", IN, IN) : x;
  check_ok(ds_graph_custom_op(graph, "mixed", &op, in, 3, &own), "mixed");
  pair[0] = own;
  pair[1] = x;
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &pair[0]), "mse");
  pair[1] = own + 1;
  if (both) check_ok(ds_graph_op(graph, "add", pair, 2, NULL, &pair[0]), "sum of losses");
  check_ok(ds_graph_output(graph, "loss", pair[0]), "loss");
  return graph;
}

static void finite_differences(int through, int both) {
  const int64_t x_dims[] = {ROWS, IN}, ids_dims[] = {ROWS};
  const float step = 1.0f / 256;
  float x[ROWS * IN], grad[2][IN * IN], values[IN * IN];
  int32_t ids[ROWS], param;
  ds_tensor* made[2];
  const ds_tensor* const* inputs = (const ds_tensor* const*)made;
  record r;
  ds_graph* graph;
  ds_engine* engine = NULL;
  double loss = 0, above = 0, below = 0;
  int i;
  begin_record(&r);
  graph = mixed_graph(&r, through, both);
  /* The learning rate is so small that the parameters do not change. */
  check_ok(
      ds_engine_create(
          NULL,
          "{\"train_batch_size\": 6, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"SGD\", "
          "\"params\": {\"lr\": 1e-30}}}",
          graph, NULL, &engine),
      "engine");
  ds_graph_destroy(graph);
  for (i = 0; i < ROWS * IN; ++i) x[i] = (float)(i * 7 % 11) / 7.0f - 0.7f;
  /* Any numbers are valid: only the callback reads them. */
  for (i = 0; i < ROWS; ++i) ids[i] = i % 3 - 1;
  check_ok(ds_tensor_create(DS_DTYPE_F32, x_dims, 2, NULL, x, NULL, &made[0]), "x");
  check_ok(ds_tensor_create(DS_DTYPE_I32, ids_dims, 1, NULL, ids, NULL, &made[1]), "ids");
  check_ok(ds_forward(engine, inputs, 2, NULL, &loss), "forward");
  check_ok(ds_backward(engine), "backward");
  for (param = 0; param <= through; ++param)
    check_ok(ds_engine_read(engine, param, "grad", grad[param], param == 0 ? IN : IN * IN),
             "gradient");
  check_ok(ds_step(engine), "step");
  for (param = 0; param <= through; ++param) {
    size_t count = param == 0 ? IN : IN * IN, e;
    check_ok(ds_engine_read(engine, param, "master", values, count), "values");
    for (e = 0; e < count; ++e) {
      const float value = values[e];
      values[e] = value + step;
      check_ok(ds_engine_write(engine, param, "master", values, count), "above");
      check_ok(ds_eval_batch(engine, inputs, 2, NULL, &above), "loss above");
      values[e] = value - step;
      check_ok(ds_engine_write(engine, param, "master", values, count), "below");
      check_ok(ds_eval_batch(engine, inputs, 2, NULL, &below), "loss below");
      values[e] = value;
      check_ok(ds_engine_write(engine, param, "master", values, count), "as it was");
      /* The bound is the rounding of a loss below 1 divided by the step, plus the error term of a
       * third derivative below 8. */
      check(fabs((above - below) / (2 * step) - grad[param][e]) < 6e-8 / step + 8 * step * step / 6,
            "a gradient");
    }
  }
  check(r.fail_forward == !through, "no gradient by an input of the graph");
  check(r.fail_backward == (both ? 0 : 2),
        "no gradient of a result that the loss does not depend on");
  ds_tensor_destroy(made[0]);
  ds_tensor_destroy(made[1]);
  ds_engine_destroy(engine);
  check(r.destroyed == 1, "destroyed once");
}

/* Rank 1's callback fails in the second step, and rank 0 gets an error as well.
 * Proves {graph.custom_error}. */
static void fails_on_one_rank(int rank, ds_comm* comm, void* data) {
  record r;
  char config[1024];
  ds_graph* graph;
  ds_engine* engine = NULL;
  mlp_batch batch;
  double loss = 0;
  (void)data;
  begin_record(&r);
  if (rank == 1) r.fail_forward = MICROS + 1;
  graph = product_graph(&r);
  configure(config, sizeof config, 2, 2, "");
  check_ok(ds_engine_create(comm, config, graph, NULL, &engine), "engine");
  ds_graph_destroy(graph);
  make_batch(&batch, rank, 0, MICROS);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "the first step");
  if (rank == 1) {
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), DS_ERROR_USER,
                "forward of custom operation 'own.mul' returned -7");
  } else {
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), DS_ERROR_COMM,
                "own.mul");
  }
  check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), DS_ERROR_POISONED,
              "own.mul");
  free_batch(&batch);
  ds_engine_destroy(engine);
  check(r.destroyed == 1, "destroyed once");
}

static void fails_alone(void) {
  record r;
  char config[1024];
  ds_graph* graph;
  ds_engine* engine = NULL;
  mlp_batch batch;
  double loss = 0;
  begin_record(&r);
  r.fail_backward = 2;
  graph = product_graph(&r);
  configure(config, sizeof config, 0, 1, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  ds_graph_destroy(graph);
  make_batch(&batch, 0, 0, MICROS);
  check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), DS_ERROR_USER,
              "backward of custom operation 'own.mul' returned -1");
  check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), DS_ERROR_POISONED,
              "own.mul");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Rank 1 has data for one step and rank 0 for two: rank 1's callbacks are not called in the step
 * for which it has no data. */
static void joins(int rank, ds_comm* comm, void* data) {
  record r;
  char config[1024];
  ds_graph* graph;
  ds_engine* engine = NULL;
  mlp_batch batch;
  int s;
  (void)data;
  begin_record(&r);
  graph = product_graph(&r);
  configure(config, sizeof config, 2, 2, "");
  check_ok(ds_engine_create(comm, config, graph, NULL, &engine), "engine");
  ds_graph_destroy(graph);
  make_batch(&batch, rank, 0, MICROS);
  for (s = 0; s < 2 - rank; ++s)
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "step");
  check_ok(ds_engine_join(engine, NULL), "join");
  check(r.forwards == MICROS * (2 - rank) && r.backwards == r.forwards,
        "calls for own samples only");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Proves {graph.custom_text} and {graph.custom_device}. */
static void plans_and_texts(void) {
  record r;
  char config[1024], *text = NULL;
  ds_graph *graph, *parsed = NULL;
  ds_plan* plan = NULL;
  ds_engine* engine = NULL;
  int32_t loss = -1, left = -1, grad = -1;
  begin_record(&r);
  graph = product_graph(&r);
  check_ok(ds_graph_print(graph, &text), "print");
  check(strstr(text, "= custom %") &&
            strstr(text, "{name=\"own.mul\" outputs=\"T[n,8]\"} -> f32[n,8]"),
        "its name");
  check_error(ds_graph_parse(text, &parsed), DS_ERROR_INVALID_ARGUMENT,
              "operation 'own.mul' is a callback of the program that wrote this text");
  ds_text_destroy(text);
  configure(config, sizeof config, 3, 4, "");
  check_ok(ds_plan_create(config, graph, 2, 4, &plan), "a plan for rank 2 of 4");
  check_ok(ds_plan_print(plan, &text), "print");
  check(strstr(text, " custom ") && strstr(text, " custom_dx "), "both in the step");
  ds_text_destroy(text);
  configure(config, sizeof config, 3, 1, ", \"device\": \"separate\"");
  check_error(ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_UNSUPPORTED,
              "custom operation 'own.mul' of value %own.mul.2 needs device cpu, got 'separate'");
  check_ok(ds_graph_find(graph, "loss", &loss), "loss");
  check_ok(ds_graph_find(graph, "left", &left), "left");
  check_ok(ds_graph_grad(graph, loss, &left, 1, &grad), "gradients");
  check_ok(ds_graph_print(graph, &text), "print");
  check(grad >= 0 && strstr(text, "custom_dx"), "differentiated");
  ds_text_destroy(text);
  check(r.destroyed == 0, "the graph lives");
  ds_graph_destroy(graph);
  check(r.destroyed == 0, "the plan lives");
  ds_plan_destroy(plan);
  check(r.destroyed == 1, "destroyed once");
  check(r.forwards == 0 && r.backwards == 0, "nothing has run");
}

/* Proves {graph.custom_backward}. */
static void without_backward(void) {
  const int64_t x_dims[] = {-1, IN};
  record r;
  ds_custom_op op;
  ds_graph* graph = NULL;
  ds_engine* engine = NULL;
  mlp_batch batch;
  int32_t pair[2], x, product = -1, loss = -1;
  char config[1024];
  double value = 0;
  int after;
  /* After a layer, a gradient must pass through the op; before a layer, none is needed. */
  for (after = 0; after < 2; ++after) {
    const int64_t dims[] = {-1, IN};
    begin_record(&r);
    op = mul_op(&r);
    op.backward = NULL;
    op.dims = dims;
    check_ok(ds_graph_create("forward", ROWS, &graph), "graph");
    check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &x), "x");
    pair[0] = pair[1] = after ? linear(graph, x, "layer", IN, IN) : x;
    check_ok(ds_graph_custom_op(graph, "square", &op, pair, 2, &product), "square");
    pair[0] = after ? product : linear(graph, product, "layer", IN, IN);
    pair[1] = x;
    check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &loss), "mse");
    check_ok(ds_graph_output(graph, "loss", loss), "loss");
    configure(config, sizeof config, 0, 1, "");
    if (after) {
      check_error(
          ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_INVALID_ARGUMENT,
          "custom operation 'square' of value %square.1 has no backward, and a gradient needs it");
    } else {
      check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "no gradient passes");
      make_batch(&batch, 0, 0, MICROS);
      check_ok(ds_train_batch(engine, (const ds_tensor* const*)batch.tensors, 1, NULL, &value),
               "step");
      free_batch(&batch);
      ds_engine_destroy(engine);
      engine = NULL;
    }
    ds_graph_destroy(graph);
    check(r.destroyed == 1, "destroyed once, whatever became of it");
  }
}

/* Proves {graph.custom_refused}. */
static void refusals(void) {
  const int64_t x_dims[] = {-1, MID}, bad_dims[] = {-1, 0}, huge[] = {1 << 21, 1 << 21};
  const ds_dtype unknown[] = {(ds_dtype)99}, integers[] = {DS_DTYPE_I32};
  const size_t deep[] = {5};
  record r;
  ds_custom_op op;
  ds_graph* graph = NULL;
  char *before = NULL, *behind = NULL;
  int32_t pair[2], ids, out = -7;
  begin_record(&r);
  check_ok(ds_graph_create("g", ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &pair[0]), "x");
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, x_dims, 1, &ids), "ids");
  pair[1] = pair[0];
  check_ok(ds_graph_print(graph, &before), "print");
#define REFUSED(change, words)                                                                 \
  op = mul_op(&r);                                                                             \
  change;                                                                                      \
  check_error(ds_graph_custom_op(graph, "own", &op, pair, 2, &out), DS_ERROR_INVALID_ARGUMENT, \
              words)
  REFUSED(op.struct_size = 0, "op.struct_size must be at least 8, got 0");
  REFUSED(op.forward = NULL, "op.forward must not be NULL");
  REFUSED(op.outputs_count = 0, "op.outputs_count must be 1 to 64, got 0");
  REFUSED(op.outputs_count = 65, "op.outputs_count must be 1 to 64, got 65");
  REFUSED(op.dtypes = NULL, "op.dtypes must not be NULL");
  REFUSED(op.dims_counts = NULL, "op.dims_counts must not be NULL");
  REFUSED(op.dims = NULL, "op.dims must not be NULL with dims_counts[0] 2");
  REFUSED(op.dims = bad_dims, "op.dims[1] must be 1 or more, or -1 for n, got 0");
  REFUSED(op.dims_counts = deep, "op.dims_counts[0] must be at most 4, got 5");
  REFUSED(op.dtypes = unknown, "op.dtypes[0] must be one of ds_dtype, got 99");
  REFUSED(op.dims = huge, "must have at most 1099511627776 elements");
#undef REFUSED
  op = mul_op(&r);
  check_error(ds_graph_custom_op(graph, NULL, &op, pair, 2, &out), DS_ERROR_INVALID_ARGUMENT,
              "name must not be NULL");
  check_error(ds_graph_custom_op(graph, "a b", &op, pair, 2, &out), DS_ERROR_INVALID_ARGUMENT,
              "operation name must not contain blanks");
  check_error(ds_graph_custom_op(graph, "own", NULL, pair, 2, &out), DS_ERROR_INVALID_ARGUMENT,
              "op must not be NULL");
  check_error(
      ds_graph_custom_op(graph, "own", &op, &ids, 1, &out), DS_ERROR_INVALID_ARGUMENT,
      "custom operation 'own': output 0 is of the compute type, which needs a floating operand");
  pair[1] = 12;
  check_error(ds_graph_custom_op(graph, "own", &op, pair, 2, &out), DS_ERROR_INVALID_ARGUMENT,
              "own: inputs[1] must be a value from 0 to 1, got 12");
  pair[1] = pair[0];
  check_error(ds_graph_op(graph, "custom", pair, 2, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "op 'custom' is for ds_graph_custom_op");
  check(out == -7, "numbers are written on success only");
  check_ok(ds_graph_print(graph, &behind), "print");
  check(strcmp(before, behind) == 0, "the graph is as it was");
  ds_text_destroy(before);
  ds_text_destroy(behind);
  check(r.destroyed == 0, "user_data of a refused operation stays the caller's");
  op.dtypes = integers;
  op.destroy = NULL;
  check_ok(ds_graph_custom_op(graph, "own", &op, &ids, 1, &out), "integers from integers");
  ds_graph_destroy(graph);
  check(r.destroyed == 0, "nothing to call");
}

int main(void) {
  bits_of_the_built_in();
  long_accumulation();
  finite_differences(0, 0);
  finite_differences(0, 1);
  finite_differences(1, 0);
  finite_differences(1, 1);
  run_ranks("custom_op_fails", 2, fails_on_one_rank, NULL);
  fails_alone();
  run_ranks("custom_op_joins", 2, joins, NULL);
  plans_and_texts();
  without_backward();
  refusals();
  return 0;
}
