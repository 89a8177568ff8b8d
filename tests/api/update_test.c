#define _POSIX_C_SOURCE 200809L
/* Tests the update by a function of the host: what it is given, on which elements, and how it ends.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { PARAMS = 3, STEPS = 4 };
static const int64_t sizes[PARAMS] = {300, 1, 70};

/* What the updates of one rank have seen. */
typedef struct seen {
  pthread_t thread;
  int64_t elements[PARAMS];
  int32_t fail_at, calls;
} seen;

/* A momentum with decay: velocity = momentum * velocity + grad, value -= lr * (velocity + decay *
 * value). State "age" becomes the number of the update. */
static ds_status momentum_update(const ds_update* u, void* user_data) {
  seen* s = user_data;
  if (++s->calls == s->fail_at) return DS_ERROR_USER;
  check(pthread_equal(pthread_self(), s->thread), "updates run on the thread of the call");
  check(u->struct_size >= sizeof *u && u->states_count == 2, "two states");
  if (u->param < PARAMS && u->first + (int64_t)u->count <= sizes[u->param])
    s->elements[u->param] += (int64_t)u->count;
  for (size_t i = 0; i < u->count; ++i) {
    u->states[0][i] = (float)u->momentum * u->states[0][i] + u->grads[i];
    u->states[1][i] = (float)u->update;
    u->values[i] -= (float)u->lr * (u->states[0][i] + (float)u->weight_decay * u->values[i]);
  }
  return DS_OK;
}

static void write_config(char* out, size_t size, int stage, int ranks, const char* more) {
  snprintf(
      out, size,
      "{\"train_batch_size\": %d, \"gradient_clipping\": 0, \"zero_optimization\": "
      "{\"stage\": %d, \"reduce_bucket_size\": 256, \"stage3_param_persistence_threshold\": 0%s}, "
      "\"optimizer\": {\"type\": \"Callback\", \"params\": {\"lr\": 0.125, \"momentum\": 0.5, "
      "\"weight_decay\": 0.25, \"states\": [\"velocity\", \"age\"]}, "
      "\"param_groups\": [{\"params\": [\"w1\"], \"lr\": 0.5}]}}",
      ranks, stage, more);
}

static ds_engine* engine_of(ds_comm* comm, const char* config, seen* s) {
  ds_engine_options options;
  ds_engine* engine = NULL;
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.threads = 1;
  options.update = momentum_update;
  options.update_user_data = s;
  s->thread = pthread_self();
  check_ok(ds_engine_create(comm, config, NULL, &options, &engine), "engine");
  for (int p = 0; p < PARAMS; ++p) {
    char name[8];
    int32_t param = -1;
    snprintf(name, sizeof name, "w%d", p);
    check_ok(ds_engine_param_add(engine, name, DS_DTYPE_NONE, &sizes[p], 1, &param), name);
  }
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

static float gradient(int step, int rank, int param, int64_t element) {
  return (float)((element * 7 + param * 5 + step * 3 + rank) % 33 - 16) / 8;
}

/* Makes a step, and returns the status of ds_step. With `spoil`, a gradient is NaN. */
static ds_status make_step(ds_engine* engine, int step, int rank, int spoil) {
  for (int p = PARAMS; p-- > 0;) {
    ds_tensor* grad = NULL;
    float values[300];
    for (int64_t e = 0; e < sizes[p]; ++e) values[e] = gradient(step, rank, p, e);
    if (spoil) values[0] = NAN;
    check_ok(ds_tensor_create(DS_DTYPE_F32, &sizes[p], 1, NULL, values, NULL, &grad), "grad");
    check_ok(ds_grad_ready(engine, p, grad, NULL), "grad_ready");
    ds_tensor_destroy(grad);
  }
  check_ok(ds_backward(engine), "backward");
  return ds_step(engine);
}

static void read_all(ds_engine* engine, const char* state, float* out) {
  for (int p = 0; p < PARAMS; ++p) {
    check_ok(ds_engine_read(engine, p, state, out, (size_t)sizes[p]), state);
    out += sizes[p];
  }
}

typedef struct layout {
  int stage;
  const char* more;
  float values[371], velocity[371];
} layout;

static void train_rank(int rank, ds_comm* comm, void* data) {
  layout* l = data;
  char config[1024];
  float values[371], velocity[371], age[371];
  seen s = {0};
  int64_t all[PARAMS];
  write_config(config, sizeof config, l->stage, ds_comm_size(comm), l->more);
  ds_engine* engine = engine_of(comm, config, &s);
  for (int step = 0; step < STEPS; ++step) check_ok(make_step(engine, step, rank, 0), "step");
  /* Each element is updated by one rank, or by all if no rank partitions the states. */
  check_ok(ds_comm_all_reduce(comm, s.elements, PARAMS, DS_DTYPE_I64, all), "count");
  for (int p = 0; p < PARAMS; ++p)
    check(all[p] == STEPS * sizes[p] * (l->stage == 0 ? ds_comm_size(comm) : 1),
          "every element once a step");
  read_all(engine, "master", values);
  read_all(engine, "velocity", velocity);
  read_all(engine, "age", age);
  for (int e = 0; e < 371; ++e) check(age[e] == STEPS, "the number of the update");
  /* A skipped step updates nothing. */
  const int32_t calls = s.calls;
  check_ok(make_step(engine, STEPS, rank, 1), "a step with NaN");
  check(s.calls == calls, "a skipped step calls no update");
  if (rank == 0) {
    memcpy(l->values, values, sizeof values);
    memcpy(l->velocity, velocity, sizeof velocity);
  }
  ds_engine_destroy(engine);
}

/* Computes what one rank must have. */
static void expected(float* values, float* velocity) {
  int at = 0;
  for (int p = 0; p < PARAMS; ++p) {
    for (int64_t e = 0; e < sizes[p]; ++e, ++at) {
      values[at] = velocity[at] = 0;
      for (int step = 0; step < STEPS; ++step) {
        velocity[at] = 0.5f * velocity[at] + gradient(step, 0, p, e);
        values[at] -= (p == 1 ? 0.5f : 0.125f) * (velocity[at] + 0.25f * values[at]);
      }
    }
  }
}

/* Proves {update.bits}, {update.thread} and {update.skipped}. */
static void layouts(const char* folder) {
  char nvme[800], name[64];
  layout one = {.stage = 0, .more = ""};
  float values[371], velocity[371];
  run_ranks("update-one", 1, train_rank, &one);
  expected(values, velocity);
  check(memcmp(one.values, values, sizeof values) == 0, "the values of one rank");
  check(memcmp(one.velocity, velocity, sizeof velocity) == 0, "the states of one rank");
  snprintf(nvme, sizeof nvme,
           ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}", folder);
  for (int world = 2; world <= 3; ++world) {
    layout first = {.stage = 0, .more = ""};
    snprintf(name, sizeof name, "update-%d", world);
    run_ranks(name, world, train_rank, &first);
    for (int stage = 1; stage <= 3; ++stage) {
      const char* tiers[] = {"", ", \"offload_optimizer\": {\"device\": \"cpu\"}", nvme};
      for (int tier = 0; tier < 3; ++tier) {
        layout l = {.stage = stage, .more = tiers[tier]};
        snprintf(name, sizeof name, "update-%d-%d-%d", world, stage, tier);
        run_ranks(name, world, train_rank, &l);
        check(memcmp(l.values, first.values, sizeof l.values) == 0, name);
        check(memcmp(l.velocity, first.velocity, sizeof l.velocity) == 0, name);
      }
    }
  }
}

/* Proves {update.fails}. */
static void failing_rank(int rank, ds_comm* comm, void* data) {
  char config[1024];
  seen s = {0};
  (void)data;
  write_config(config, sizeof config, 2, ds_comm_size(comm), "");
  ds_engine* engine = engine_of(comm, config, &s);
  check_ok(make_step(engine, 0, rank, 0), "a good step");
  if (rank == 1) {
    s.fail_at = s.calls + 1;
    check_error(make_step(engine, 1, rank, 0), DS_ERROR_USER, "options.update returned");
  } else {
    check_error(make_step(engine, 1, rank, 0), DS_ERROR_COMM, "");
  }
  check_error(ds_step(engine), DS_ERROR_POISONED, "unusable");
  ds_engine_destroy(engine);
}

static ds_status no_update(const ds_update* update, void* user_data) {
  (void)update;
  (void)user_data;
  return DS_OK;
}

/* Creates and starts an engine; returns the status of the call that fails. */
static ds_status try_engine(const char* config, ds_update_fn* update) {
  const int64_t dims[1] = {4};
  ds_engine_options options;
  ds_engine* engine = NULL;
  int32_t param = -1;
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.update = update;
  ds_status status = ds_engine_create(NULL, config, NULL, &options, &engine);
  if (status == DS_OK) status = ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 1, &param);
  if (status == DS_OK) status = ds_engine_start(engine);
  const ds_status result = status;
  char kept[1024];
  snprintf(kept, sizeof kept, "%s", ds_last_error_message());
  ds_engine_destroy(engine);
  if (result != DS_OK) check(strlen(kept) > 0, "a message");
  return result;
}

/* Proves {engine.update.needed} and {engine.update.device}. */
static void refusals(void) {
  const char* callback = "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Callback\"}}";
  char config[512];
  check_error(try_engine(callback, NULL), DS_ERROR_CONFIG, "without an update");
  check_error(
      try_engine("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW\"}}", no_update),
      DS_ERROR_CONFIG, "\"AdamW\" with an update");
  snprintf(config, sizeof config,
           "{\"train_batch_size\": 1, \"device\": \"%s\", \"optimizer\": {\"type\": \"Callback\"}}",
           test_device());
  const ds_status status = try_engine(config, no_update);
  check(status == DS_ERROR_UNSUPPORTED, "a device whose threads may not call back");
  const char* wrong[][2] = {{"[\"a\", \"a\"]", "given twice"},
                            {"[\"master\"]", "\"master\""},
                            {"[\"Big\"]", "\"Big\""},
                            {"[\"a\", 3]", "states"},
                            {"[\"\"]", "\"\""}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    snprintf(config, sizeof config,
             "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Callback\", \"params\": "
             "{\"states\": %s}}}",
             wrong[i][0]);
    check_error(try_engine(config, no_update), DS_ERROR_CONFIG, wrong[i][1]);
  }
  check_error(try_engine("{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true, "
                         "\"bf16_master_weights_and_grads\": true}, \"optimizer\": {\"type\": "
                         "\"Callback\"}}",
                         no_update),
              DS_ERROR_CONFIG, "Callback");
}

static ds_status plain_update(const ds_update* u, void* user_data) {
  (void)user_data;
  for (size_t i = 0; i < u->count; ++i) u->values[i] -= (float)u->lr * u->grads[i];
  return DS_OK;
}

/* An engine with a graph takes the update, too, and its steps equal those of SGD. */
static void with_graph(void) {
  const char* forms[] = {
      "{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"Callback\", \"params\": {\"lr\": "
      "0.1}}}",
      "{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}}"};
  double losses[2][3];
  for (int form = 0; form < 2; ++form) {
    ds_graph* graph = mlp_graph();
    ds_engine_options options;
    ds_engine* engine = NULL;
    mlp_batch batch;
    check_ok(ds_engine_options_init(&options, sizeof options), "options");
    if (form == 0) options.update = plain_update;
    check_ok(ds_engine_create(NULL, forms[form], graph, &options, &engine), forms[form]);
    make_batch(&batch, 0, 0, 1);
    for (int step = 0; step < 3; ++step)
      check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &losses[form][step]), "train");
    free_batch(&batch);
    ds_engine_destroy(engine);
    ds_graph_destroy(graph);
  }
  check(losses[0][2] < losses[0][0], "the loss falls");
  for (int step = 0; step < 3; ++step)
    check(fabs(losses[0][step] - losses[1][step]) < 1e-6, "the losses of SGD");
}

int main(int argc, char** argv) {
  check(argc > 1, "usage: update_test FOLDER");
  layouts(argv[1]);
  run_ranks("update-fails", 2, failing_rank, NULL);
  refusals();
  with_graph();
  return 0;
}
