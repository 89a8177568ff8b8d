/* Tests building graphs: their text, gradients, errors and plans. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static char* graph_text(const ds_graph* graph) {
  char* text = NULL;
  check_ok(ds_graph_print(graph, &text), "print");
  return text;
}

static void text_round_trip(void) {
  ds_graph *graph = mlp_graph(), *parsed = NULL;
  char *first = graph_text(graph), *second;
  check_ok(ds_graph_parse(first, &parsed), "parse");
  second = graph_text(parsed);
  check(strcmp(first, second) == 0, "parse is the inverse of print");
  ds_graph_destroy(parsed);
  check_error(ds_graph_parse("graph nonsense", &parsed), DS_ERROR_INVALID_ARGUMENT, "");
  check(parsed == NULL, "nothing parsed");
  ds_text_destroy(first);
  ds_text_destroy(second);
  ds_graph_destroy(graph);
}

static void refusals(void) {
  const int64_t x_dims[] = {-1, 3}, w_dims[] = {5, 4}, bad_dims[] = {2, 0};
  ds_graph* graph = NULL;
  int32_t inputs[2], out = 0;
  check_ok(ds_graph_create("g", 4, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &inputs[0]), "x");
  check_ok(ds_graph_param(graph, "w", w_dims, 2, "normal", 0.1, &inputs[1]), "w");
  check_error(ds_graph_op(graph, "linear", inputs, 2, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "linear");
  check(strstr(ds_last_error_message(), "f32[5,3]") && strstr(ds_last_error_message(), "f32[5,4]"),
        "both shapes");
  check(out == 0, "numbers are written on success only");
  check_error(ds_graph_op(graph, "linaer", inputs, 2, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "linear");
  check_error(ds_graph_op(graph, "relu", inputs, 2, NULL, &out), DS_ERROR_INVALID_ARGUMENT, "relu");
  check_error(ds_graph_op(graph, "relu", inputs, 1, "{\"slope\": 1}", &out),
              DS_ERROR_INVALID_ARGUMENT, "slope");
  check_error(ds_graph_op(graph, "relu", inputs, 1, "{\"slope\": ", &out),
              DS_ERROR_INVALID_ARGUMENT, "attrs");
  check_error(ds_graph_op(graph, "relu", inputs, 1, "[1]", &out), DS_ERROR_INVALID_ARGUMENT,
              "attrs must be a JSON object");
  check_error(ds_graph_op(graph, "softcap", inputs, 1, "{\"cap\": \"high\"}", &out),
              DS_ERROR_INVALID_ARGUMENT,
              "softcap: attribute 'cap' must be a number, got text 'high'");
  inputs[0] = 9;
  check_error(ds_graph_op(graph, "relu", inputs, 1, NULL, &out), DS_ERROR_INVALID_ARGUMENT,
              "relu: inputs[0] must be a value from 0 to 1, got 9");
  check_error(ds_graph_output(graph, "y", -3), DS_ERROR_INVALID_ARGUMENT,
              "value must be a value from 0 to 1, got -3");
  check_error(ds_graph_input(graph, "x", DS_DTYPE_F32, x_dims, 2, &out), DS_ERROR_INVALID_ARGUMENT,
              "'x'");
  check_error(ds_graph_input(graph, "y", DS_DTYPE_F32, bad_dims, 2, &out),
              DS_ERROR_INVALID_ARGUMENT, "dims[1] must be 1 or more, or -1 for n, got 0");
  check_error(ds_graph_param(graph, "v", w_dims, 2, "cauchy", 0, &out), DS_ERROR_INVALID_ARGUMENT,
              "cauchy");
  check_error(ds_graph_param(graph, "v", w_dims, 2, "normal", HUGE_VAL, &out),
              DS_ERROR_INVALID_ARGUMENT, "scale must be finite and not negative, got inf");
  ds_graph_destroy(graph);
  check_error(ds_graph_create("g", 0, &graph), DS_ERROR_INVALID_ARGUMENT,
              "bound must be 1 to 2147483647, got 0");
}

static void gradients(void) {
  const int64_t dims[] = {-1, 2};
  ds_graph* graph = NULL;
  ds_engine* engine = NULL;
  char config[512];
  char* text;
  int32_t pair[2], loss = -1, unused = -1, values[3], grads[3] = {0, 0, 0};
  int64_t shape[2] = {0, 0};
  size_t rank = 9;
  ds_dtype dtype = DS_DTYPE_NONE;
  check_ok(ds_graph_create("g", 4, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, dims, 2, &pair[0]), "x");
  check_ok(ds_graph_input(graph, "y", DS_DTYPE_F32, dims, 2, &pair[1]), "y");
  check_ok(ds_graph_op(graph, "relu", pair, 1, NULL, &unused), "unused");
  values[0] = pair[0];
  check_ok(ds_graph_op(graph, "gelu", pair, 1, NULL, &pair[0]), "gelu");
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &loss), "mse");
  check_ok(ds_graph_output(graph, "loss", loss), "loss");
  check_ok(ds_graph_value_info(graph, pair[0], &dtype, shape, 2, &rank), "a shape");
  check(dtype == DS_DTYPE_F32 && rank == 2 && shape[0] == -1 && shape[1] == 2, "n rows of 2");
  check_ok(ds_graph_value_info(graph, loss, NULL, NULL, 0, &rank), "the shape of a scalar");
  check(rank == 0, "no dimensions");
  check_error(ds_graph_value_info(graph, 99, NULL, NULL, 0, &rank), DS_ERROR_INVALID_ARGUMENT,
              "value must be a value from 0 to");
  check_error(ds_graph_value_info(graph, 0, NULL, NULL, 1, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out_dims must not be NULL with dims_size 1");
  values[1] = pair[0];
  values[2] = unused;
  check_error(ds_graph_grad(graph, pair[0], values, 3, grads), DS_ERROR_INVALID_ARGUMENT, "scalar");
  check_ok(ds_graph_grad(graph, loss, values, 3, grads), "gradients");
  check(grads[0] > loss && grads[1] > loss && grads[2] == -1,
        "two gradients, none for the unused value");
  check_error(ds_graph_grad(graph, loss, values, 3, grads), DS_ERROR_STATE, "differentiated");
  text = graph_text(graph);
  check(strstr(text, "gelu_dx") && strstr(text, "mse_dx"), "backward operations");
  ds_text_destroy(text);
  mlp_config(config, sizeof config, 0, 1, 1);
  check_error(ds_engine_create(NULL, config, graph, NULL, &engine), DS_ERROR_INVALID_ARGUMENT,
              "differentiated");
  ds_graph_destroy(graph);
}

/* Proves {graph.find}. */
static void outputs_by_name(void) {
  ds_graph *graph = mlp_graph(), *parsed = NULL;
  char* text = graph_text(graph);
  int32_t loss = -1, prediction = -1, found = -1;
  check(strstr(text, "\n  output loss=%") && strstr(text, " prediction=%"), "names in the text");
  check_ok(ds_graph_parse(text, &parsed), "parse");
  check_ok(ds_graph_find(graph, "loss", &loss), "loss");
  check_ok(ds_graph_find(parsed, "loss", &found), "loss of the parsed graph");
  check(found == loss, "the same value");
  check_ok(ds_graph_find(graph, "prediction", &prediction), "prediction");
  check(prediction != loss, "another value");
  check_error(ds_graph_find(graph, "predicton", &found), DS_ERROR_NOT_FOUND,
              "graph 'mlp' has no value named 'predicton'; did you mean 'prediction'?");
  check(found == loss, "numbers are written on success only");
  check_error(ds_graph_output(graph, "loss", prediction), DS_ERROR_INVALID_ARGUMENT,
              "output name 'loss' is already used by %");
  check_error(ds_graph_output(graph, "a b", prediction), DS_ERROR_INVALID_ARGUMENT,
              "output name must not contain blanks");
  check_error(ds_graph_output(graph, NULL, prediction), DS_ERROR_INVALID_ARGUMENT,
              "name must not be NULL");
  check_ok(ds_graph_output(graph, "x", loss), "an output may have the name of an input");
  check_ok(ds_graph_find(graph, "x", &found), "x");
  check(found == loss, "the output goes first");
  check_ok(ds_graph_find(parsed, "x", &found), "an input");
  check(found == 0, "x is the first value");
  ds_text_destroy(text);
  ds_graph_destroy(graph);
  ds_graph_destroy(parsed);
}

static void plans(void) {
  ds_graph* graph = mlp_graph();
  ds_plan* plan = NULL;
  char config[512], *text = NULL;
  mlp_config(config, sizeof config, 3, 1, 4);
  check_ok(ds_plan_create(config, graph, 2, 4, &plan), "a plan for rank 2 of 4");
  ds_graph_destroy(graph);
  check_ok(ds_plan_print(plan, &text), "print");
  check(strstr(text, "all_gather") && strstr(text, "reduce_scatter") && strstr(text, "adamw"),
        "a stage 3 step");
  ds_text_destroy(text);
  check_ok(ds_plan_report(plan, DS_FORMAT_TEXT, &text), "report");
  check(strstr(text, "bytes per rank") && strstr(text, "all_gather"), "bytes and collectives");
  check(strstr(text, "largest   ") && strstr(text, "MiB"), "the largest tensors, MiB");
  ds_text_destroy(text);
  check_ok(ds_plan_report(plan, DS_FORMAT_JSON, &text), "the report as JSON");
  check(strstr(text, "\"tier\": \"device\"") && strstr(text, "\"all_gather\": ") &&
            strstr(text, "\"hash\": \""),
        "bytes, collectives and the hash");
  ds_text_destroy(text);
  const ds_plan* twice[] = {plan, plan};
  check_ok(ds_plan_picture(twice, 2, &text), "picture");
  check(strncmp(text, "<svg ", 5) == 0 && strstr(text, "ZeRO-3, 4 ranks"), "an SVG of the plan");
  ds_text_destroy(text);
  check_error(ds_plan_picture(twice, 0, &text), DS_ERROR_INVALID_ARGUMENT,
              "count must be 1 to 16 plans, got 0");
  check_error(ds_plan_picture(NULL, 1, &text), DS_ERROR_INVALID_ARGUMENT, "plans must not be NULL");
  twice[1] = NULL;
  check_error(ds_plan_picture(twice, 2, &text), DS_ERROR_INVALID_ARGUMENT,
              "plans[1] must not be NULL");
  ds_plan_destroy(plan);
  check_error(ds_plan_create(config, NULL, 0, 4, &plan), DS_ERROR_CONFIG, "model.family");
  check_error(ds_plan_create(config, NULL, 4, 4, &plan), DS_ERROR_INVALID_ARGUMENT,
              "rank must be 0 to 3, got 4");
}

static void model_of_config(void) {
  const char* config =
      "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
      "{\"lr\": 0.001}}, \"model\": {\"family\": \"gpt\", \"layers\": 1, \"hidden\": 16, "
      "\"heads\": 2, \"vocab\": 32, \"positions\": 8}, \"run\": {\"sequence\": 8}}";
  ds_graph* graph = NULL;
  char* text;
  check_ok(ds_graph_from_config(config, 1, &graph), "model");
  text = graph_text(graph);
  check(strstr(text, "attention") && strstr(text, "cross_entropy"), "a language model");
  ds_text_destroy(text);
  ds_graph_destroy(graph);
}

static void schema(void) {
  char* text = NULL;
  check_ok(ds_op_schema(&text), "schema");
  check(strstr(text, "\"opset\": 1") && strstr(text, "\"name\": \"linear_cross_entropy_dx\""),
        "all operations");
  check(strstr(text, "\"words\": [") && strstr(text, "\"default\": \"tanh\""),
        "attributes with their defaults");
  ds_text_destroy(text);
  check_error(ds_op_schema(NULL), DS_ERROR_INVALID_ARGUMENT, "out_text must not be NULL");
}

int main(void) {
  schema();
  text_round_trip();
  refusals();
  gradients();
  outputs_by_name();
  plans();
  model_of_config();
  return 0;
}
