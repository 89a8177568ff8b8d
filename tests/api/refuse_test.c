/* Tests calls that an engine refuses, and errors after which it is still usable. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

static void configurations(void) {
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  char config[512];
  check_error(ds_engine_create(NULL, "{\"gradient_clippin\": 1.0}", graph, NULL, &engine),
              DS_ERROR_CONFIG, "gradient_clipping");
  check_error(
      ds_engine_create(NULL, "{\"zero_optimization\": {\"stage\": 7}}", graph, NULL, &engine),
      DS_ERROR_CONFIG, "zero_optimization.stage");
  check_error(ds_engine_create(NULL, "{", graph, NULL, &engine), DS_ERROR_CONFIG, "config");
  mlp_config(config, sizeof config, 0, 1, 1);
  strcpy(strrchr(config, '}'), ", \"memory_budget\": {\"device\": 1000}}");
  check_error(ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_OUT_OF_MEMORY,
              "device");
  check(engine == NULL, "no engine");
  ds_graph_destroy(graph);
}

static void inputs(void) {
  const int64_t too_many[] = {MLP_ROWS + 1, MLP_IN};
  char config[512];
  const ds_tensor* one[2];
  ds_tensor* longer = NULL;
  ds_engine* engine;
  mlp_batch batch;
  double loss = 0;
  mlp_config(config, sizeof config, 0, 1, 1);
  engine = mlp_engine(NULL, config);
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_tensor_create(DS_DTYPE_F32, too_many, 2, NULL, NULL, NULL, &longer),
           "a longer input");
  one[0] = longer;
  one[1] = batch.tensors[1];
  check_error(ds_train_batch(engine, one, 2, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "input 'x' has 7 rows");
  check(strstr(ds_last_error_message(), "6") != NULL, "the bound is named");
  one[0] = batch.tensors[0];
  one[1] = NULL;
  check_error(ds_train_batch(engine, one, 2, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "must not be NULL: it is needed");
  check_error(ds_train_batch(engine, one, 1, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "2 inputs, got 1");
  check_error(ds_train_batch(engine, NULL, 2, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "inputs must not be NULL");
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss),
           "refused inputs harm nothing");
  ds_tensor_destroy(longer);
  free_batch(&batch);
  ds_engine_destroy(engine);
}

static void token_ids(void) {
  const int64_t ids_dims[] = {-1}, table_dims[] = {10, 4}, one_dim[] = {3};
  int32_t ids_data[3] = {1, 9, 10}, target_data[3] = {0, 3, -100};
  int32_t pair[2], ids = -1, targets = -1, loss = -1;
  const ds_tensor* batch[2];
  ds_tensor* tensors[2] = {NULL, NULL};
  ds_graph* graph = NULL;
  ds_engine* engine = NULL;
  check_ok(ds_graph_create("table", 3, &graph), "graph");
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, ids_dims, 1, &ids), "ids");
  check_ok(ds_graph_input(graph, "targets", DS_DTYPE_I32, ids_dims, 1, &targets), "targets");
  check_ok(ds_graph_param(graph, "table", table_dims, 2, "normal", 1, &pair[0]), "table");
  pair[1] = ids;
  check_ok(ds_graph_op(graph, "embedding", pair, 2, NULL, &pair[0]), "embedding");
  pair[1] = targets;
  check_ok(ds_graph_op(graph, "cross_entropy", pair, 2, NULL, &loss), "loss");
  check_ok(ds_graph_output(graph, "loss", loss), "output");
  check_ok(ds_engine_create(NULL, "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Adam\"}}",
                            graph, NULL, &engine),
           "engine");
  check_ok(ds_tensor_create(DS_DTYPE_I32, one_dim, 1, NULL, ids_data, NULL, &tensors[0]), "ids");
  check_ok(ds_tensor_create(DS_DTYPE_I32, one_dim, 1, NULL, target_data, NULL, &tensors[1]),
           "targets");
  batch[0] = tensors[0];
  batch[1] = tensors[1];
  check_error(ds_train_batch(engine, batch, 2, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "input 'ids' must have ids from 0 to 9, got 10 at 2");
  ids_data[2] = 0;
  target_data[1] = 4;
  check_error(ds_train_batch(engine, batch, 2, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "input 'targets' must have ids from 0 to 3, got 4 at 1");
  target_data[1] = 3;
  check_ok(ds_train_batch(engine, batch, 2, NULL, NULL), "ids in range; -100 is no target");
  ds_tensor_destroy(tensors[0]);
  ds_tensor_destroy(tensors[1]);
  ds_graph_destroy(graph);
  ds_engine_destroy(engine);
}

/* Tensors with the right number of elements: turned ones are refused; flat ones, rows of two
 * dimensions, and dimensions of 1 are accepted. */
static void other_shapes(void) {
  char config[512];
  const int64_t turned[2] = {MLP_IN, MLP_ROWS}, flat[1] = {MLP_ROWS * MLP_IN},
                cubes[3] = {2, MLP_ROWS / 2, MLP_IN};
  const int64_t dims[2] = {2, 3}, other[2] = {3, 2}, ones[4] = {1, 2, 1, 3}, line[1] = {6};
  float x[MLP_ROWS * MLP_IN] = {0};
  ds_engine* engine;
  ds_tensor* tensor = NULL;
  const ds_tensor* inputs[2];
  mlp_batch batch;
  int32_t param = -1;
  mlp_config(config, sizeof config, 0, 1, 1);
  engine = mlp_engine(NULL, config);
  make_batch(&batch, 0, 0, 1);
  inputs[1] = batch.tensors[1];
  check_ok(ds_tensor_create(DS_DTYPE_F32, turned, 2, NULL, x, NULL, &tensor), "turned");
  inputs[0] = tensor;
  check_error(ds_train_batch(engine, inputs, 2, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "input 'x' is f32[n,4], got [4,6]");
  ds_tensor_destroy(tensor);
  check_ok(ds_tensor_create(DS_DTYPE_F32, flat, 1, NULL, x, NULL, &tensor), "flat");
  inputs[0] = tensor;
  check_ok(ds_train_batch(engine, inputs, 2, NULL, NULL), "a flat input");
  ds_tensor_destroy(tensor);
  check_ok(ds_tensor_create(DS_DTYPE_F32, cubes, 3, NULL, x, NULL, &tensor),
           "two dimensions of rows");
  inputs[0] = tensor;
  check_ok(ds_train_batch(engine, inputs, 2, NULL, NULL), "rows of two dimensions");
  ds_tensor_destroy(tensor);
  free_batch(&batch);
  ds_engine_destroy(engine);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "delegate");
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 2, &param), "parameter");
  check_ok(ds_engine_start(engine), "start");
  check_ok(ds_tensor_create(DS_DTYPE_F32, other, 2, NULL, x, NULL, &tensor), "turned");
  check_error(ds_grad_ready(engine, param, tensor, NULL), DS_ERROR_INVALID_ARGUMENT,
              "gradient of 'w' must have shape [2,3], got [3,2]");
  check_error(ds_grad_ready(engine, 7, tensor, NULL), DS_ERROR_INVALID_ARGUMENT, "got 7");
  ds_tensor_destroy(tensor);
  check_ok(ds_tensor_create(DS_DTYPE_F32, ones, 4, NULL, x, NULL, &tensor), "with dimensions of 1");
  check_ok(ds_grad_ready(engine, param, tensor, NULL), "dimensions of 1 mean nothing");
  ds_tensor_destroy(tensor);
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_step(engine), "step");
  check_ok(ds_tensor_create(DS_DTYPE_F32, line, 1, NULL, x, NULL, &tensor), "flat");
  check_ok(ds_grad_ready(engine, param, tensor, NULL), "a flat gradient");
  ds_tensor_destroy(tensor);
  ds_engine_destroy(engine);
}

static ds_engine* busy;
static int entered, ended;
static void ends(void* user_data) {
  (void)user_data;
  ++ended;
}

/* Proves {graph.custom_inside}. */
static ds_status uses_its_engine(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                                 void* user_data) {
  double number = -5;
  ds_tensor* none = NULL;
  (void)user_data;
  check_error(ds_engine_get(busy, "step", &number), DS_ERROR_STATE, "engine is inside a call");
  check_error(ds_eval_batch(busy, inputs, 1, NULL, &number), DS_ERROR_STATE,
              "engine is inside a call");
  check_error(ds_infer(busy, inputs, 1, NULL, &none), DS_ERROR_STATE, "engine is inside a call");
  /* These calls work inside a callback, because the list of parameters and states never changes. */
  check(ds_engine_param_count(busy) > 0 && strcmp(ds_engine_state_name(busy, 0), "master") == 0,
        "names");
  /* The engine is destroyed once the outer call has returned. */
  if (entered == 1) ds_engine_destroy(busy);
  check(number == -5 && none == NULL, "outputs of refused calls");
  ++entered;
  return ds_tensor_copy(outputs[0], inputs[0], NULL);
}

static ds_status passes_on(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                           const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                           void* user_data) {
  (void)inputs, (void)outputs, (void)user_data;
  return ds_tensor_copy(input_grads[0], output_grads[0], NULL);
}

static void callbacks(void) {
  const int64_t dims[2] = {-1, 4}, square[2] = {-1, -1}, rows[2] = {6, 4}, weight[2] = {4, 4};
  const ds_dtype like = DS_DTYPE_NONE;
  const size_t two = 2;
  int32_t x = -1, none = -1, pair[2], made = -1, loss = -1;
  ds_custom_op op;
  ds_graph* graph = NULL;
  ds_tensor* tensor = NULL;
  double value = 0;
  float data[24] = {1, 2, 3};
  check_ok(ds_graph_create("inside", 6, &graph), "graph");
  check_error(ds_graph_input(graph, "square", DS_DTYPE_F32, square, 2, &none),
              DS_ERROR_INVALID_ARGUMENT,
              "input 'square' must have at most one dimension n, got f32[n,n]");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, dims, 2, &x), "input");
  check_ok(ds_graph_param(graph, "w", weight, 2, "normal", 0.5, &pair[1]), "weight");
  pair[0] = x;
  check_ok(ds_graph_op(graph, "linear", pair, 2, NULL, &pair[0]), "linear");
  memset(&op, 0, sizeof op);
  op.struct_size = sizeof op;
  op.forward = uses_its_engine, op.backward = passes_on, op.destroy = ends;
  op.outputs_count = 1, op.dtypes = &like, op.dims_counts = &two, op.dims = dims;
  check_ok(ds_graph_custom_op(graph, "inside", &op, pair, 1, &made), "custom");
  pair[0] = made, pair[1] = x;
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &loss), "loss");
  check_ok(ds_graph_output(graph, "loss", loss), "output");
  check_ok(ds_graph_output(graph, "y", made), "output");
  check_ok(ds_engine_create(NULL, "{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"Adam\"}}",
                            graph, NULL, &busy),
           "engine");
  ds_graph_destroy(graph);
  check_ok(ds_tensor_create(DS_DTYPE_F32, rows, 2, NULL, data, NULL, &tensor), "x");
  check_ok(ds_train_batch(busy, (const ds_tensor* const*)&tensor, 1, NULL, &value), "a step");
  check_ok(ds_engine_get(busy, "step", &value), "after the call it is usable");
  check(entered == 1 && value == 1, "the call came by");
  check_ok(ds_eval_batch(busy, (const ds_tensor* const*)&tensor, 1, NULL, &value), "an evaluation");
  check(entered == 2 && ended == 1, "the engine has ended, and with it its graph");
  ds_tensor_destroy(tensor);
}

/* Proves {engine.train.skipped}. */
static void not_a_number(void) {
  char config[512];
  float before[MLP_OUT], after[MLP_OUT];
  ds_engine* engine;
  mlp_batch batch;
  double step = -1;
  ds_step_result last;
  char* reason = NULL;
  mlp_config(config, sizeof config, 0, 1, 1);
  engine = mlp_engine(NULL, config);
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "a good step");
  check_ok(ds_engine_read(engine, 3, "master", before, MLP_OUT), "before");
  batch.x[5] = (float)NAN;
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "a step that is skipped");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "the step's result");
  check(last.skipped == 1 && last.step == 2 && last.updates == 1, "it is skipped");
  check_ok(ds_engine_skip_reason(engine, &reason), "why");
  check(strstr(reason, "first tensor with NaN or infinity: linear") != NULL, "it has its reason");
  ds_text_destroy(reason);
  check_ok(ds_engine_read(engine, 3, "master", after, MLP_OUT), "after");
  check(memcmp(before, after, sizeof after) == 0, "the update was skipped");
  batch.x[5] = 0;
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "the engine goes on");
  check_ok(ds_engine_get(engine, "step", &step), "step");
  check(step == 3, "the skipped step counts as a step");
  check_ok(ds_engine_get(engine, "updates", &step), "updates");
  check(step == 2, "and not as an update");
  check_ok(ds_engine_last_step(engine, &last, sizeof last), "the good step's result");
  check(last.skipped == 0 && last.loss > 0, "it is not skipped");
  check_ok(ds_engine_skip_reason(engine, &reason), "why not");
  check(strcmp(reason, "") == 0, "it has no reason");
  ds_text_destroy(reason);
  check_error(ds_engine_last_step(engine, NULL, sizeof last), DS_ERROR_INVALID_ARGUMENT, "out");
  check_error(ds_engine_last_step(engine, &last, 4), DS_ERROR_INVALID_ARGUMENT,
              "struct_size must be at least 8, got 4");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

static void different(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  (void)data;
  mlp_config(config, sizeof config, rank == 0 ? 1 : 2, 1, 2);
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_CONFIG, "rank");
  /* Only rank 1's configuration is wrong; rank 0 must not wait for it. */
  mlp_config(config, sizeof config, 1, 1, 2);
  if (rank == 1) strcpy(strrchr(config, '}'), ", \"gradient_clippin\": 1}");
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_CONFIG,
              "gradient_clipping");
  mlp_config(config, sizeof config, 1, 1, 2);
  if (rank == 0) strcpy(strrchr(config, '}'), ", \"memory_budget\": {\"device\": 1000}}");
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_OUT_OF_MEMORY,
              "device");
  mlp_config(config, sizeof config, 1, 1, 2);
  if (rank == 1)
    strcpy(
        strrchr(config, '}'),
        ", \"comms_logger\": {\"enabled\": true, \"prof_all\": false, \"prof_ops\": [\"sum\"]}}");
  check_error(ds_engine_create(comm, config, graph, NULL, &engine), DS_ERROR_CONFIG,
              "prof_ops: 'sum' is not one of");
  mlp_config(config, sizeof config, 1, 1, 2);
  check_ok(ds_engine_create(comm, config, graph, NULL, &engine), "the group is usable");
  ds_engine_destroy(engine);
  ds_graph_destroy(graph);
}

static void aborted(int rank, ds_comm* comm, void* data) {
  char config[512];
  ds_engine* engine;
  mlp_batch batch;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, 2);
  engine = mlp_engine(comm, config);
  make_batch(&batch, rank, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "a step");
  if (rank == 0) {
    check_ok(ds_comm_abort(comm, "rank 0 gives up"), "abort");
  } else {
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), DS_ERROR_COMM,
                "rank 0 gives up");
    check_error(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), DS_ERROR_POISONED,
                "rank 0 gives up");
  }
  free_batch(&batch);
  ds_engine_destroy(engine);
}

/* Destroys the graph, then the comm; the engine must still train. */
static void any_order(int rank, void* data) {
  char config[512];
  ds_comm* comm = join_ranks("api_any_order", rank, 1);
  ds_engine* engine;
  mlp_batch batch;
  (void)data;
  mlp_config(config, sizeof config, 3, 1, 1);
  engine = mlp_engine(comm, config);
  ds_comm_destroy(comm);
  make_batch(&batch, rank, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL),
           "the engine keeps its comm");
  ds_engine_destroy(engine);
  free_batch(&batch);
}

int main(void) {
  configurations();
  inputs();
  token_ids();
  other_shapes();
  callbacks();
  not_a_number();
  run_ranks("api_different", 2, different, NULL);
  run_ranks("api_aborted", 2, aborted, NULL);
  any_order(0, NULL);
  return 0;
}
