/* Tests reading and writing states, evaluation, inference, call order, checkpoints, and traces. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { RANKS = 2, BIAS = MLP_OUT };

static const char* folder;

/* Proves {engine.param_find}. */
static void state(ds_engine* engine) {
  const char* name = NULL;
  int64_t dims[2] = {0, 0};
  size_t rank = 0;
  int32_t param = -1;
  float values[BIAS], back[BIAS], grads[BIAS];
  double number = 0;
  check(ds_engine_param_count(engine) == MLP_PARAMS, "four parameters");
  check_ok(ds_engine_param_find(engine, "fc2.bias", &param), "find");
  check_ok(ds_engine_param_info(engine, param, &name, dims, 2, &rank), "info");
  check(strcmp(name, "fc2.bias") == 0 && rank == 1 && dims[0] == BIAS, "name and shape");
  check_error(ds_engine_param_find(engine, "fc2.bais", &param), DS_ERROR_NOT_FOUND, "fc2.bias");
  check_error(ds_engine_param_info(engine, 4, NULL, NULL, 0, NULL), DS_ERROR_INVALID_ARGUMENT,
              "param must be 0 to 3, got 4");
  check_ok(ds_engine_param_find(engine, "fc2.bias", &param), "find again");
  values[0] = 0.5f;
  values[1] = -2.0f;
  check_ok(ds_engine_write(engine, param, "master", values, BIAS), "write");
  check_ok(ds_engine_read(engine, param, "master", back, BIAS), "read");
  check(memcmp(values, back, sizeof back) == 0, "what was written");
  check_ok(ds_engine_read(engine, param, "param", back, BIAS), "read the compute copy");
  check(memcmp(values, back, sizeof back) == 0, "the compute copy follows");
  check_ok(ds_engine_read(engine, param, "grad", grads, BIAS), "read the gradient");
  check(grads[0] != 0.0f && isfinite(grads[0]), "a gradient");
  check_error(ds_engine_read(engine, param, "master", back, 1), DS_ERROR_INVALID_ARGUMENT,
              "data_count of parameter 'fc2.bias' must be 2, got 1");
  check_error(ds_engine_write(engine, param, "grad", values, BIAS), DS_ERROR_STATE,
              "gradient of 'fc2.bias' must be written between");
  check_error(ds_engine_read(engine, param, "sum", back, BIAS), DS_ERROR_INVALID_ARGUMENT,
              "kind must be param, grad, master, exp_avg, exp_avg_sq, got 'sum'");
  check_error(ds_engine_get(engine, "speed", &number), DS_ERROR_NOT_FOUND, "speed");
  check_ok(ds_engine_get(engine, "device_bytes", &number), "bytes");
  check(number > 0, "bytes on the device");
}

/* Reads and writes this rank's elements of a parameter without the other ranks. */
static void local(ds_engine* engine) {
  int32_t param = -1;
  int64_t first = -1, count = -1;
  float part[BIAS] = {0, 0}, whole[BIAS];
  check_ok(ds_engine_param_find(engine, "fc2.bias", &param), "find");
  check_ok(ds_engine_local_range(engine, param, &first, &count), "local range");
  check(first >= 0 && count >= 0 && first + count <= BIAS, "a range of the parameter");
  check_ok(ds_engine_read_local(engine, param, "master", part, (size_t)count), "read local");
  check_ok(ds_engine_read(engine, param, "master", whole, BIAS), "read");
  check(memcmp(part, whole + first, (size_t)count * sizeof(float)) == 0, "a part of the whole");
  check_error(ds_engine_read_local(engine, param, "master", part, (size_t)count + 1),
              DS_ERROR_INVALID_ARGUMENT,
              "data_count of this rank's elements of parameter 'fc2.bias'");
  part[0] = part[1] = 0.25f;
  check_ok(ds_engine_write_local(engine, param, "master", part, (size_t)count), "write local");
  check_error(ds_engine_read(engine, param, "param", whole, BIAS), DS_ERROR_STATE,
              "ds_engine_refresh must be called on all ranks first");
  check_ok(ds_engine_refresh(engine), "refresh");
  check_ok(ds_engine_read(engine, param, "param", whole, BIAS), "read the compute copy");
  check(whole[0] == 0.25f && whole[1] == 0.25f, "all ranks' parts");
}

/* Proves {engine.state.grad_read} for a frozen parameter. */
static void frozen(ds_engine* engine, const mlp_batch* batch) {
  int32_t param = -1;
  float before[BIAS], after[BIAS];
  double loss = 0;
  check_ok(ds_engine_param_find(engine, "fc2.bias", &param), "find");
  check_ok(ds_engine_read(engine, param, "master", before, BIAS), "read");
  check_ok(ds_engine_freeze(engine, &param, 1, 1), "freeze");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, &loss), "step");
  check_ok(ds_engine_read(engine, param, "master", after, BIAS), "read");
  check(memcmp(before, after, sizeof after) == 0, "a frozen parameter stays");
  check_error(ds_engine_read(engine, param, "grad", after, BIAS), DS_ERROR_STATE, "frozen");
  check_ok(ds_engine_freeze(engine, &param, 1, 0), "train it again");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, &loss), "step");
  check_ok(ds_engine_read(engine, param, "master", after, BIAS), "read");
  check(memcmp(before, after, sizeof after) != 0, "it moves again");
  check_error(ds_engine_freeze(engine, &param, 1, 2), DS_ERROR_INVALID_ARGUMENT,
              "frozen must be 0 or 1, got 2");
}

/* Proves {engine.pieces.order}. */
static void order(ds_engine* engine, const mlp_batch* batch) {
  double loss = 0;
  check_error(ds_backward(engine), DS_ERROR_STATE, "backward");
  check_error(ds_step(engine), DS_ERROR_STATE, "step");
  check_ok(ds_forward(engine, batch_inputs(batch), 2, NULL, &loss), "forward");
  check_error(ds_forward(engine, batch_inputs(batch), 2, NULL, &loss), DS_ERROR_STATE, "forward");
  check_error(ds_train_batch(engine, batch_inputs(batch), 2, NULL, &loss), DS_ERROR_STATE,
              "ds_train_batch must not");
  check_error(ds_checkpoint_save(engine, folder, NULL), DS_ERROR_STATE,
              "ds_checkpoint_save must not");
  check_error(ds_engine_refresh(engine), DS_ERROR_STATE, "ds_engine_refresh must not");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_step(engine), "step");
}

/* A learning rate that the caller sets applies until it is reset, and is saved in checkpoints.
 * Proves {engine.set}, {engine.set.name} and {engine.set.value}, with groups() below. */
static void learning_rate(ds_comm* comm, ds_engine* engine, const mlp_batch* batch) {
  char config[512], path[512], *client = NULL;
  float before[MLP_OUT], after[MLP_OUT];
  ds_engine* other;
  ds_step_result last;
  double scheduled;
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "the last step");
  scheduled = last.lr;
  check_ok(ds_engine_read(engine, 3, "master", before, MLP_OUT), "before");
  check_ok(ds_engine_set(engine, "lr", 0), "a learning rate of 0");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, NULL), "a step");
  check_ok(ds_engine_read(engine, 3, "master", after, MLP_OUT), "after");
  check(memcmp(before, after, sizeof after) == 0, "nothing moves");
  check_ok(ds_engine_set(engine, "lr", 0.25), "another");
  snprintf(path, sizeof path, "%s/state_test_set", folder);
  check_ok(
      ds_checkpoint_save(engine, path, "{\"client_state\": {\"epoch\": [3, 0.5]}, \"keep\": 1}"),
      "save");
  mlp_config(config, sizeof config, 0, 1, RANKS);
  other = mlp_engine(comm, config);
  check_ok(ds_checkpoint_load(other, path, NULL, &client), "load");
  check(strcmp(client, "{\"epoch\": [3, 0.5]}") == 0, "the client's state");
  ds_text_destroy(client);
  check_ok(ds_train_batch(other, batch_inputs(batch), 2, NULL, NULL), "a step after the load");
  check_ok(ds_engine_last_step(other, &last, sizeof last), "its result");
  check(last.lr == 0.25, "the checkpoint has what was set");
  ds_engine_destroy(other);
  check_ok(ds_engine_set(engine, "lr", (double)NAN), "the schedule again");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, NULL), "a step");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "its result");
  check(last.lr == scheduled, "the configuration's");
  check_error(ds_engine_set(engine, "lr", -1), DS_ERROR_INVALID_ARGUMENT,
              "at least 0, or NaN, got -1");
  check_error(ds_engine_set(engine, "lr", (double)INFINITY), DS_ERROR_INVALID_ARGUMENT, "got inf");
  check_error(ds_engine_set(engine, "lt", 1), DS_ERROR_NOT_FOUND,
              "name must be lr, weight_decay, beta1, beta2, eps, or one of them after "
              "'param_groups[N].', got 'lt'; did you mean 'lr'?");
  check_error(ds_engine_set(engine, NULL, 1), DS_ERROR_INVALID_ARGUMENT, "name must not be NULL");
  check_error(ds_checkpoint_save(engine, path, "{\"keeps\": 1}"), DS_ERROR_CONFIG,
              "did you mean keep?");
  check_error(ds_checkpoint_save(engine, path, "{\"keep\": -1}"), DS_ERROR_CONFIG,
              "options.keep: must be 0 to");
}

/* Loads a checkpoint by its tag, which "keep" must not have removed. Proves {checkpoint.load.tag}
 * and {checkpoint.save.keep}. */
static void tags(ds_engine* engine, const mlp_batch* batch) {
  char path[512], *text = NULL;
  float saved[MLP_OUT], newest[MLP_OUT], now[MLP_OUT];
  int i;
  snprintf(path, sizeof path, "%s/state_test_tags", folder);
  check_ok(ds_checkpoint_save(engine, path, "{\"tag\": \"best.1\", \"client_state\": 7}"),
           "with a tag");
  check_ok(ds_engine_read(engine, 3, "master", saved, MLP_OUT), "what was saved");
  for (i = 0; i < 2; ++i) {
    check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, NULL), "a step");
    check_ok(ds_checkpoint_save(engine, path, "{\"keep\": 1}"), "without one");
  }
  check_ok(ds_engine_read(engine, 3, "master", newest, MLP_OUT), "the newest");
  check(memcmp(saved, newest, sizeof saved) != 0, "they differ");
  check_ok(ds_checkpoint_load(engine, path, "{\"tag\": \"best.1\"}", &text), "by its tag");
  check(strcmp(text, "7") == 0, "its client state");
  ds_text_destroy(text);
  check_ok(ds_engine_read(engine, 3, "master", now, MLP_OUT), "now");
  check(memcmp(saved, now, sizeof saved) == 0, "what was saved with the tag");
  check_ok(ds_checkpoint_load(engine, path, NULL, NULL), "the newest");
  check_ok(ds_engine_read(engine, 3, "master", now, MLP_OUT), "now");
  check(memcmp(newest, now, sizeof saved) == 0, "what was saved last");
  check_error(ds_checkpoint_load(engine, path, "{\"tag\": \"best\"}", NULL), DS_ERROR_NOT_FOUND,
              "no complete checkpoint with tag 'best'");
  check_error(ds_checkpoint_save(engine, path, "{\"tag\": \"a/b\"}"), DS_ERROR_INVALID_ARGUMENT,
              "got 'a/b'");
  check_error(ds_checkpoint_save(engine, path, "{\"tag\": \"\"}"), DS_ERROR_INVALID_ARGUMENT,
              "got ''");
  check_error(ds_checkpoint_load(engine, path, "{\"tags\": \"a\"}", NULL), DS_ERROR_CONFIG,
              "did you mean tag?");
}

/* States can be accessed by the names that the engine lists. Proves {engine.state_name}. */
static void state_names(ds_engine* engine) {
  const char* names[] = {"master", "exp_avg", "exp_avg_sq", "param", "grad"};
  float values[MLP_OUT];
  int32_t i;
  for (i = 0; i < 5; ++i) {
    check(strcmp(ds_engine_state_name(engine, i), names[i]) == 0, names[i]);
    check_ok(ds_engine_read(engine, 3, ds_engine_state_name(engine, i), values, MLP_OUT), names[i]);
  }
  check(ds_engine_state_name(engine, 5) == NULL && ds_engine_state_name(engine, -1) == NULL,
        "no more names");
  check(ds_engine_state_name(NULL, 0) == NULL, "no engine");
  check_error(ds_engine_read(engine, 3, NULL, values, MLP_OUT), DS_ERROR_INVALID_ARGUMENT,
              "state must not be NULL");
}

/* The parameters of a group do not change with its learning rate of 0, and change with 0.5. */
static void groups(ds_engine* engine, const mlp_batch* batch) {
  float before[MLP_OUT], after[MLP_OUT];
  int32_t param = 3, group = -1;
  double number = 0;
  check_ok(ds_engine_get(engine, "param_groups", &number), "groups");
  check(number == 1, "one group at first");
  check_ok(ds_engine_group_add(engine, &param, 1, "{\"lr\": 0, \"weight_decay\": 0}", &group),
           "a group");
  check(group == 1, "its number");
  check_ok(ds_engine_read(engine, param, "master", before, MLP_OUT), "before");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, NULL), "a step");
  check_ok(ds_engine_read(engine, param, "master", after, MLP_OUT), "after");
  check(memcmp(before, after, sizeof after) == 0, "its parameters stay");
  check_ok(ds_engine_set(engine, "param_groups[1].lr", 0.5), "its own lr");
  check_ok(ds_engine_get(engine, "param_groups[1].lr", &number), "what was set");
  check(number == 0.5, "0.5");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, NULL), "a step");
  check_ok(ds_engine_read(engine, param, "master", after, MLP_OUT), "after");
  check(memcmp(before, after, sizeof after) != 0, "its parameters move");
  group = 7;
  check_error(ds_engine_group_add(engine, &param, 1, "{\"lt\": 1}", &group), DS_ERROR_CONFIG,
              "options.lt: a group has lr, weight_decay, betas, eps; did you mean 'lr'?");
  check(group == 7, "an output after an error");
  check_error(ds_engine_group_add(engine, NULL, 1, NULL, &group), DS_ERROR_INVALID_ARGUMENT,
              "params must");
  check_error(ds_engine_group_add(engine, &param, 1, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out must not be NULL");
}

/* Reads the details of an error. Proves {runtime.details}. */
static void details(ds_engine* engine) {
  const char *key = NULL, *tensor = NULL;
  int32_t rank = 7, group = -1, param = 3;
  float value = 0;
  check_error(ds_engine_read(engine, 3, "master", &value, 1), DS_ERROR_INVALID_ARGUMENT,
              "data_count");
  ds_last_error_details(&key, &tensor, &rank);
  check(strcmp(tensor, "fc2.bias") == 0 && strcmp(key, "") == 0 && rank == -1, "a parameter");
  check_error(ds_engine_group_add(engine, &param, 1, "{\"lr\": -1}", &group), DS_ERROR_CONFIG,
              "options.lr");
  ds_last_error_details(&key, NULL, &rank);
  check(strcmp(key, "options.lr") == 0 && rank == 0, "a key, on the first rank that was refused");
  ds_last_error_details(NULL, NULL, NULL);
  check_error(ds_backward(NULL), DS_ERROR_INVALID_ARGUMENT, "engine must not be NULL");
  ds_last_error_details(&key, &tensor, &rank);
  check(strcmp(key, "") == 0 && strcmp(tensor, "") == 0 && rank == -1, "nothing that it names");
}

/* Proves {checkpoint.load.any} for stages; round_trip_test.cpp and slices_test.cpp prove it for
 * world sizes and tiers. */
static void round_trip(int rank, ds_comm* comm, ds_engine* engine, const mlp_batch* batch) {
  char config[512], path[512], *text = NULL;
  double before = 0, after = 0, step = 0;
  ds_engine* other;
  snprintf(path, sizeof path, "%s/state_test_checkpoint", folder);
  check_ok(ds_checkpoint_save(engine, path, NULL), "save");
  check_ok(ds_train_batch(engine, batch_inputs(batch), 2, NULL, &before), "a step after the save");
  mlp_config(config, sizeof config, 0, 1, RANKS);
  /* The checkpoint was saved at stage 3 and is loaded at stage 0. */
  other = mlp_engine(comm, config);
  check_ok(ds_checkpoint_load(other, path, NULL, NULL), "load");
  check_ok(ds_train_batch(other, batch_inputs(batch), 2, NULL, &after),
           "the same step after the load");
  check(before == after, "the same bits");
  check_ok(ds_engine_get(other, "step", &step), "step");
  check(step == 6, "the step count is part of a checkpoint");
  ds_engine_destroy(other);
  check_ok(ds_checkpoint_info(path, &text), "info");
  check(strstr(text, "\"step\": 5") && strstr(text, "payload_hash"), "step and hash");
  ds_text_destroy(text);
  snprintf(path, sizeof path, "%s/state_test_nowhere", folder);
  check_error(ds_checkpoint_load(engine, path, NULL, NULL), DS_ERROR_NOT_FOUND,
              "state_test_nowhere");
  check_ok(ds_comm_barrier(comm), "barrier");
  (void)rank;
}

/* Writes weights to a model folder and reads equal values back in f32. */
static void model_folder(ds_comm* comm, ds_engine* engine) {
  float kept[BIAS], other[BIAS] = {0}, back[BIAS];
  char path[512];
  int32_t param = -1;
  int i;
  check_ok(ds_engine_param_find(engine, "fc2.bias", &param), "find");
  check_ok(ds_engine_read(engine, param, "master", kept, BIAS), "read");
  snprintf(path, sizeof path, "%s/state_test_model", folder);
  check_ok(ds_checkpoint_save_model(engine, path, NULL), "save the model");
  check_ok(ds_engine_write(engine, param, "master", other, BIAS), "write");
  check_ok(ds_checkpoint_load_model(engine, path), "load the model");
  check_ok(ds_engine_read(engine, param, "master", back, BIAS), "read");
  for (i = 0; i < BIAS; ++i) check(kept[i] == back[i], "the weights that were saved");
  snprintf(path, sizeof path, "%s/state_test_nowhere", folder);
  check_error(ds_checkpoint_load_model(engine, path), DS_ERROR_NOT_FOUND, "state_test_nowhere");
  check_error(ds_checkpoint_load_model(engine, NULL), DS_ERROR_INVALID_ARGUMENT, "folder");
  check_ok(ds_comm_barrier(comm), "barrier");
}

static void rank_body(int rank, ds_comm* comm, void* data) {
  const ds_tensor* some[2] = {NULL, NULL};
  float prediction;
  char config[512], *text = NULL;
  mlp_batch batch;
  double loss = 0, eval = 0, again = 0;
  int64_t shape[2] = {0, 0};
  size_t size = 0;
  ds_tensor* out = NULL;
  void* values = NULL;
  ds_engine* engine;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  make_batch(&batch, rank, 0, 1);
  check_ok(ds_eval_batch(engine, batch_inputs(&batch), 2, NULL, &eval), "eval");
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "train");
  check(eval == loss, "evaluation before a step is the loss of the step");
  check_ok(ds_eval_batch(engine, batch_inputs(&batch), 2, NULL, &again), "eval again");
  check(again < eval, "a step helps");
  check_ok(ds_infer(engine, batch_inputs(&batch), 2, NULL, &out), "infer");
  check_ok(ds_tensor_info(out, NULL, shape, NULL, 2, &size, NULL, &values), "prediction");
  check(size == 2 && shape[0] == MLP_ROWS && shape[1] == MLP_OUT && isfinite(*(float*)values),
        "a prediction per row");
  prediction = *(float*)values;
  ds_tensor_destroy(out);
  some[0] = batch.tensors[0];
  check_ok(ds_infer(engine, some, 2, NULL, &out),
           "infer without targets, which a prediction does not depend on");
  check_ok(ds_tensor_info(out, NULL, NULL, NULL, 0, NULL, NULL, &values), "prediction");
  check(*(float*)values == prediction, "the same prediction");
  ds_tensor_destroy(out);
  some[0] = NULL;
  check_error(ds_infer(engine, some, 2, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "inputs[0], 'x', must not be NULL");
  state(engine);
  local(engine);
  frozen(engine, &batch);
  order(engine, &batch);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "third step");
  round_trip(rank, comm, engine, &batch);
  model_folder(comm, engine);
  learning_rate(comm, engine, &batch);
  tags(engine, &batch);
  state_names(engine);
  groups(engine, &batch);
  details(engine);
  check_error(ds_engine_trace(engine, "x"), DS_ERROR_STATE, "options.trace");
  check_ok(ds_engine_plan_print(engine, &text), "plan");
  check(strlen(text) > 100, "a program");
  ds_text_destroy(text);
  check_ok(ds_engine_plan_report(engine, DS_FORMAT_TEXT, &text), "report");
  check(strstr(text, "bytes per rank") != NULL, "a table");
  ds_text_destroy(text);
  check_ok(ds_engine_plan_report(engine, DS_FORMAT_JSON, &text), "report as JSON");
  check(strstr(text, "\"kinds\": ") != NULL && strstr(text, "\"overhead\": ") != NULL,
        "its members");
  ds_text_destroy(text);
  free_batch(&batch);
  ds_engine_destroy(engine);
}

static void trace(void) {
  char config[512], path[512], text[64] = "";
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  ds_engine_options options;
  mlp_batch batch;
  FILE* file;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_options_init(&options, sizeof options), "options");
  options.trace = 1;
  check_ok(ds_engine_create(NULL, config, graph, &options, &engine), "engine");
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "train");
  snprintf(path, sizeof path, "%s/state_test_trace.json", folder);
  check_ok(ds_engine_trace(engine, path), "trace");
  file = fopen(path, "r");
  check(file && fread(text, 1, sizeof text - 1, file) > 20, "a trace file");
  fclose(file);
  free_batch(&batch);
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: api_state_test FOLDER, where it may write\n");
    return 2;
  }
  folder = argv[1];
  run_ranks("api_state", RANKS, rank_body, NULL);
  trace();
  return 0;
}
