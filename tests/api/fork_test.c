#define _GNU_SOURCE
/* Proves {forks.inherited}, {forks.parent} and {forks.own}. In a child, every call on an inherited
 * handle reports that it belongs to the parent; the child may destroy it and can train with its own
 * handles. The parent continues with the bits that it has without a fork. Ranks are threads, then
 * processes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dlpack.h"
#include "support.h"

enum { RANKS = 2, STEPS = 6, WEIGHTS = MLP_HIDDEN * MLP_IN };

/* The parent's configuration: states and parameters in scratch files, two ranks. */
static char config[1024];
/* The child's configuration: one rank. */
static char own_config[512];

typedef struct objects {
  ds_comm* comm;
  ds_work* work;
  ds_tensor* tensor;
  ds_graph* graph;
  ds_plan* plan;
  ds_engine *engine, *delegate;
  ds_stream* stream;
  const ds_tensor* const* batch;
} objects;

static void refused(ds_status status, const char* call) {
  char words[64];
  snprintf(words, sizeof words, "is used by process %d after a fork", (int)getpid());
  if (status == DS_ERROR_STATE && strstr(ds_last_error_message(), words)) return;
  fprintf(stderr, "%s in a child: %s: %s\n", call, ds_status_name(status), ds_last_error_message());
  _exit(1);
}

static void comm_calls(objects* t) {
  float values[8] = {0};
  ds_comm_call call;
  ds_comm* comm = NULL;
  ds_work* work = NULL;
  char* text = NULL;
  int32_t number = 0;
  refused(ds_comm_all_gather(t->comm, values, 4, values), "ds_comm_all_gather");
  refused(ds_comm_all_reduce(t->comm, values, 1, DS_DTYPE_F32, values), "ds_comm_all_reduce");
  refused(ds_comm_reduce_scatter(t->comm, values, 1, DS_DTYPE_F32, values),
          "ds_comm_reduce_scatter");
  refused(ds_comm_all_to_all(t->comm, values, 4, values), "ds_comm_all_to_all");
  refused(ds_comm_broadcast(t->comm, values, 4, 0), "ds_comm_broadcast");
  refused(ds_comm_send(t->comm, values, 4, 1), "ds_comm_send");
  refused(ds_comm_receive(t->comm, values, 4, 1), "ds_comm_receive");
  refused(ds_comm_split(t->comm, 0, 0, &comm), "ds_comm_split");
  refused(ds_comm_barrier(t->comm), "ds_comm_barrier");
  refused(ds_comm_abort(t->comm, "never"), "ds_comm_abort");
  check_ok(ds_comm_call_init(&call, sizeof call), "ds_comm_call_init");
  call.op = DS_COMM_OP_BARRIER;
  refused(ds_comm_submit(t->comm, &call, &work), "ds_comm_submit");
  refused(ds_comm_log_start(t->comm), "ds_comm_log_start");
  refused(ds_comm_log(t->comm, DS_FORMAT_TEXT, &text), "ds_comm_log");
  refused(ds_comm_flight_record(t->comm, DS_FORMAT_TEXT, &text), "ds_comm_flight_record");
  refused(ds_work_wait(t->work), "ds_work_wait");
  refused(ds_work_test(t->work, &number), "ds_work_test");
  refused(ds_run_train(t->comm, "{}", NULL, 2, NULL, NULL, NULL, NULL), "ds_run_train");
  refused(ds_run_generate(t->comm, "nowhere", NULL, NULL, NULL, NULL, &text), "ds_run_generate");
  refused(ds_run_verify(t->comm, "nowhere", NULL, DS_FORMAT_TEXT, &number, &text), "ds_run_verify");
  refused(ds_run_profile(t->comm, "{}", NULL, NULL, DS_FORMAT_TEXT, &text), "ds_run_profile");
  refused(ds_run_audit(t->comm, "{}", NULL, DS_FORMAT_TEXT, &number, &text), "ds_run_audit");
}

static void graph_calls(objects* t) {
  char* text = NULL;
  int32_t number = 0;
  struct DLManagedTensor* dlpack = NULL;
  ds_stream* stream = NULL;
  ds_tensor* tensor = NULL;
  struct DLManagedTensor managed = {0};
  const int64_t dims[1] = {4};
  ds_plan* plan = NULL;
  refused(ds_tensor_to_dlpack(t->tensor, &dlpack, NULL), "ds_tensor_to_dlpack");
  refused(ds_tensor_info(t->tensor, NULL, NULL, NULL, 0, NULL, NULL, NULL), "ds_tensor_info");
  refused(ds_tensor_copy(t->tensor, t->tensor, NULL), "ds_tensor_copy");
  refused(ds_stream_create(t->delegate, &stream), "ds_stream_create");
  refused(ds_stream_synchronize(t->stream), "ds_stream_synchronize");
  refused(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, NULL, t->stream, &tensor),
          "ds_tensor_create");
  refused(ds_tensor_from_dlpack(&managed, NULL, t->stream, &tensor), "ds_tensor_from_dlpack");
  refused(ds_graph_print(t->graph, &text), "ds_graph_print");
  refused(ds_graph_input(t->graph, "x", DS_DTYPE_F32, dims, 1, &number), "ds_graph_input");
  refused(ds_graph_param(t->graph, "w", dims, 1, "zeros", 0, &number), "ds_graph_param");
  refused(ds_graph_op(t->graph, "relu", &number, 1, NULL, &number), "ds_graph_op");
  refused(ds_graph_output(t->graph, "loss", 0), "ds_graph_output");
  refused(ds_graph_custom_op(t->graph, "own", NULL, &number, 1, &number), "ds_graph_custom_op");
  refused(ds_graph_find(t->graph, "loss", &number), "ds_graph_find");
  refused(ds_graph_value_info(t->graph, 0, NULL, NULL, 0, NULL), "ds_graph_value_info");
  refused(ds_graph_grad(t->graph, 0, &number, 1, &number), "ds_graph_grad");
  refused(ds_plan_create(config, t->graph, 0, 1, &plan), "ds_plan_create");
  refused(ds_plan_report(t->plan, DS_FORMAT_TEXT, &text), "ds_plan_report");
  refused(ds_plan_print(t->plan, &text), "ds_plan_print");
  refused(ds_plan_certificate((const ds_plan* const*)&t->plan, 1, &text), "ds_plan_certificate");
  refused(ds_plan_picture((const ds_plan* const*)&t->plan, 1, &text), "ds_plan_picture");
}

static void engine_calls(objects* t) {
  float values[8] = {0};
  char* text = NULL;
  int32_t number = 0;
  ds_engine* engine = NULL;
  ds_step_result last;
  double loss = 0;
  ds_tensor* tensor = NULL;
  int64_t first = 0, count = 0;
  refused(ds_engine_create(t->comm, config, NULL, NULL, &engine), "ds_engine_create");
  refused(ds_engine_create(NULL, config, t->graph, NULL, &engine), "ds_engine_create");
  refused(ds_train_batch(t->engine, t->batch, 2, NULL, &loss), "ds_train_batch");
  refused(ds_forward(t->engine, t->batch, 2, NULL, &loss), "ds_forward");
  refused(ds_backward(t->engine), "ds_backward");
  refused(ds_step(t->engine), "ds_step");
  refused(ds_engine_join(t->engine, NULL), "ds_engine_join");
  refused(ds_eval_batch(t->engine, t->batch, 2, NULL, &loss), "ds_eval_batch");
  refused(ds_infer(t->engine, t->batch, 2, NULL, &tensor), "ds_infer");
  check(ds_engine_param_count(t->engine) == -1 && ds_engine_state_name(t->engine, 0) == NULL,
        "no status");
  refused(ds_engine_param_find(t->engine, "w", &number), "ds_engine_param_find");
  refused(ds_engine_param_info(t->engine, 0, NULL, NULL, 0, NULL), "ds_engine_param_info");
  refused(ds_engine_read(t->engine, 0, "master", values, 4), "ds_engine_read");
  refused(ds_engine_write(t->engine, 0, "master", values, 4), "ds_engine_write");
  refused(ds_engine_local_range(t->engine, 0, &first, &count), "ds_engine_local_range");
  refused(ds_engine_read_local(t->engine, 0, "master", values, 4), "ds_engine_read_local");
  refused(ds_engine_write_local(t->engine, 0, "master", values, 4), "ds_engine_write_local");
  refused(ds_engine_refresh(t->engine), "ds_engine_refresh");
  refused(ds_engine_freeze(t->engine, &number, 1, 1), "ds_engine_freeze");
  refused(ds_engine_get(t->engine, "step", &loss), "ds_engine_get");
  refused(ds_engine_set(t->engine, "lr", 0.1), "ds_engine_set");
  refused(ds_engine_group_add(t->engine, &number, 1, NULL, &number), "ds_engine_group_add");
  check(ds_engine_state_name(t->engine, 0) == NULL, "ds_engine_state_name");
  refused(ds_engine_last_step(t->engine, &last, sizeof last), "ds_engine_last_step");
  refused(ds_engine_skip_reason(t->engine, &text), "ds_engine_skip_reason");
  refused(ds_engine_plan_print(t->engine, &text), "ds_engine_plan_print");
  refused(ds_engine_plan_report(t->engine, DS_FORMAT_TEXT, &text), "ds_engine_plan_report");
  refused(ds_engine_trace(t->engine, "trace.json"), "ds_engine_trace");
  refused(ds_checkpoint_save(t->engine, "nowhere", NULL), "ds_checkpoint_save");
  refused(ds_checkpoint_wait(t->engine), "ds_checkpoint_wait");
  refused(ds_checkpoint_load(t->engine, "nowhere", NULL, NULL), "ds_checkpoint_load");
  refused(ds_checkpoint_attach(t->engine, "a", t->tensor), "ds_checkpoint_attach");
  refused(ds_checkpoint_attachment(t->engine, "a", 0, &tensor), "ds_checkpoint_attachment");
  refused(ds_checkpoint_load_model(t->engine, "nowhere"), "ds_checkpoint_load_model");
  refused(ds_checkpoint_save_model(t->engine, "nowhere", NULL), "ds_checkpoint_save_model");
}

static void delegate_calls(objects* t) {
  int32_t number = 0;
  const int64_t dims[1] = {4};
  ds_tensor* tensor = NULL;
  refused(ds_engine_param_add(t->delegate, "more", DS_DTYPE_NONE, dims, 1, &number),
          "ds_engine_param_add");
  refused(ds_engine_start(t->delegate), "ds_engine_start");
  refused(ds_engine_evaluate(t->delegate, 1), "ds_engine_evaluate");
  refused(ds_engine_drop_step(t->delegate), "ds_engine_drop_step");
  refused(ds_engine_grad_view(t->delegate, 0, NULL, &tensor), "ds_engine_grad_view");
  refused(ds_gather_params(t->delegate, &number, 1, NULL), "ds_gather_params");
  refused(ds_release_params(t->delegate, &number, 1, NULL), "ds_release_params");
  refused(ds_engine_param_view(t->delegate, 0, NULL, &tensor), "ds_engine_param_view");
  refused(ds_grad_ready(t->delegate, 0, t->tensor, NULL), "ds_grad_ready");
  refused(ds_grads_ready(t->delegate, NULL, 0, NULL, NULL), "ds_grads_ready");
  refused(ds_backward(t->delegate), "ds_backward");
  refused(ds_step(t->delegate), "ds_step");
}

static double train_alone(int steps) {
  ds_engine* engine = mlp_engine(NULL, own_config);
  mlp_batch batch;
  double loss = 0;
  make_batch(&batch, 0, 0, 1);
  while (steps-- > 0)
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "train alone");
  free_batch(&batch);
  ds_engine_destroy(engine);
  return loss;
}

static void destroy(objects* t) {
  ds_work_destroy(t->work);
  ds_tensor_destroy(t->tensor);
  ds_stream_destroy(t->stream);
  ds_plan_destroy(t->plan);
  ds_graph_destroy(t->graph);
  ds_engine_destroy(t->delegate);
  ds_engine_destroy(t->engine);
  ds_comm_destroy(t->comm);
}

typedef struct outcome {
  double losses[STEPS];
  float weights[WEIGHTS];
} outcome;

static double alone;
static outcome plain[RANKS], forked[RANKS], within[RANKS];
static void train_thread(int rank, ds_comm* comm, void* data);

/* Tries every call on the inherited handles, destroys them, trains with handles of its own, then
 * exits. An alarm turns a hanging call into a failure. */
static void be_child(objects* t) {
  alarm(60);
  comm_calls(t);
  graph_calls(t);
  engine_calls(t);
  delegate_calls(t);
  destroy(t);
  check(train_alone(3) == alone, "a child trains by itself as its parent would");
  run_ranks("within", RANKS, train_thread, within);
  check(memcmp(plain, within, sizeof plain) == 0, "ranks and scratch files of a child's own");
  /* Runs the destructors of the library, unlike _exit(). */
  exit(0);
}

static void fork_once(objects* t) {
  int status = 0;
  pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) be_child(t);
  check(waitpid(child, &status, 0) == child && status == 0, "a child without a complaint");
}

static ds_engine* make_delegate(ds_tensor** view) {
  const int64_t dims[1] = {4};
  int32_t param = -1;
  ds_engine* engine = NULL;
  char* separate = NULL;
  check_ok(ds_config_merge(own_config, "{\"device\": \"separate\"}", &separate), "configuration");
  check_ok(ds_engine_create(NULL, separate, NULL, NULL, &engine), "delegate");
  ds_text_destroy(separate);
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 1, &param), "parameter");
  check_ok(ds_engine_start(engine), "start");
  check_ok(ds_gather_params(engine, &param, 1, NULL), "gather");
  check_ok(ds_engine_param_view(engine, param, NULL, view), "view");
  return engine;
}

/* Trains one rank; before two steps, rank 0 forks while a collective is running. */
static void train(int rank, ds_comm* comm, int forks, outcome* out) {
  objects t = {0};
  mlp_batch batch;
  float one = 1, sum = 0;
  const void* in = &one;
  void* place = &sum;
  size_t count = 1;
  ds_comm_call call;
  int step;
  t.comm = comm;
  t.engine = mlp_engine(comm, config);
  t.delegate = make_delegate(&t.tensor);
  check_ok(ds_stream_create(t.delegate, &t.stream), "stream");
  t.graph = mlp_graph();
  check_ok(ds_plan_create(own_config, t.graph, 0, 1, &t.plan), "plan");
  make_batch(&batch, rank, 0, 1);
  t.batch = batch_inputs(&batch);
  for (step = 0; step < STEPS; ++step) {
    check_ok(ds_comm_call_init(&call, sizeof call), "call");
    call.dtype = DS_DTYPE_F32, call.ins = &in, call.counts = &count, call.outs = &place;
    check_ok(ds_comm_submit(comm, &call, &t.work), "start");
    if (rank == 0 && forks && step % 3 == 1) fork_once(&t);
    check_ok(ds_work_wait(t.work), "wait");
    check(sum == RANKS, "a sum");
    ds_work_destroy(t.work);
    t.work = NULL;
    check_ok(ds_train_batch(t.engine, t.batch, 2, NULL, &out->losses[step]), "train");
  }
  check_ok(ds_engine_read(t.engine, 0, "master", out->weights, WEIGHTS), "read");
  free_batch(&batch);
  t.comm = NULL;
  destroy(&t);
}

static void train_thread(int rank, ds_comm* comm, void* data) {
  outcome* out = data;
  train(rank, comm, out == forked, &out[rank]);
}

/* Does the same as train() over shared memory: rank 1 is a process that was forked while no handle
 * existed. */
static void train_process(int rank, const char* url) {
  ds_comm_options options;
  ds_comm* comm = NULL;
  outcome out;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = rank;
  options.size = RANKS;
  check_ok(ds_comm_create(url, &options, &comm), "join");
  train(rank, comm, 1, &out);
  ds_comm_destroy(comm);
  check(memcmp(&out, &plain[rank], sizeof out) == 0,
        "the bits of a run without a fork, over processes");
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  char url[64];
  pid_t other;
  int status = 0;
  mlp_config(own_config, sizeof own_config, 0, 1, 1);
  snprintf(config, sizeof config,
           "{\"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d, \"optimizer\": "
           "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": "
           "3, \"stage3_param_persistence_threshold\": 0, \"offload_optimizer\": {\"device\": "
           "\"nvme\", \"nvme_path\": \"%s\"}, \"offload_param\": {\"device\": \"nvme\", "
           "\"nvme_path\": \"%s\"}}, \"run\": {\"seed\": 7}}",
           MLP_ROWS * RANKS, MLP_ROWS, folder, folder);
  alone = train_alone(3);
  run_ranks("plain", RANKS, train_thread, plain);
  run_ranks("forked", RANKS, train_thread, forked);
  check(memcmp(plain, forked, sizeof plain) == 0, "the bits of a run without a fork, over threads");
  snprintf(url, sizeof url, "shm://fork-%d", (int)getpid());
  other = fork();
  if (other == 0) {
    train_process(1, url);
    _exit(0);
  }
  train_process(0, url);
  check(waitpid(other, &status, 0) == other && status == 0, "the other rank");
  return 0;
}
