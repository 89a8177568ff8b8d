/* Tests what ds.h promises about all handles: they can be destroyed in any order and on any thread,
 * a comm lives as long as its engine, engines can train in two threads at the same time, and
 * callbacks run on the thread of the call. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { KINDS = 6, STEPS = 20, WEIGHTS = MLP_HIDDEN * MLP_IN };

/* One handle of each of six kinds, in the order of their creation. */
typedef struct handles {
  ds_comm* comm;
  ds_graph* graph;
  ds_plan* plan;
  ds_engine* engine;
  ds_tensor* out;
  ds_work* work;
  int order[KINDS];
} handles;

static void make(handles* all) {
  static ds_comm_call call;
  char config[512];
  mlp_batch batch;
  memset(all, 0, offsetof(handles, order));
  mlp_config(config, sizeof config, 3, 1, 1);
  check_ok(ds_comm_create("self", NULL, &all->comm), "comm");
  all->graph = mlp_graph();
  check_ok(ds_plan_create(config, all->graph, 0, 1, &all->plan), "plan");
  all->engine = mlp_engine(all->comm, config);
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_infer(all->engine, batch_inputs(&batch), 2, NULL, &all->out), "infer");
  free_batch(&batch);
  check_ok(ds_comm_call_init(&call, sizeof call), "call");
  call.op = DS_COMM_OP_BARRIER;
  check_ok(ds_comm_submit(all->comm, &call, &all->work), "start");
  check(all->comm && all->graph && all->plan && all->engine && all->out && all->work,
        "six handles");
}

static void* destroy(void* arg) {
  handles* all = arg;
  int i;
  for (i = 0; i < KINDS; ++i) {
    switch (all->order[i]) {
      case 0:
        ds_comm_destroy(all->comm);
        break;
      case 1:
        ds_graph_destroy(all->graph);
        break;
      case 2:
        ds_plan_destroy(all->plan);
        break;
      case 3:
        ds_engine_destroy(all->engine);
        break;
      case 4:
        ds_tensor_destroy(all->out);
        break;
      default:
        ds_work_destroy(all->work);
    }
  }
  return NULL;
}

/* Proves {ownership.order} for many orders, on the thread that created the handles and on another
 * thread. */
static void any_order(void) {
  int shuffle, i, thread;
  for (shuffle = 0; shuffle < 24; ++shuffle) {
    for (thread = 0; thread < 2; ++thread) {
      handles all;
      pthread_t other;
      int code = shuffle * 30;
      for (i = 0; i < KINDS; ++i) all.order[i] = i;
      /* Computes the permutation with number `code`. */
      for (i = KINDS; i > 1; code /= i, --i) {
        int at = code % i, kept = all.order[at];
        all.order[at] = all.order[i - 1];
        all.order[i - 1] = kept;
      }
      make(&all);
      if (!thread) {
        destroy(&all);
        continue;
      }
      check(pthread_create(&other, NULL, destroy, &all) == 0, "a thread");
      pthread_join(other, NULL);
    }
  }
}

static void train(ds_engine* engine, int rank, int steps, double* loss) {
  mlp_batch batch;
  make_batch(&batch, rank, 0, 1);
  while (steps-- > 0)
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, loss), "train");
  free_batch(&batch);
}

/* Proves {ownership.comm}: after rank 0's comm is destroyed, the engines still train together, so
 * rank 0 has not left; rank 1's barrier fails once rank 0 has destroyed its engine as well. */
static void comm_of_engine(int rank, void* data) {
  char config[512];
  double loss = 0;
  ds_comm* comm = join_ranks(data, rank, 2);
  ds_engine* engine;
  mlp_config(config, sizeof config, 3, 1, 2);
  engine = mlp_engine(comm, config);
  if (rank == 0) ds_comm_destroy(comm);
  train(engine, rank, 3, &loss);
  check(loss > 0, "a loss");
  ds_engine_destroy(engine);
  if (rank == 1) {
    check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "rank 0 has left");
    ds_comm_destroy(comm);
  }
}

static void* comm_of_engine_thread(void* data) {
  comm_of_engine(1, data);
  return NULL;
}

typedef struct trainer {
  int stage, rank;
  double loss;
  float weights[WEIGHTS];
} trainer;

static void* train_alone(void* arg) {
  trainer* self = arg;
  char config[512];
  ds_engine* engine;
  mlp_config(config, sizeof config, self->stage, 1, 1);
  engine = mlp_engine(NULL, config);
  train(engine, self->rank, STEPS, &self->loss);
  check_ok(ds_engine_read(engine, 0, "master", self->weights, WEIGHTS), "read");
  ds_engine_destroy(engine);
  return NULL;
}

/* Proves {threads.independent}: two engines that train in two threads at the same time have the
 * same bits as when they train one after the other. */
static void independent(void) {
  trainer alone[2], together[2];
  pthread_t threads[2];
  int i;
  memset(alone, 0, sizeof alone);
  for (i = 0; i < 2; ++i) alone[i].stage = 3 * i, alone[i].rank = i;
  memcpy(together, alone, sizeof alone);
  for (i = 0; i < 2; ++i) train_alone(&alone[i]);
  for (i = 0; i < 2; ++i)
    check(pthread_create(&threads[i], NULL, train_alone, &together[i]) == 0, "a thread");
  for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  check(memcmp(alone, together, sizeof alone) == 0, "the same losses and weights");
  check(alone[0].loss != alone[1].loss && alone[0].weights[0] != 0, "of different data");
}

static pthread_t caller;
static int calls;

static ds_status init(int32_t param, const char* name, int64_t first, float* data, size_t count,
                      void* user_data) {
  (void)param, (void)name, (void)first, (void)data, (void)count, (void)user_data;
  check(pthread_equal(caller, pthread_self()), "on the thread inside the call");
  ++calls;
  return DS_OK;
}

static void line(ds_log_level level, const char* text, void* user_data) {
  (void)level, (void)text, (void)user_data;
  check(pthread_equal(caller, pthread_self()), "on the thread inside the call");
  ++calls;
}

/* Proves {threads.callbacks}, together with the callbacks of a run in run_test.c: an engine with
 * four threads calls its host on only one. */
static void callbacks(void) {
  char config[512];
  ds_engine_options options;
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  double loss = 0;
  int before;
  caller = pthread_self();
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_log_set_fn(line, NULL), "log");
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.threads = 4;
  options.init = init;
  check_ok(ds_engine_create(NULL, config, graph, &options, &engine), "engine");
  before = calls;
  check(before > MLP_PARAMS, "values and a line");
  train(engine, 0, 2, &loss);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
  check_ok(ds_log_set_fn(NULL, NULL), "reset");
}

int main(void) {
  char name[] = "api_comm_of_engine";
  pthread_t other;
  any_order();
  check(pthread_create(&other, NULL, comm_of_engine_thread, name) == 0, "a thread");
  comm_of_engine(0, name);
  pthread_join(other, NULL);
  independent();
  callbacks();
  return 0;
}
