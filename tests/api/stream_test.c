/* Tests streams: on test_device(), whose memory is separate, calls read and write tensors in the
 * order of a stream. Proves {streams.order}, {streams.null}, {streams.cpu} and {streams.lent}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Bytes of a copy that takes long enough to be overtaken. */
enum { BIG = 1 << 22 };

static int on_gpu(void) { return strncmp(test_device(), "cuda:", 5) == 0; }

/* Checks for a message that consists of `before`, the device's name and `after`. */
static void check_device_error(ds_status status, ds_status wanted, const char* before,
                               const char* after) {
  char words[256];
  snprintf(words, sizeof words, "%s'%s'%s", before, test_device(), after);
  check_error(status, wanted, words);
}

static void on_device_of_tests(char* buffer, size_t size, const char* more) {
  snprintf(buffer, size,
           "{\"device\": \"%s\", \"train_batch_size\": %d, \"gradient_clipping\": 0, "
           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
           "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}%s}",
           test_device(), MLP_ROWS, more);
}

static ds_tensor* device_tensor(ds_stream* stream, ds_dtype dtype, const int64_t* dims,
                                size_t count) {
  ds_tensor* out = NULL;
  const char* device = NULL;
  check_ok(ds_tensor_create(dtype, dims, count, NULL, NULL, stream, &out),
           "a tensor on the device");
  check_ok(ds_tensor_info(out, NULL, NULL, NULL, 0, NULL, &device, NULL), "info");
  check(strcmp(device, test_device()) == 0, "the device is named");
  return out;
}

/* Keeps the stream busy, so that the work that follows in it is not done when its call returns. */
static void make_late(ds_stream* stream, ds_tensor* a, ds_tensor* b) {
  int i;
  for (i = 0; i < 8; ++i) {
    check_ok(ds_tensor_copy(b, a, stream), "a long copy");
    check_ok(ds_tensor_copy(a, b, stream), "and back");
  }
}

/* Three times, a step and an evaluation read tensors on the device just after the stream has been
 * told to fill them, and an inference reads host tensors. The bits equal those with host memory.
 * Proves {streams.order}, {stream.create.outlives} and {stream.synchronize}. */
static void same_bits_as_the_host(void) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine *host = NULL, *device = NULL;
  ds_stream* stream = NULL;
  ds_tensor *staged[2], *a, *b, *seen[2] = {NULL, NULL}, *copy = NULL;
  const int64_t x_dims[] = {MLP_ROWS, MLP_IN}, y_dims[] = {MLP_ROWS, MLP_OUT}, big[] = {BIG};
  double losses[2] = {0, 0};
  void *first = NULL, *second = NULL;
  int step;
  on_device_of_tests(config, sizeof config, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &host), "one engine");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &device), "another engine");
  check_ok(ds_stream_create(device, &stream), "stream");
  staged[0] = device_tensor(stream, DS_DTYPE_F32, x_dims, 2);
  staged[1] = device_tensor(stream, DS_DTYPE_F32, y_dims, 2);
  a = device_tensor(stream, DS_DTYPE_U8, big, 1);
  b = device_tensor(stream, DS_DTYPE_U8, big, 1);
  for (step = 0; step < 3; ++step) {
    mlp_batch batch;
    make_batch(&batch, 0, step, 1);
    check_ok(ds_train_batch(host, batch_inputs(&batch), 2, NULL, &losses[0]),
             "a step from the host");
    make_late(stream, a, b);
    check_ok(ds_tensor_copy(staged[0], batch.tensors[0], stream), "x");
    check_ok(ds_tensor_copy(staged[1], batch.tensors[1], stream), "y");
    check_ok(ds_train_batch(device, (const ds_tensor* const*)staged, 2, stream, &losses[1]),
             "a step");
    check(losses[0] == losses[1], "the loss of a step is the same");
    check_ok(ds_eval_batch(host, batch_inputs(&batch), 2, NULL, &losses[0]),
             "evaluation from the host");
    make_late(stream, a, b);
    check_ok(ds_tensor_copy(staged[0], batch.tensors[0], stream), "x again");
    check_ok(ds_eval_batch(device, (const ds_tensor* const*)staged, 2, stream, &losses[1]),
             "evaluation");
    check(losses[0] == losses[1], "the loss of an evaluation is the same");
    check_ok(ds_infer(host, batch_inputs(&batch), 2, NULL, &seen[0]), "inference from the host");
    check_ok(ds_infer(device, batch_inputs(&batch), 2, stream, &seen[1]),
             "inference from the host, in order");
    check_ok(ds_tensor_create(DS_DTYPE_F32, y_dims, 2, NULL, NULL, NULL, &copy),
             "room on the host");
    make_late(stream, a, b);
    check_ok(ds_tensor_copy(copy, seen[1], stream), "a result to the host");
    check_ok(ds_stream_synchronize(stream), "synchronize");
    check_ok(ds_tensor_info(seen[0], NULL, NULL, NULL, 0, NULL, NULL, &first), "info");
    check_ok(ds_tensor_info(copy, NULL, NULL, NULL, 0, NULL, NULL, &second), "info");
    check(memcmp(first, second, sizeof(float) * MLP_ROWS * MLP_OUT) == 0, "results are the same");
    ds_tensor_destroy(seen[0]);
    ds_tensor_destroy(seen[1]);
    ds_tensor_destroy(copy);
    free_batch(&batch);
  }
  /* The engine is destroyed before its stream and its tensors. */
  ds_engine_destroy(device);
  make_late(stream, a, b);
  check_ok(ds_stream_synchronize(stream), "a stream outlives its engine");
  ds_tensor_destroy(a);
  ds_stream_destroy(stream);
  ds_tensor_destroy(b);
  ds_tensor_destroy(staged[0]);
  ds_tensor_destroy(staged[1]);
  ds_engine_destroy(host);
  ds_graph_destroy(graph);
}

/* When the destroy function of a stream returns, its work is done, even if an engine has used the
 * stream. */
static void a_stream_ends_with_its_work(void) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  ds_stream* stream = NULL;
  ds_tensor *a, *b, *from = NULL, *to = NULL;
  const int64_t big[] = {BIG};
  mlp_batch batch;
  void *ones = NULL, *seen = NULL;
  on_device_of_tests(config, sizeof config, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  check_ok(ds_stream_create(engine, &stream), "stream");
  a = device_tensor(stream, DS_DTYPE_U8, big, 1);
  b = device_tensor(stream, DS_DTYPE_U8, big, 1);
  check_ok(ds_tensor_create(DS_DTYPE_U8, big, 1, NULL, NULL, NULL, &from), "from");
  check_ok(ds_tensor_create(DS_DTYPE_U8, big, 1, NULL, NULL, NULL, &to), "to");
  check_ok(ds_tensor_info(from, NULL, NULL, NULL, 0, NULL, NULL, &ones), "info");
  check_ok(ds_tensor_info(to, NULL, NULL, NULL, 0, NULL, NULL, &seen), "info");
  memset(ones, 1, BIG);
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, stream, NULL), "a step");
  check_ok(ds_tensor_copy(a, from, stream), "there");
  make_late(stream, a, b);
  check_ok(ds_tensor_copy(to, a, stream), "and back");
  ds_stream_destroy(stream);
  check(memcmp(ones, seen, BIG) == 0, "the work of a stream is done when it has ended");
  ds_tensor_destroy(a);
  ds_tensor_destroy(b);
  ds_tensor_destroy(from);
  ds_tensor_destroy(to);
  free_batch(&batch);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

enum { PARAMS = 3, STEPS = 4 };
static const int64_t kRows[PARAMS] = {300, 64, 1000};

static ds_engine* delegate(ds_comm* comm, int on_device) {
  char config[512];
  ds_engine* engine = NULL;
  int i;
  snprintf(config, sizeof config,
           "{\"device\": \"%s\", \"train_batch_size\": %d, \"gradient_clipping\": 0, "
           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
           "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}}",
           on_device ? test_device() : "cpu", ds_comm_size(comm));
  check_ok(ds_engine_create(comm, config, NULL, NULL, &engine), "delegate");
  for (i = 0; i < PARAMS; ++i) {
    char name[8];
    int32_t number = -1;
    snprintf(name, sizeof name, "p%d", i);
    check_ok(ds_engine_param_add(engine, name, DS_DTYPE_NONE, &kRows[i], 1, &number), "parameter");
  }
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

/* Returns the gradient of element e. It depends on the leased value, so that reading a lease too
 * late has a visible effect. */
static float gradient(float value, int rank, int step, int64_t e) {
  return value * 0.5f + (float)((e * 7 + rank * 3 + step) % 11) - 5.0f;
}

/* Proves {streams.order} in delegate mode. */
static void delegate_rank(int rank, ds_comm* comm, void* data) {
  ds_engine *host = delegate(comm, 0), *device = delegate(comm, 1);
  ds_stream* stream = NULL;
  ds_tensor *a, *b;
  const int64_t big[] = {BIG};
  int step, i;
  (void)data;
  check_ok(ds_stream_create(device, &stream), "stream");
  a = device_tensor(stream, DS_DTYPE_U8, big, 1);
  b = device_tensor(stream, DS_DTYPE_U8, big, 1);
  for (step = 0; step < STEPS; ++step) {
    float* kept[PARAMS] = {NULL, NULL, NULL};
    for (i = PARAMS; i-- > 0;) {
      int32_t param = i;
      int64_t e;
      size_t bytes = (size_t)kRows[i] * sizeof(float);
      float *values = malloc(bytes), *grads = malloc(bytes);
      ds_tensor *on_host = NULL, *lease = NULL, *place = NULL, *view = NULL;
      void* leased = NULL;
      /* Makes the same calls on the host. */
      check_ok(ds_gather_params(host, &param, 1, NULL), "gather");
      check_ok(ds_engine_param_view(host, param, NULL, &view), "view");
      check_ok(ds_tensor_info(view, NULL, NULL, NULL, 0, NULL, NULL, &leased), "info");
      for (e = 0; e < kRows[i]; ++e) grads[e] = gradient(((const float*)leased)[e], rank, step, e);
      check_ok(ds_tensor_create(DS_DTYPE_F32, &kRows[i], 1, NULL, grads, NULL, &on_host),
               "gradient");
      ds_tensor_destroy(view);
      check_ok(ds_release_params(host, &param, 1, NULL), "release");
      check_ok(ds_grad_ready(host, param, on_host, NULL), "gradient");
      ds_tensor_destroy(on_host);
      /* The stream reads the lease after its release. */
      check_ok(ds_gather_params(device, &param, 1, stream), "gather");
      check_ok(ds_engine_param_view(device, param, stream, &lease), "view");
      check_ok(ds_tensor_create(DS_DTYPE_F32, &kRows[i], 1, NULL, values, NULL, &on_host), "room");
      make_late(stream, a, b);
      check_ok(ds_tensor_copy(on_host, lease, stream), "read the lease");
      check_ok(ds_release_params(device, &param, 1, stream), "release");
      check_ok(ds_stream_synchronize(stream), "synchronize");
      ds_tensor_destroy(lease);
      for (e = 0; e < kRows[i]; ++e) values[e] = gradient(values[e], rank, step, e);
      check(memcmp(values, grads, bytes) == 0, "leased values are the same");
      make_late(stream, a, b);
      /* The gradient is written in place, or copied from the host; both happen later in the
       * stream. */
      if (step % 2 == 0) {
        check_ok(ds_engine_grad_view(device, param, stream, &place), "place");
        check_ok(ds_tensor_copy(place, on_host, stream), "write it there");
        check_ok(ds_grad_ready(device, param, place, stream), "gradient in its place");
        ds_tensor_destroy(place);
      } else {
        check_ok(ds_grad_ready(device, param, on_host, stream), "gradient in order");
      }
      ds_tensor_destroy(on_host);
      /* The memory stays allocated for the stream. */
      kept[i] = values;
      free(grads);
    }
    check_ok(ds_backward(host), "backward");
    check_ok(ds_backward(device), "backward");
    check_ok(ds_step(host), "step");
    check_ok(ds_step(device), "step");
    check_ok(ds_stream_synchronize(stream), "synchronize");
    for (i = 0; i < PARAMS; ++i) {
      size_t bytes = (size_t)kRows[i] * sizeof(float);
      float *one = malloc(bytes), *two = malloc(bytes);
      check_ok(ds_engine_read(host, i, "master", one, (size_t)kRows[i]), "read");
      check_ok(ds_engine_read(device, i, "master", two, (size_t)kRows[i]), "read");
      check(memcmp(one, two, bytes) == 0, "masters are the same");
      check(one[0] != 0 || one[1] != 0, "gradients have moved them");
      free(one);
      free(two);
      free(kept[i]);
    }
  }
  ds_tensor_destroy(a);
  ds_tensor_destroy(b);
  ds_engine_destroy(host);
  ds_stream_destroy(stream);
  ds_engine_destroy(device);
}

/* DLPack tensors on a device have the device type of an extension or a GPU and are imported only
 * with a stream. Proves {stream.create.cpu}, {streams.cpu} and {tensor.copy.devices}. */
static void refused_and_shared(void) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine *cpu = NULL, *device = NULL, *other = NULL;
  ds_stream *stream = NULL, *foreign = NULL, *none = NULL;
  ds_tensor *tensor = NULL, *back = NULL, *sparse = NULL, *lent = NULL, *wide = NULL;
  struct DLManagedTensor* managed = NULL;
  mlp_batch batch;
  const ds_tensor* inputs[2];
  double loss = 0;
  float memory[2 * MLP_ROWS * MLP_IN] = {0};
  const int64_t dims[] = {MLP_ROWS, MLP_IN}, gaps[] = {2 * MLP_IN, 1},
                wide_dims[] = {2 * MLP_ROWS, MLP_IN};
  const int64_t far_dims[] = {(int64_t)1 << 44}, below[] = {-((int64_t)1 << 42), 1};
  void *data = NULL, *same = NULL, *room = NULL;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, graph, NULL, &cpu), "engine on cpu");
  check_error(ds_stream_create(cpu, &none), DS_ERROR_UNSUPPORTED, "device 'cpu' has no streams");
  check(none == NULL, "no stream");
  on_device_of_tests(config, sizeof config, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &device), "engine");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &other), "engine");
  check_ok(ds_stream_create(device, &stream), "stream");
  check_ok(ds_stream_create(other, &foreign), "stream");
  make_batch(&batch, 0, 0, 1);
  check_error(ds_train_batch(cpu, batch_inputs(&batch), 2, stream, &loss),
              DS_ERROR_INVALID_ARGUMENT, "and NULL on device 'cpu'");
  check_error(ds_train_batch(device, batch_inputs(&batch), 2, foreign, &loss),
              DS_ERROR_INVALID_ARGUMENT,
              "stream must be one that ds_stream_create made for this engine");
  tensor = device_tensor(stream, DS_DTYPE_F32, dims, 2);
  inputs[0] = tensor;
  inputs[1] = batch.tensors[1];
  check_device_error(ds_train_batch(other, inputs, 2, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
                     "inputs[0] must lie on this engine's device ", " or on the host");
  check_error(ds_train_batch(cpu, inputs, 2, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "inputs[0] must lie on this engine's device 'cpu' or on the host");
  check_ok(ds_tensor_info(tensor, NULL, NULL, NULL, 0, NULL, NULL, &data), "info");
  check_device_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, memory, stream, &lent),
                     DS_ERROR_INVALID_ARGUMENT, "data must be memory of device ", "");
  check_device_error(ds_tensor_create(DS_DTYPE_F32, far_dims, 1, NULL, data, stream, &lent),
                     DS_ERROR_INVALID_ARGUMENT, "data must be memory of device ",
                     " from element 0 to 17592186044415, got one end at another address");
  check_device_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, below, data, stream, &lent),
                     DS_ERROR_INVALID_ARGUMENT, "data must be memory of device ",
                     " from element -");
  check_device_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, (char*)data + 2, stream, &lent),
                     DS_ERROR_INVALID_ARGUMENT, "data must be a multiple of 4 bytes on device ",
                     ", got an address 2 bytes beyond one");
  wide = device_tensor(stream, DS_DTYPE_F32, wide_dims, 2);
  check_ok(ds_tensor_info(wide, NULL, NULL, NULL, 0, NULL, NULL, &room), "info");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, gaps, room, stream, &sparse), "with gaps");
  inputs[0] = sparse;
  check_device_error(ds_train_batch(device, inputs, 2, stream, &loss), DS_ERROR_INVALID_ARGUMENT,
                     "inputs[0] must be compact row-major on device ", "");
  ds_tensor_destroy(sparse);
  ds_tensor_destroy(wide);
  /* On the host, a tensor with gaps is accepted. */
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, gaps, memory, NULL, &sparse),
           "with gaps on the host");
  inputs[0] = sparse;
  check_ok(ds_train_batch(device, inputs, 2, NULL, &loss), "inputs with gaps");
  ds_tensor_destroy(sparse);
  check_ok(ds_tensor_to_dlpack(tensor, &managed, NULL), "export");
  check_error(ds_tensor_from_dlpack(managed, NULL, NULL, &back), DS_ERROR_UNSUPPORTED,
              on_gpu() ? "got device 2:0" : "got device 12");
  /* On a GPU, the tensor is also in the memory of that stream's device. */
  if (!on_gpu())
    check_device_error(ds_tensor_from_dlpack(managed, NULL, foreign, &back),
                       DS_ERROR_INVALID_ARGUMENT, "data must be memory of device ", "");
  check_ok(ds_tensor_from_dlpack(managed, NULL, stream, &back), "import");
  check_ok(ds_tensor_info(back, NULL, NULL, NULL, 0, NULL, NULL, &same), "info");
  check(same == data, "the same memory");
  check_error(ds_tensor_copy(back, tensor, foreign), DS_ERROR_INVALID_ARGUMENT,
              "stream must be one of the tensors' device");
  {
    ds_tensor* elsewhere = device_tensor(foreign, DS_DTYPE_F32, dims, 2);
    check_error(ds_tensor_copy(elsewhere, tensor, stream), DS_ERROR_INVALID_ARGUMENT,
                "two devices");
    ds_tensor_destroy(elsewhere);
  }
  ds_tensor_destroy(tensor);
  ds_engine_destroy(device);
  ds_stream_destroy(stream);
  /* This is the last tensor on its device. */
  ds_tensor_destroy(back);
  ds_stream_destroy(foreign);
  ds_engine_destroy(other);
  ds_engine_destroy(cpu);
  free_batch(&batch);
  ds_graph_destroy(graph);
}

/* Without a stream, a call has written host memory when it returns. Proves {streams.null}. */
static void without_a_stream(void) {
  enum { NUMEL = BIG / 4 };
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  ds_stream* stream = NULL;
  ds_tensor *on_device, *on_host = NULL;
  const int64_t dims[] = {NUMEL};
  float* memory = malloc(NUMEL * sizeof *memory);
  mlp_batch batch;
  double losses[2] = {0, 0};
  int i, round;
  on_device_of_tests(config, sizeof config, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  check_ok(ds_stream_create(engine, &stream), "stream");
  on_device = device_tensor(stream, DS_DTYPE_F32, dims, 1);
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, memory, NULL, &on_host), "on the host");
  for (round = 0; round < 10; ++round) {
    for (i = 0; i < NUMEL; ++i) memory[i] = (float)round;
    check_ok(ds_tensor_copy(on_device, on_host, NULL), "to the device");
    for (i = 0; i < NUMEL; ++i) memory[i] = -1;
    check_ok(ds_tensor_copy(on_host, on_device, NULL), "and back");
    for (i = 0; i < NUMEL; ++i)
      check(memory[i] == (float)round, "what was there at the time of the call");
  }
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_eval_batch(engine, batch_inputs(&batch), 2, NULL, &losses[0]), "evaluate");
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &losses[1]), "train");
  check(losses[0] == losses[1] && losses[0] > 0, "of the same inputs");
  free_batch(&batch);
  ds_tensor_destroy(on_host);
  ds_tensor_destroy(on_device);
  free(memory);
  ds_stream_destroy(stream);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

/* Rank 0 aborts the group while rank 1 is in a step: then rank 1's stream is as unusable as its
 * engine. Proves {stream.create.poisoned}. */
static void failed_engine(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  ds_stream* stream = NULL;
  mlp_batch batch;
  (void)data;
  snprintf(config, sizeof config,
           "{\"device\": \"%s\", \"train_batch_size\": %d, \"optimizer\": {\"type\": \"AdamW\"}, "
           "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}}",
           test_device(), 2 * MLP_ROWS);
  check_ok(ds_engine_create(comm, config, graph, NULL, &engine), "engine");
  check_ok(ds_stream_create(engine, &stream), "stream");
  make_batch(&batch, rank, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "a step");
  if (rank == 0) {
    check_ok(ds_comm_abort(comm, "rank 0 gives up"), "abort");
  } else {
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), DS_ERROR_COMM,
                "rank 0 gives up");
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), DS_ERROR_POISONED, "");
    check_error(ds_stream_synchronize(stream), DS_ERROR_POISONED, "the stream is unusable");
  }
  free_batch(&batch);
  ds_stream_destroy(stream);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

/* Creates and destroys streams, tensors and device memory without leaking any. */
static void cycles(void) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  mlp_batch batch;
  const int64_t dims[] = {MLP_ROWS, MLP_IN};
  int i;
  double loss = 0;
  on_device_of_tests(config, sizeof config, "");
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  make_batch(&batch, 0, 0, 1);
  for (i = 0; i < 300; ++i) {
    ds_stream* stream = NULL;
    const ds_tensor* inputs[2];
    ds_tensor* x;
    check_ok(ds_stream_create(engine, &stream), "stream");
    x = device_tensor(stream, DS_DTYPE_F32, dims, 2);
    check_ok(ds_tensor_copy(x, batch.tensors[0], stream), "copy");
    {
      ds_tensor *a = NULL, *b = device_tensor(stream, DS_DTYPE_F32, dims, 2);
      check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &a), "own memory");
      check_ok(ds_tensor_copy(b, a, stream), "copy");
      /* The tensor is destroyed before the stream has read it. */
      ds_tensor_destroy(a);
      ds_tensor_destroy(b);
    }
    inputs[0] = x;
    inputs[1] = batch.tensors[1];
    check_ok(ds_train_batch(engine, inputs, 2, stream, &loss), "a step");
    if (i % 2) ds_tensor_destroy(x);
    ds_stream_destroy(stream);
    if (i % 2 == 0) ds_tensor_destroy(x);
  }
  free_batch(&batch);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

int main(void) {
  same_bits_as_the_host();
  a_stream_ends_with_its_work();
  run_ranks("streams", 2, delegate_rank, NULL);
  refused_and_shared();
  without_a_stream();
  run_ranks("failed_engine", 2, failed_engine, NULL);
  cycles();
  check_error(ds_stream_synchronize(NULL), DS_ERROR_INVALID_ARGUMENT, "stream must not be NULL");
  ds_stream_destroy(NULL);
  return 0;
}
