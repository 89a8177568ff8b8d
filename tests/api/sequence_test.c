/* Tests random sequences of valid and invalid calls on handles of every kind. Whatever a host does
 * with valid pointers, no call reports a defect of libds, a refused call neither poisons an engine
 * nor changes its outputs, and every refusal, unless memory is lacking, has a message of one line.
 *
 * Proves {outputs.after_error} and {ownership.order}.
 *
 * The test draws 200 sequences, or 10,000 with DS_LONG. Each depends only on its seed and on the
 * checkpoints in the folder: DS_SEQUENCE=7 repeats the sequence of seed 7 and prints its calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"
#include "support.h"

enum { POOL = 3, CALLS = 60, NUMBERS = 256 };

static struct {
  ds_comm* comms[POOL];
  ds_tensor* tensors[2 * POOL];
  ds_graph* graphs[POOL];
  ds_plan* plans[POOL];
  ds_engine* engines[POOL];
  ds_work* works[POOL];
  ds_stream* streams[POOL];
} pool;
static uint64_t seed, state;
static int shows;
static char folder[512];
static float numbers[NUMBERS], others[NUMBERS];

static uint32_t below(uint32_t count) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t x = state;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((x ^ (x >> 31)) % count);
}

static int one_in(uint32_t count) { return below(count) == 0; }

static void fail(const char* call, const char* reason) {
  fprintf(stderr, "seed %llu: %s: %s: %s\n", (unsigned long long)seed, call, reason,
          ds_last_error_message());
  exit(1);
}

/* Checks that every call may return this status, and its message. Returns whether it is DS_OK. */
static int took(ds_status status, const char* call) {
  const char *message = ds_last_error_message(), *key = NULL, *tensor = NULL;
  int32_t rank = 0;
  if (shows)
    printf("%s: %s%s%s\n", call, ds_status_name(status), status ? ": " : "", status ? message : "");
  if (status == DS_OK) return 1;
  if (status == DS_ERROR_INTERNAL || status == DS_ERROR_POISONED || status == DS_ERROR_IO ||
      status == DS_ERROR_CORRUPT)
    fail(call, ds_status_name(status));
  if (message[0] == '\0') fail(call, "no message");
  if (status != DS_ERROR_OUT_OF_MEMORY && strchr(message, '\n'))
    fail(call, "a message of several lines");
  ds_last_error_details(&key, &tensor, &rank);
  if (!key || !tensor || rank < -1) fail(call, "details");
  return 0;
}

static void* any(void** handles, int count) {
  return one_in(12) ? NULL : handles[below((uint32_t)count)];
}
#define ANY(kind, type) ((type*)any((void**)pool.kind, (int)(sizeof pool.kind / sizeof *pool.kind)))

/* Puts a new handle into the pool. Destroys the handle whose place it takes. */
#define KEEP(kind, made, call)                                                \
  do {                                                                        \
    uint32_t place = below((uint32_t)(sizeof pool.kind / sizeof *pool.kind)); \
    if (made) {                                                               \
      call##_destroy(pool.kind[place]);                                       \
      pool.kind[place] = made;                                                \
    }                                                                         \
  } while (0)

/* Returns NULL in most cases, because nearly every stream belongs to another engine. */
static ds_stream* an_order(void) { return one_in(3) ? ANY(streams, ds_stream) : NULL; }

static void expect_made(int ok, const void* made, const char* call) {
  if (ok != (made != NULL)) fail(call, ok ? "no handle" : "a handle in spite of an error");
}

static int32_t a_number(void) {
  static const int32_t odd[] = {-1, 0, 1, 2, 3, 4, 7, 99, 2147483647, -2147483647 - 1};
  return odd[below(sizeof odd / sizeof *odd)];
}

static double a_real(void) {
  static const double odd[] = {0, 1, 0.5, -1, 1e-9, 1e300, 0.9999};
  uint32_t which = below(10);
  return which < 7    ? odd[which]
         : which == 7 ? (double)NAN
         : which == 8 ? (double)INFINITY
                      : -(double)INFINITY;
}

static const char* a_text(void) {
  static const char* texts[] = {"",
                                "lr",
                                "weight_decay",
                                "param_groups[1].lr",
                                "w",
                                "fc1.weight",
                                "{",
                                "{}",
                                "[1]",
                                "{\"lr\": 0.1}",
                                "master",
                                "exp_avg",
                                "param",
                                "grad",
                                "x",
                                "{\"keep\": 2}",
                                "relu",
                                "linear",
                                "mse",
                                "zeros",
                                "normal",
                                "\xff\xfe",
                                "device_bytes",
                                "step",
                                "{\"betas\": [0.5, 0.6], \"eps\": 1}",
                                "{\"n\": 1e999}",
                                "null",
                                "\n"};
  return one_in(30) ? NULL : texts[below(sizeof texts / sizeof *texts)];
}

static size_t some_dims(int64_t* dims) {
  static const int64_t odd[] = {-1, 0, 1, 2, 4, 6, 8, -2, 4611686018427387904, 9223372036854775807};
  size_t count = below(4), i;
  for (i = 0; i < count; ++i) dims[i] = odd[below(one_in(4) ? sizeof odd / sizeof *odd : 7)];
  return count;
}

static ds_dtype a_dtype(void) { return (ds_dtype)below(one_in(8) ? 12 : 8); }

/* Numbers of created and destroyed comms over callbacks. With a single rank they have nothing to
 * transfer. */
static int made_comms, forgotten_comms;
static ds_status nothing_moves(const void* const* ins, const size_t* in_sizes, void* const* outs,
                               const size_t* out_sizes, void* user_data) {
  (void)ins, (void)in_sizes, (void)outs, (void)out_sizes, (void)user_data;
  fail("a comm of one rank", "a callback");
  return DS_ERROR_USER;
}
static void forget(void* user_data) {
  (void)user_data;
  if (++forgotten_comms > made_comms) fail("ds_comm_destroy", "more comms than were made");
}

static void with_comm(void) {
  ds_comm *comm = ANY(comms, ds_comm), *made = NULL;
  ds_comm_options options;
  char* text = NULL;
  size_t count = below(16);
  int ok;
  switch (below(9)) {
    case 0:
      ds_comm_options_init(&options, sizeof options);
      if (one_in(4)) options.rank = a_number();
      if (one_in(4)) options.size = a_number();
      /* With other ranks, the call would wait for them. */
      if (options.size > 1) options.size = 1;
      if (one_in(3)) {
        ds_comm_callbacks callbacks = {sizeof callbacks, NULL, nothing_moves, NULL, NULL, NULL,
                                       forget,           NULL};
        if (one_in(5)) callbacks.all_to_all = NULL;
        if (one_in(5)) callbacks.struct_size = below((uint32_t)sizeof callbacks);
        ok = took(ds_comm_create_from_callbacks(one_in(9) ? NULL : &callbacks,
                                                one_in(3) ? NULL : &options, &made),
                  "ds_comm_create_from_callbacks");
        made_comms += ok;
      } else {
        ok = took(ds_comm_create(one_in(5) ? a_text() : "self", one_in(3) ? NULL : &options, &made),
                  "ds_comm_create");
      }
      expect_made(ok, made, "a comm");
      KEEP(comms, made, ds_comm);
      break;
    case 1:
      took(ds_comm_all_reduce(comm, numbers, count, a_dtype(), others), "ds_comm_all_reduce");
      break;
    case 2:
      took(ds_comm_all_gather(comm, numbers, count, others), "ds_comm_all_gather");
      break;
    case 3:
      took(ds_comm_reduce_scatter(comm, numbers, count, a_dtype(), others),
           "ds_comm_reduce_scatter");
      break;
    case 4:
      took(ds_comm_broadcast(comm, one_in(9) ? NULL : numbers, count, a_number()),
           "ds_comm_broadcast");
      break;
    case 5:
      ok = took(ds_comm_split(comm, a_number(), a_number(), &made), "ds_comm_split");
      if (!ok && made) fail("ds_comm_split", "a handle in spite of an error");
      KEEP(comms, made, ds_comm);
      break;
    case 6:
      ok = took(ds_comm_flight_record(comm, (ds_format)below(3), &text), "ds_comm_flight_record");
      expect_made(ok, text, "ds_comm_flight_record");
      ds_text_destroy(text);
      break;
    case 7:
      took(ds_comm_send(comm, numbers, count, a_number()), "ds_comm_send");
      break;
    default:
      took(ds_comm_barrier(comm), "ds_comm_barrier");
  }
}

static void with_call(void) {
  ds_comm_call call;
  ds_work* made = NULL;
  const void* ins[2] = {numbers, numbers + 64};
  void* outs[2] = {others, others + 64};
  size_t counts[2], blocks[2];
  int32_t done = -5;
  int start = one_in(2), ok;
  counts[0] = below(16);
  counts[1] = below(16);
  blocks[0] = below(16);
  blocks[1] = 0;
  ds_comm_call_init(&call, sizeof call);
  call.op = (ds_comm_op)below(one_in(8) ? 12 : 9);
  call.dtype = a_dtype();
  call.reduce = (ds_reduce_op)below(one_in(8) ? 6 : 4);
  call.root = one_in(4) ? a_number() : 0;
  call.ins = one_in(8) ? NULL : ins;
  call.outs = one_in(8) ? NULL : outs;
  call.counts = one_in(8) ? NULL : counts;
  call.buffers_count = below(3);
  if (one_in(4)) {
    call.blocks = blocks;
    call.blocks_count = below(3);
    if (one_in(2)) call.out_blocks = blocks;
  }
  if (one_in(20)) call.struct_size = below(200);
  if (call.struct_size > sizeof call) call.struct_size = sizeof call;
  ok = took(ds_comm_submit(ANY(comms, ds_comm), one_in(20) ? NULL : &call, start ? &made : NULL),
            "ds_comm_submit");
  if (start) expect_made(ok, made, "ds_comm_submit");
  KEEP(works, made, ds_work);
  if (one_in(2)) took(ds_work_wait(ANY(works, ds_work)), "ds_work_wait");
  if (!took(ds_work_test(ANY(works, ds_work), &done), "ds_work_test") && done != -5)
    fail("ds_work_test", "an output in spite of an error");
}

/* Creates a tensor over memory around the middle of `room`, with strides of any sign and with
 * gaps. */
static ds_status lend(ds_tensor** made) {
  static double room[256];
  int64_t dims[4], strides[4];
  size_t count = below(5), i;
  for (i = 0; i < count; ++i) {
    dims[i] = (int64_t)below(5);
    strides[i] = (int64_t)below(7) - 3;
  }
  return ds_tensor_create(a_dtype(), dims, count, one_in(3) ? NULL : strides, room + 128,
                          one_in(9) ? an_order() : NULL, made);
}

static void with_tensor(void) {
  int64_t dims[8], strides[8];
  size_t count = some_dims(dims), rank = 9;
  ds_tensor *tensor = ANY(tensors, ds_tensor), *made = NULL;
  struct DLManagedTensor* shared = NULL;
  ds_stream* stream = NULL;
  const char* device = NULL;
  ds_dtype dtype = DS_DTYPE_NONE;
  void* data = NULL;
  int ok;
  switch (below(7)) {
    case 0:
      ok = took(ds_tensor_create(a_dtype(), one_in(20) ? NULL : dims, count, NULL, NULL, an_order(),
                                 &made),
                "ds_tensor_create");
      expect_made(ok, made, "ds_tensor_create");
      KEEP(tensors, made, ds_tensor);
      break;
    case 1:
      ok = took(lend(&made), "ds_tensor_create over memory");
      expect_made(ok, made, "ds_tensor_create");
      KEEP(tensors, made, ds_tensor);
      break;
    case 2:
      took(ds_tensor_info(tensor, &dtype, dims, strides, 8, &rank, &device, &data),
           "ds_tensor_info");
      break;
    case 3:
      ok = took(ds_stream_create(ANY(engines, ds_engine), &stream), "ds_stream_create");
      expect_made(ok, stream, "ds_stream_create");
      KEEP(streams, stream, ds_stream);
      break;
    case 4:
      took(ds_stream_synchronize(ANY(streams, ds_stream)), "ds_stream_synchronize");
      break;
    case 5:
      ok = took(ds_tensor_to_dlpack(tensor, &shared, NULL), "ds_tensor_to_dlpack");
      expect_made(ok, shared, "ds_tensor_to_dlpack");
      if (!shared) break;
      ok = took(ds_tensor_from_dlpack(shared, NULL, ANY(streams, ds_stream), &made),
                "ds_tensor_from_dlpack");
      expect_made(ok, made, "ds_tensor_from_dlpack");
      /* After a refusal, the DLPack tensor still belongs to the caller. */
      if (!ok) shared->deleter(shared);
      KEEP(tensors, made, ds_tensor);
      break;
    default:
      took(ds_tensor_copy(tensor, ANY(tensors, ds_tensor), an_order()), "ds_tensor_copy");
  }
}

/* Sets a tensor to 0, for a custom op whose results and gradients are 0. */
static void clear(ds_tensor* tensor) {
  int64_t dims[4], count = 1;
  size_t rank = 0, d;
  ds_dtype dtype = DS_DTYPE_NONE;
  void* data = NULL;
  if (!tensor || ds_tensor_info(tensor, &dtype, dims, NULL, 4, &rank, NULL, &data) != DS_OK) return;
  for (d = 0; d < rank; ++d) count *= dims[d];
  memset(data, 0,
         (size_t)count * (dtype == DS_DTYPE_U8                              ? 1
                          : dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 ? 2
                          : dtype == DS_DTYPE_F64 || dtype == DS_DTYPE_I64  ? 8
                                                                            : 4));
}

static ds_status zero_forward(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                              void* user_data) {
  (void)inputs, (void)user_data;
  clear(outputs[0]);
  return DS_OK;
}

static ds_status zero_backward(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                               const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                               void* user_data) {
  int32_t i;
  (void)inputs, (void)outputs, (void)output_grads;
  for (i = 0; i < *(const int32_t*)user_data; ++i) clear(input_grads[i]);
  return DS_OK;
}

static int32_t kept_user_data;

static void end_user_data(void* user_data) {
  --kept_user_data;
  free(user_data);
}

static void custom_op(ds_graph* graph, const int32_t* operands, const int64_t* dims,
                      size_t dims_count) {
  const ds_dtype dtype = one_in(2) ? DS_DTYPE_NONE : a_dtype();
  int32_t *count = malloc(sizeof *count), value = -5;
  ds_custom_op op;
  memset(&op, 0, sizeof op);
  *count = (int32_t)below(4);
  op.struct_size = sizeof op;
  op.forward = one_in(20) ? NULL : zero_forward;
  op.backward = one_in(4) ? NULL : zero_backward;
  op.user_data = count;
  op.destroy = end_user_data;
  op.outputs_count = one_in(20) ? below(3) : 1;
  op.dtypes = &dtype;
  op.dims_counts = &dims_count;
  op.dims = dims;
  /* Only the first output has a type and dimensions, so an op has at most one output. */
  if (op.outputs_count > 1) op.outputs_count = 0;
  if (took(ds_graph_custom_op(graph, a_text(), &op, operands, (size_t)*count, &value),
           "ds_graph_custom_op")) {
    ++kept_user_data;
  } else {
    free(count);
    if (value != -5) fail("ds_graph_custom_op", "an output in spite of an error");
  }
}

static void with_graph(void) {
  static const char* ops[] = {"relu", "gelu",       "linear",  "mse",    "add",
                              "mul",  "layer_norm", "nothing", "softmax"};
  int64_t dims[8];
  size_t count = some_dims(dims), rank = 0;
  int32_t value = -5, operands[3], grads[2] = {-5, -5};
  ds_graph *graph = ANY(graphs, ds_graph), *made = NULL;
  char *text = NULL, *again = NULL;
  ds_dtype dtype = DS_DTYPE_NONE;
  int ok, i;
  for (i = 0; i < 3; ++i) operands[i] = one_in(6) ? a_number() : (int32_t)below(8);
  switch (below(10)) {
    case 0:
      made = one_in(2) ? mlp_graph() : NULL;
      if (!made) {
        ok = took(ds_graph_create(a_text(), a_number(), &made), "ds_graph_create");
        expect_made(ok, made, "ds_graph_create");
      }
      KEEP(graphs, made, ds_graph);
      break;
    case 1:
      ok = took(ds_graph_input(graph, a_text(), a_dtype(), dims, count, &value), "ds_graph_input");
      if (!ok && value != -5) fail("ds_graph_input", "an output in spite of an error");
      break;
    case 2:
      took(ds_graph_param(graph, a_text(), dims, count, a_text(), a_real(), &value),
           "ds_graph_param");
      break;
    case 3:
    case 4:
      took(ds_graph_op(graph, ops[below(sizeof ops / sizeof *ops)], operands, below(4),
                       one_in(2) ? NULL : a_text(), &value),
           "ds_graph_op");
      break;
    case 5:
      took(ds_graph_output(graph, a_text(), operands[0]), "ds_graph_output");
      took(ds_graph_find(graph, a_text(), &value), "ds_graph_find");
      break;
    case 6:
      took(ds_graph_value_info(graph, operands[0], &dtype, dims, 8, &rank), "ds_graph_value_info");
      break;
    case 7:
      took(ds_graph_grad(graph, operands[0], operands + 1, below(3), grads), "ds_graph_grad");
      break;
    case 8:
      custom_op(graph, operands, dims, count);
      break;
    /* A printed graph that can be parsed must print the same text again. */
    default:
      if (!took(ds_graph_print(graph, &text), "ds_graph_print")) break;
      ok = took(ds_graph_parse(text, &made), "ds_graph_parse");
      if (ok && took(ds_graph_print(made, &again), "ds_graph_print") && strcmp(text, again) != 0)
        fail("ds_graph_parse", "another text");
      ds_text_destroy(text);
      ds_text_destroy(again);
      KEEP(graphs, made, ds_graph);
  }
}

static void a_config(char* config, size_t size) {
  static const char* optimizers[] = {"AdamW", "Adam", "SGD", "Adafactor"};
  static const char* groups[] = {
      "", ", \"param_groups\": [{\"params\": \"*bias\", \"weight_decay\": 0}]",
      ", \"param_groups\": [{\"params\": \"*\", \"lr\": 0.5}]",
      ", \"param_groups\": [{\"params\": \"none\"}]"};
  snprintf(
      config, size,
      "{\"train_micro_batch_size_per_gpu\": 6, \"gradient_accumulation_steps\": %u, \"optimizer\": "
      "{\"type\": \"%s\", \"params\": {\"lr\": 0.01}%s}, \"zero_optimization\": {\"stage\": %u}, "
      "\"bf16\": {\"enabled\": %s}, \"device\": \"%s\", \"run\": {\"threads\": 1}}",
      1 + below(2), optimizers[below(one_in(4) ? 4 : 3)], groups[below(one_in(3) ? 4 : 2)],
      below(one_in(9) ? 5 : 4), one_in(3) ? "true" : "false", one_in(3) ? "separate" : "cpu");
}

static void make_engine(void) {
  char config[1024];
  ds_engine* made = NULL;
  ds_engine_options options;
  ds_graph *own = one_in(2) ? mlp_graph() : NULL, *graph = own         ? own
                                                           : one_in(2) ? ANY(graphs, ds_graph)
                                                                       : NULL;
  int ok;
  a_config(config, sizeof config);
  ds_engine_options_init(&options, sizeof options);
  options.threads = one_in(9) ? a_number() : 1;
  if (options.threads > 4) options.threads = 4;
  ok = took(ds_engine_create(one_in(2) ? NULL : ANY(comms, ds_comm), one_in(20) ? a_text() : config,
                             graph, one_in(3) ? NULL : &options, &made),
            "ds_engine_create");
  expect_made(ok, made, "ds_engine_create");
  KEEP(engines, made, ds_engine);
  ds_graph_destroy(own);
}

static void with_plan(void) {
  char config[1024], *text = NULL;
  ds_plan *made = NULL, *plan = ANY(plans, ds_plan);
  const ds_plan* one[1];
  int ok;
  one[0] = plan;
  a_config(config, sizeof config);
  switch (below(4)) {
    case 0:
      ok = took(ds_plan_create(config, ANY(graphs, ds_graph), (int32_t)below(3),
                               one_in(5) ? a_number() % 64 : 3, &made),
                "ds_plan_create");
      expect_made(ok, made, "ds_plan_create");
      KEEP(plans, made, ds_plan);
      break;
    case 1:
      took(ds_plan_report(plan, (ds_format)below(3), &text), "ds_plan_report");
      break;
    case 2:
      took(ds_plan_print(plan, &text), "ds_plan_print");
      break;
    default:
      took(ds_plan_picture(one, below(2), &text), "ds_plan_picture");
  }
  ds_text_destroy(text);
}

static void with_steps(void) {
  ds_engine* engine = ANY(engines, ds_engine);
  const ds_tensor* inputs[2];
  mlp_batch batch;
  ds_tensor* out = NULL;
  double loss = -5;
  ds_step_result last;
  char* text = NULL;
  size_t count = one_in(9) ? below(3) : 2;
  int i, ok;
  make_batch(&batch, 0, 0, 1 + (int)below(2));
  for (i = 0; i < 2; ++i) inputs[i] = one_in(9) ? ANY(tensors, ds_tensor) : batch.tensors[i];
  switch (below(9)) {
    case 0:
    case 1:
      ok = took(ds_train_batch(engine, inputs, count, an_order(), &loss), "ds_train_batch");
      if (!ok && loss != -5) fail("ds_train_batch", "a loss in spite of an error");
      break;
    case 2:
      took(ds_forward(engine, inputs, count, an_order(), one_in(3) ? NULL : &loss), "ds_forward");
      break;
    case 3:
      took(ds_backward(engine), "ds_backward");
      break;
    case 4:
      took(ds_step(engine), "ds_step");
      break;
    case 5:
      took(ds_eval_batch(engine, inputs, count, an_order(), &loss), "ds_eval_batch");
      break;
    case 6:
      ok = took(ds_infer(engine, inputs, count, an_order(), &out), "ds_infer");
      expect_made(ok, out, "ds_infer");
      KEEP(tensors, out, ds_tensor);
      break;
    case 7:
      took(ds_engine_last_step(engine, &last, below(sizeof last + 1)), "ds_engine_last_step");
      break;
    default:
      took(ds_engine_skip_reason(engine, &text), "ds_engine_skip_reason");
  }
  ds_text_destroy(text);
  free_batch(&batch);
}

static const char* a_state(void) {
  static const char* names[] = {"master", "exp_avg", "exp_avg_sq",
                                "param",  "grad",    "momentum_buffer"};
  return one_in(6) ? a_text() : names[below(sizeof names / sizeof *names)];
}

static const char* a_group(void) {
  static const char* options[] = {"{}", "{\"lr\": 0.1}", "{\"weight_decay\": 0, \"lr\": 0}",
                                  "{\"betas\": [0.5, 0.6]}"};
  return one_in(4) ? a_text() : options[below(sizeof options / sizeof *options)];
}

static const char* a_number_name(void) {
  static const char* names[] = {
      "lr", "beta1", "weight_decay", "param_groups[1].lr", "param_groups[0].eps", "momentum"};
  return one_in(4) ? a_text() : names[below(sizeof names / sizeof *names)];
}

/* Returns, in most cases, the number of elements of a parameter. */
static size_t a_count(const ds_engine* engine, int32_t param) {
  int64_t dims[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  size_t count = 1, rank = 0, i;
  if (one_in(6) || ds_engine_param_info(engine, param, NULL, dims, 8, &rank) != DS_OK)
    return below(40);
  for (i = 0; i < rank; ++i) count *= (size_t)dims[i];
  return count <= NUMBERS ? count : 0;
}

static void with_states(void) {
  ds_engine* engine = ANY(engines, ds_engine);
  int32_t param = one_in(5) ? a_number() : (int32_t)below(4), many[3], group = -5;
  const char* name = NULL;
  double number = -5;
  int64_t first = 0, elements = 0, dims[8];
  size_t count = a_count(engine, param), rank = 0;
  int i, ok;
  for (i = 0; i < 3; ++i) many[i] = one_in(20) ? a_number() : (int32_t)below(3);
  switch (below(11)) {
    case 0:
      took(ds_engine_read(engine, param, a_state(), others, count), "ds_engine_read");
      break;
    case 1:
      took(ds_engine_write(engine, param, a_state(), numbers, count), "ds_engine_write");
      break;
    case 2:
      took(ds_engine_read_local(engine, param, a_state(), others, count), "ds_engine_read_local");
      break;
    case 3:
      took(ds_engine_write_local(engine, param, a_state(), numbers, count),
           "ds_engine_write_local");
      break;
    case 4:
      took(ds_engine_refresh(engine), "ds_engine_refresh");
      break;
    case 5:
      took(ds_engine_freeze(engine, many, below(3), one_in(5) ? a_number() : (int32_t)below(2)),
           "ds_engine_freeze");
      break;
    case 6:
      ok = took(ds_engine_group_add(engine, many, below(3), a_group(), &group),
                "ds_engine_group_add");
      if (!ok && group != -5) fail("ds_engine_group_add", "a number in spite of an error");
      break;
    case 7:
      took(ds_engine_set(engine, a_number_name(), a_real()), "ds_engine_set");
      break;
    case 8:
      ok = took(ds_engine_get(engine, a_number_name(), &number), "ds_engine_get");
      if (!ok && number != -5) fail("ds_engine_get", "a number in spite of an error");
      break;
    case 9:
      took(ds_engine_param_info(engine, param, &name, dims, below(8), &rank),
           "ds_engine_param_info");
      ds_engine_state_name(engine, a_number());
      break;
    default:
      took(ds_engine_local_range(engine, param, &first, &elements), "ds_engine_local_range");
  }
}

static void with_delegate(void) {
  ds_engine* engine = ANY(engines, ds_engine);
  int64_t dims[1] = {4};
  int32_t param = -5, many[3];
  ds_tensor* view = NULL;
  int i, ok;
  for (i = 0; i < 3; ++i) many[i] = one_in(20) ? a_number() : (int32_t)below(3);
  switch (below(7)) {
    case 0:
      took(ds_engine_param_add(engine, a_text(), DS_DTYPE_NONE, dims, 1, &param),
           "ds_engine_param_add");
      if (one_in(4)) took(ds_engine_start(engine), "ds_engine_start");
      break;
    case 1:
      took(ds_gather_params(engine, many, below(3), an_order()), "ds_gather_params");
      break;
    case 2:
      took(ds_release_params(engine, many, below(3), an_order()), "ds_release_params");
      break;
    case 3:
      ok = took(ds_engine_param_view(engine, many[0], an_order(), &view), "ds_engine_param_view");
      expect_made(ok, view, "ds_engine_param_view");
      ds_tensor_destroy(view);
      break;
    case 4:
      took(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, numbers, NULL, &view), "ds_tensor_create");
      took(ds_grad_ready(engine, many[0], one_in(9) ? ANY(tensors, ds_tensor) : view, an_order()),
           "ds_grad_ready");
      ds_tensor_destroy(view);
      break;
    case 5:
      ok = took(ds_engine_grad_view(engine, many[0], an_order(), &view), "ds_engine_grad_view");
      expect_made(ok, view, "ds_engine_grad_view");
      if (ok) took(ds_grad_ready(engine, many[0], view, an_order()), "ds_grad_ready of the view");
      ds_tensor_destroy(view);
      if (one_in(4)) took(ds_engine_evaluate(engine, (int32_t)below(3)), "ds_engine_evaluate");
      if (one_in(4)) took(ds_engine_drop_step(engine), "ds_engine_drop_step");
      break;
    default:
      took(one_in(2) ? ds_backward(engine) : ds_step(engine), "the end of a step");
  }
}

static void with_files(void) {
  ds_engine* engine = ANY(engines, ds_engine);
  char path[600], *text = NULL;
  snprintf(path, sizeof path, "%s/%u", folder, below(2));
  switch (below(4)) {
    case 0:
      took(ds_checkpoint_save(engine, path, one_in(2) ? NULL : a_text()), "ds_checkpoint_save");
      break;
    case 1:
      took(ds_checkpoint_load(engine, path, NULL, one_in(2) ? NULL : &text), "ds_checkpoint_load");
      break;
    case 2:
      took(ds_config_merge(a_text(), a_text(), &text), "ds_config_merge");
      break;
    default:
      took(ds_engine_plan_report(engine, (ds_format)below(3), &text), "ds_engine_plan_report");
  }
  ds_text_destroy(text);
}

static void end_some(int all) {
  static const int kinds = 7;
  int n, i;
  for (n = 0; n < (all ? 200 : 1); ++n) {
    int kind = (int)below((uint32_t)kinds), place = (int)below(POOL);
    if (kind == 0) ds_comm_destroy(pool.comms[place]), pool.comms[place] = NULL;
    if (kind == 1) ds_tensor_destroy(pool.tensors[place]), pool.tensors[place] = NULL;
    if (kind == 2) ds_graph_destroy(pool.graphs[place]), pool.graphs[place] = NULL;
    if (kind == 3) ds_plan_destroy(pool.plans[place]), pool.plans[place] = NULL;
    if (kind == 4) ds_engine_destroy(pool.engines[place]), pool.engines[place] = NULL;
    if (kind == 5) ds_work_destroy(pool.works[place]), pool.works[place] = NULL;
    if (kind == 6) ds_stream_destroy(pool.streams[place]), pool.streams[place] = NULL;
  }
  for (i = 0; all && i < POOL; ++i) {
    ds_work_destroy(pool.works[i]);
    if (i % 2) ds_stream_destroy(pool.streams[i]);
    ds_engine_destroy(pool.engines[i]);
    ds_plan_destroy(pool.plans[i]);
    ds_graph_destroy(pool.graphs[i]);
    ds_tensor_destroy(pool.tensors[i]);
    ds_tensor_destroy(pool.tensors[POOL + i]);
    if (i % 2 == 0) ds_stream_destroy(pool.streams[i]);
    ds_comm_destroy(pool.comms[i]);
  }
  if (all) memset(&pool, 0, sizeof pool);
}

/* Creates a comm, a graph, a plan, and two engines, one in native mode and one in delegate mode. */
static void begin(void) {
  const int64_t dims[1] = {4};
  char config[1024], *text = NULL;
  int32_t param, i;
  took(ds_comm_create("self", NULL, &pool.comms[0]), "ds_comm_create");
  pool.graphs[0] = mlp_graph();
  mlp_config(config, sizeof config, (int)below(4), 1 + (int)below(2), 1);
  took(ds_plan_create(config, pool.graphs[0], 0, 1, &pool.plans[0]), "ds_plan_create");
  took(ds_engine_create(one_in(2) ? pool.comms[0] : NULL, config, pool.graphs[0], NULL,
                        &pool.engines[0]),
       "ds_engine_create");
  took(ds_config_merge(config, one_in(2) ? "{\"device\": \"separate\"}" : "{}", &text),
       "ds_config_merge");
  took(ds_engine_create(NULL, text, NULL, NULL, &pool.engines[1]), "ds_engine_create");
  ds_text_destroy(text);
  for (i = 0; i < 3; ++i) {
    char name[16];
    snprintf(name, sizeof name, "p%d", (int)i);
    took(ds_engine_param_add(pool.engines[1], name, DS_DTYPE_NONE, dims, 1, &param),
         "ds_engine_param_add");
  }
  if (!one_in(8)) took(ds_engine_start(pool.engines[1]), "ds_engine_start");
}

static void sequence(void) {
  int n;
  state = seed * 1000003;
  for (n = 0; n < NUMBERS; ++n) numbers[n] = (float)(n % 7) - 3;
  begin();
  for (n = 0; n < CALLS; ++n) {
    uint32_t which = below(20);
    if (which == 0)
      end_some(0);
    else if (which <= 2)
      with_comm();
    else if (which <= 4)
      with_call();
    else if (which == 5)
      with_tensor();
    else if (which <= 7)
      with_graph();
    else if (which == 8)
      with_plan();
    else if (which <= 10)
      make_engine();
    else if (which <= 13)
      with_steps();
    else if (which <= 16)
      with_states();
    else if (which <= 18)
      with_delegate();
    else
      with_files();
  }
  end_some(1);
  if (kept_user_data != 0) fail("ds_graph_custom_op", "user_data that nobody has ended");
  if (forgotten_comms != made_comms)
    fail("ds_comm_create_from_callbacks", "a comm that nobody has ended");
}

static void no_log(ds_log_level level, const char* line, void* user_data) {
  (void)level;
  (void)line;
  (void)user_data;
}

int main(int argc, char** argv) {
  const char* one = getenv("DS_SEQUENCE");
  uint64_t last = getenv("DS_LONG") ? 10000 : 200;
  if (argc < 2) {
    fprintf(stderr, "usage: api_sequence_test FOLDER, where it may write\n");
    return 2;
  }
  snprintf(folder, sizeof folder, "%s/sequence_test", argv[1]);
  check_ok(ds_log_set_fn(no_log, NULL), "log");
  shows = one != NULL;
  if (one) {
    seed = strtoull(one, NULL, 10);
    sequence();
    return 0;
  }
  for (seed = 1; seed <= last; ++seed) sequence();
  return 0;
}
