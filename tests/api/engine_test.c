/* Tests what ds.h promises about an engine's states, gradients, groups and counters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

/* BIAS is the index of the parameter fc2.bias. */
enum { RANKS = 2, WEIGHTS = MLP_HIDDEN * MLP_IN, BIAS = 3 };

/* Calls ds_train_batch for one micro-batch of a rank. */
static ds_status train(ds_engine* engine, const mlp_batch* batch, double* loss) {
  return ds_train_batch(engine, batch_inputs(batch), 2, NULL, loss);
}
static ds_status forward(ds_engine* engine, const mlp_batch* batch) {
  return ds_forward(engine, batch_inputs(batch), 2, NULL, NULL);
}
static ds_status evaluate(ds_engine* engine, const mlp_batch* batch, double* loss) {
  return ds_eval_batch(engine, batch_inputs(batch), 2, NULL, loss);
}
static ds_status infer(ds_engine* engine, const mlp_batch* batch, ds_tensor** out) {
  return ds_infer(engine, batch_inputs(batch), 2, NULL, out);
}

static void read_bias(ds_engine* engine, const char* state, float* values) {
  check_ok(ds_engine_read(engine, BIAS, state, values, MLP_OUT), state);
}

/* Ranks with different configurations, and budgets that are too small, are refused on every rank.
 * Proves {engine.create.config} and {engine.create.budget}. */
static void refused(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  (void)data;
  check_error(ds_engine_create(comm, "{\"optimizer\": 3}", graph, NULL, &engine), DS_ERROR_CONFIG,
              "optimizer");
  mlp_config(config, sizeof config, rank, 1, RANKS);
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_CONFIG,
              "zero_optimization.stage");
  mlp_config(config, sizeof config, 0, 1, RANKS);
  strcpy(strrchr(config, '}'), ", \"memory_budget\": {\"device\": 1000}}");
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_OUT_OF_MEMORY,
              "device");
  check(
      strchr(ds_last_error_message(), '\n') && strstr(ds_last_error_message(), "optimizer states"),
      "a table of what takes the memory");
  check(engine == NULL, "no engine");
  ds_graph_destroy(graph);
}

static int64_t numel_of(ds_engine* engine, int32_t param) {
  int64_t dims[2] = {1, 1};
  check_ok(ds_engine_param_info(engine, param, NULL, dims, 2, NULL), "shape");
  return dims[0] * dims[1];
}

/* Returns the loss of a batch in a single-rank engine with these masters. */
static double loss_alone(float masters[MLP_PARAMS][WEIGHTS], const mlp_batch* batch) {
  char config[512];
  double loss = 0;
  ds_engine* engine;
  int32_t p;
  mlp_config(config, sizeof config, 0, 1, 1);
  engine = mlp_engine(NULL, config);
  for (p = 0; p < MLP_PARAMS; ++p) {
    check_ok(ds_engine_write(engine, p, "master", masters[p], (size_t)numel_of(engine, p)),
             "write");
  }
  check_ok(evaluate(engine, batch, &loss), "evaluate");
  ds_engine_destroy(engine);
  return loss;
}

/* Rank 0 has data for three steps, rank 1 for one. Proves {engine.join}, and {engine.join.means}:
 * the loss of a step in which rank 1 has no samples is that of rank 0's samples. */
static void join(int rank, ds_comm* comm, void* data) {
  char config[512];
  float masters[MLP_PARAMS][WEIGHTS];
  double losses[2] = {0, 0}, loss = 0;
  int64_t steps = -1;
  ds_engine* engine;
  mlp_batch batch;
  ds_step_result last;
  int32_t p;
  int s;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  make_batch(&batch, rank, 0, 1);
  check_ok(train(engine, &batch, &loss), "a step of both");
  for (p = 0; p < MLP_PARAMS; ++p) {
    check_ok(ds_engine_read(engine, p, "master", masters[p], (size_t)numel_of(engine, p)), "read");
  }
  for (s = 0; s < 2 && rank == 0; ++s)
    check_ok(train(engine, &batch, &losses[s]), "a step of rank 0");
  if (rank == 0)
    check(losses[0] == loss_alone(masters, &batch), "the mean of the samples that there are");
  check_ok(ds_engine_join(engine, &steps), "join");
  check(steps == (rank == 0 ? 0 : 2), "the steps that rank 1 took part in");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  check(last.step == 3 && last.updates == 3, "both have made three");
  check_ok(ds_comm_broadcast(comm, losses, sizeof losses, 0), "rank 0's losses");
  check(last.loss == losses[1], "one loss on both");
  check_ok(train(engine, &batch, &loss), "both have data again");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Proves {engine.state.grad_read}, {engine.state.grad_write} and {engine.state.grad_used} with two
 * micro-steps per step. */
static void gradients(void) {
  char config[512];
  float grad[MLP_OUT], before[MLP_OUT], after[MLP_OUT];
  ds_engine* engine;
  ds_step_result last;
  mlp_batch batch;
  int32_t p;
  mlp_config(config, sizeof config, 0, 2, 1);
  engine = mlp_engine(NULL, config);
  make_batch(&batch, 0, 0, 1);
  check_error(ds_engine_write(engine, BIAS, "grad", before, MLP_OUT), DS_ERROR_STATE,
              "must be written between");
  check_ok(forward(engine, &batch), "forward");
  check_ok(ds_backward(engine), "backward");
  check_error(ds_engine_read(engine, BIAS, "grad", grad, MLP_OUT), DS_ERROR_STATE, "'fc2.bias'");
  check_error(ds_engine_write(engine, BIAS, "grad", grad, MLP_OUT), DS_ERROR_STATE,
              "must be written between");
  check_ok(forward(engine, &batch), "forward");
  check_ok(ds_backward(engine), "backward");
  read_bias(engine, "grad", grad);
  check(grad[0] != 0 && grad[1] != 0, "the mean of both micro-steps");
  for (p = 0; p < MLP_PARAMS; ++p) {
    float zeros[WEIGHTS] = {0};
    check_ok(ds_engine_write(engine, p, "grad", zeros, (size_t)numel_of(engine, p)), "write");
  }
  grad[0] = 3, grad[1] = 4;
  check_ok(ds_engine_write(engine, BIAS, "grad", grad, MLP_OUT), "write");
  check_ok(ds_step(engine), "step");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  check(fabs(last.grad_norm - 5) < 1e-6, "the norm is that of what was written");
  read_bias(engine, "exp_avg", after);
  check(fabsf(after[0] - 0.1f * 3 / 5) < 1e-6f && fabsf(after[1] - 0.1f * 4 / 5) < 1e-6f,
        "clipped to 1, and used by the update");
  check_error(ds_engine_write(engine, BIAS, "grad", grad, MLP_OUT), DS_ERROR_STATE,
              "must be written between");
  read_bias(engine, "grad", grad);
  for (p = 0; p < 2; ++p) {
    check_ok(forward(engine, &batch), "forward");
    check_ok(ds_backward(engine), "backward");
  }
  read_bias(engine, "master", before);
  grad[0] = (float)INFINITY;
  check_ok(ds_engine_write(engine, BIAS, "grad", grad, MLP_OUT), "write");
  check_ok(ds_step(engine), "step");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  read_bias(engine, "master", after);
  check(last.skipped == 1 && memcmp(before, after, sizeof after) == 0, "infinity skips the step");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Gradients on nvme can be read but not written. Proves {engine.state.grad_write}. */
static void gradients_on_files(const char* folder) {
  char config[1024];
  float grad[MLP_OUT];
  ds_engine* engine;
  mlp_batch batch;
  snprintf(config, sizeof config,
           "{\"train_batch_size\": %d, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
           "0.01}}, \"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": "
           "0, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
           "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}}",
           MLP_ROWS, folder, folder);
  engine = mlp_engine(NULL, config);
  make_batch(&batch, 0, 0, 1);
  check_ok(forward(engine, &batch), "forward");
  check_ok(ds_backward(engine), "backward");
  read_bias(engine, "grad", grad);
  check_error(ds_engine_write(engine, BIAS, "grad", grad, MLP_OUT), DS_ERROR_UNSUPPORTED,
              "lies on nvme");
  check_ok(ds_step(engine), "step");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Proves {engine.state.param} and {engine.write}. */
static void copies(void) {
  const float values[MLP_OUT] = {0.5f, -2};
  const float others[MLP_OUT] = {1.5f, 0.25f};
  float back[MLP_OUT];
  char config[512];
  ds_engine* engine;
  mlp_config(config, sizeof config, 0, 1, 1);
  engine = mlp_engine(NULL, config);
  check_ok(ds_engine_write(engine, BIAS, "param", values, MLP_OUT), "write the compute copy");
  read_bias(engine, "master", back);
  check(memcmp(values, back, sizeof back) == 0, "the master");
  check_ok(ds_engine_write(engine, BIAS, "master", others, MLP_OUT), "write the master");
  read_bias(engine, "param", back);
  check(memcmp(others, back, sizeof back) == 0, "the compute copy");
  ds_engine_destroy(engine);
}

/* Proves {engine.local_range}: the ranks' counts add up to the whole tensor, and each range begins
 * where the previous one ends. */
static void ranges(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_engine* engine;
  int32_t p;
  (void)rank, (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  for (p = 0; p < MLP_PARAMS; ++p) {
    int64_t own[2] = {-1, -1}, all[2 * RANKS], at = 0;
    int r;
    check_ok(ds_engine_local_range(engine, p, &own[0], &own[1]), "range");
    check_ok(ds_comm_all_gather(comm, own, sizeof own, all), "ranges");
    for (r = 0; r < RANKS; ++r) {
      check(all[2 * r + 1] == 0 || all[2 * r] == at, "the ranges of the ranks are contiguous");
      at += all[2 * r + 1];
    }
    check(at == numel_of(engine, p), "the whole parameter");
  }
  ds_engine_destroy(engine);
}

/* Proves {engine.write_local.refresh} for master and param and for each call, on both ranks; also
 * for a rank without elements. */
static void refresh(int rank, ds_comm* comm, void* data) {
  static const char* const states[2] = {"master", "param"};
  char config[512];
  double loss = 0;
  ds_engine* engine;
  ds_tensor* out = NULL;
  mlp_batch batch;
  int s;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  make_batch(&batch, rank, 0, 1);
  for (s = 0; s < 2; ++s) {
    int64_t first = -1, count = -1;
    float part[WEIGHTS], whole[WEIGHTS];
    int i;
    check_ok(ds_engine_local_range(engine, BIAS, &first, &count), "range");
    for (i = 0; i < count; ++i) part[i] = (float)(7 + s);
    check_ok(ds_engine_write_local(engine, BIAS, states[s], part, (size_t)count), "write");
    check_error(train(engine, &batch, &loss), DS_ERROR_STATE, "ds_engine_refresh must be called");
    check_error(forward(engine, &batch), DS_ERROR_STATE, "ds_engine_refresh must be called");
    check_error(evaluate(engine, &batch, &loss), DS_ERROR_STATE,
                "ds_engine_refresh must be called");
    check_error(infer(engine, &batch, &out), DS_ERROR_STATE, "ds_engine_refresh must be called");
    check_error(ds_engine_read(engine, BIAS, "param", whole, MLP_OUT), DS_ERROR_STATE,
                "ds_engine_refresh must be called");
    check_ok(ds_engine_refresh(engine), "refresh");
    read_bias(engine, "param", whole);
    check(whole[0] == (float)(7 + s) && whole[1] == whole[0], "what all ranks have written");
    check_ok(train(engine, &batch, &loss), "train");
  }
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Proves {engine.freeze.agree} and {engine.group_add.agree}: the ranks' arguments first differ,
 * then one rank's are invalid; no call changes anything. */
static void agree(int rank, ds_comm* comm, void* data) {
  char config[512];
  int32_t param = rank, group = -7;
  double groups = 0, loss = 0;
  float before[MLP_OUT], after[MLP_OUT];
  ds_engine* engine;
  mlp_batch batch;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  make_batch(&batch, rank, 0, 1);
  check_error(ds_engine_freeze(engine, &param, 1, 1), DS_ERROR_INVALID_ARGUMENT, "");
  check_error(ds_engine_group_add(engine, &param, 1, NULL, &group), DS_ERROR_CONFIG,
              "fc1.weight on rank 0");
  param = rank == 1 ? 99 : BIAS;
  check_error(ds_engine_freeze(engine, &param, 1, 1), DS_ERROR_INVALID_ARGUMENT, "99");
  check_error(ds_engine_group_add(engine, &param, 1, NULL, &group), DS_ERROR_INVALID_ARGUMENT,
              "99");
  check_ok(ds_engine_get(engine, "param_groups", &groups), "groups");
  check(groups == 1 && group == -7, "no group");
  read_bias(engine, "master", before);
  check_ok(train(engine, &batch, &loss), "train");
  read_bias(engine, "master", after);
  check(memcmp(before, after, sizeof after) != 0, "nothing is frozen");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Proves {engine.last_step}, {engine.skip_reason}, {engine.trace.state} and {engine.param_count};
 * also {engine.state_name} for SGD, whose only state is not covered by state_test.c. */
static void told(void) {
  static const char* const names[] = {"master", "momentum_buffer", "param", "grad"};
  ds_step_result last;
  ds_engine* engine;
  char* text = NULL;
  int32_t i;
  memset(&last, 0xff, sizeof last);
  engine = mlp_engine(
      NULL,
      "{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, "
      "\"momentum\": 0.9}}}");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "before any step");
  check(last.struct_size == sizeof last && last.step == 0 && last.updates == 0 && last.skipped == 0,
        "zeros");
  check(last.loss == 0 && last.grad_norm == 0 && last.lr == 0 && last.reserved == 0, "zeros");
  check(last.loss_scale == 0 && last.loss_scale_at_floor == 0 && last.reserved_2 == 0, "zeros");
  check_ok(ds_engine_skip_reason(engine, &text), "reason");
  check(strcmp(text, "") == 0, "no reason");
  ds_text_destroy(text);
  check_error(ds_engine_trace(engine, "trace.json"), DS_ERROR_STATE, "options.trace 1");
  check(ds_engine_param_count(engine) == MLP_PARAMS && ds_engine_param_count(NULL) == -1,
        "parameters");
  for (i = 0; i < 4; ++i) check(strcmp(ds_engine_state_name(engine, i), names[i]) == 0, names[i]);
  check(!ds_engine_state_name(engine, 4) && !ds_engine_state_name(engine, -1), "no more");
  ds_engine_destroy(engine);
}

/* Trains in fp16 on f32 inputs: checks the loss scale of a step and of the next one, and a step
 * that is skipped at the minimum scale. */
static void scaled(void) {
  ds_step_result last;
  double loss, scale = 0;
  mlp_batch batch;
  ds_engine* engine = mlp_engine(
      NULL,
      "{\"train_batch_size\": 6, \"fp16\": {\"enabled\": true, \"auto_cast\": true, "
      "\"initial_scale_power\": 40, \"hysteresis\": 1, \"min_loss_scale\": 549755813888}}");
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_engine_get(engine, "loss_scale", &scale), "scale");
  check(scale == 1099511627776.0, "2^40");
  check_ok(train(engine, &batch, &loss), "a step that overflows");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  check(last.skipped == 1 && last.loss_scale == scale && last.loss_scale_at_floor == 0,
        "it halves");
  check_ok(ds_engine_get(engine, "loss_scale", &scale), "scale");
  check(scale == 549755813888.0, "2^39");
  check_ok(train(engine, &batch, &loss), "a step at the minimum");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "last step");
  check(last.skipped == 1 && last.loss_scale == scale && last.loss_scale_at_floor == 1,
        "it cannot halve");
  check(last.step == 2 && last.updates == 0, "two steps, no update");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

int main(int argc, char** argv) {
  run_ranks("api_engine_refused", RANKS, refused, NULL);
  run_ranks("api_engine_join", RANKS, join, NULL);
  gradients();
  gradients_on_files(argc > 1 ? argv[1] : ".");
  copies();
  run_ranks("api_engine_ranges", RANKS, ranges, NULL);
  run_ranks("api_engine_refresh", RANKS, refresh, NULL);
  run_ranks("api_engine_agree", RANKS, agree, NULL);
  told();
  scaled();
  return 0;
}
