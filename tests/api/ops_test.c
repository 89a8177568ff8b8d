/* The functions of ds_ops.h build the same graph as ds_graph_op does from names and JSON. */
#include <ds_ops.h>
#include <math.h>
#include <string.h>

#include "support.h"

typedef struct inputs {
  int32_t x, w, b, ids, mask;
} inputs;

static ds_graph* begin(inputs* in) {
  const int64_t x[] = {-1, 12}, w[] = {12, 12}, b[] = {12}, ids[] = {-1};
  ds_graph* graph = NULL;
  check_ok(ds_graph_create("g", 16, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, x, 2, &in->x), "x");
  check_ok(ds_graph_param(graph, "w", w, 2, "normal", 0.5, &in->w), "w");
  check_ok(ds_graph_param(graph, "b", b, 1, "zeros", 0, &in->b), "b");
  check_ok(ds_graph_input(graph, "ids", DS_DTYPE_I32, ids, 1, &in->ids), "ids");
  check_ok(ds_graph_input(graph, "mask", DS_DTYPE_I32, ids, 1, &in->mask), "mask");
  return graph;
}

static int32_t named(ds_graph* graph, const char* op, int32_t a, int32_t b, int32_t c,
                     const char* attrs) {
  int32_t operands[3], out = -1;
  operands[0] = a;
  operands[1] = b;
  operands[2] = c;
  check_ok(ds_graph_op(graph, op, operands,
                       a < 0   ? 0
                       : b < 0 ? 1
                       : c < 0 ? 2
                               : 3,
                       attrs, &out),
           op);
  return out;
}

static ds_graph* by_name(void) {
  inputs in;
  ds_graph* graph = begin(&in);
  int32_t y = named(graph, "linear", in.x, in.w, in.b, NULL);
  y = named(graph, "linear", y, in.w, -1, "{\"transposed\": 1}");
  y = named(graph, "rms_norm", y, in.b, -1, "{\"eps\": 1e-5, \"offset\": 1}");
  y = named(graph, "gelu", y, -1, -1, "{\"form\": \"erf\"}");
  y = named(graph, "gelu", y, -1, -1, NULL);
  y = named(graph, "attention", y, in.mask, -1,
            "{\"heads\": 2, \"seq\": 8, \"causal\": 0, \"scale\": 0.1}");
  y = named(graph, "rope", y, in.ids, -1,
            "{\"heads\": 1, \"seq\": 8, \"theta\": 1e4, \"scaling\": \"longrope\", \"factors\": "
            "\"1 2\"}");
  y = named(graph, "load_balance", y, y, in.mask, "{\"k\": 2}");
  named(graph, "fill", -1, -1, -1, "{\"value\": 0.30000000000000004, \"dtype\": \"f32\"}");
  return graph;
}

static ds_graph* by_helper(void) {
  inputs in;
  ds_graph* graph = begin(&in);
  ds_linear_options linear = ds_linear_options_init();
  ds_rms_norm_options norm = ds_rms_norm_options_init();
  ds_gelu_options gelu = ds_gelu_options_init();
  ds_attention_options attention = ds_attention_options_init();
  ds_rope_options rope = ds_rope_options_init();
  int32_t y = -1, both[2];
  check_ok(ds_op_linear(graph, in.x, in.w, in.b, NULL, &y), "linear");
  linear.transposed = 1;
  check_ok(ds_op_linear(graph, y, in.w, -1, &linear, &y), "linear");
  norm.offset = 1;
  check_ok(ds_op_rms_norm(graph, y, in.b, 1e-5, &norm, &y), "rms_norm");
  gelu.form = "erf";
  check_ok(ds_op_gelu(graph, y, &gelu, &y), "gelu");
  gelu.form = "tanh";
  check_ok(ds_op_gelu(graph, y, &gelu, &y), "the default is left out");
  attention.causal = 0;
  attention.scale = 0.1;
  check_ok(ds_op_attention_packed(graph, y, in.mask, 2, 8, &attention, &y), "attention");
  rope.scaling = "longrope";
  rope.factors = "1 2";
  check_ok(ds_op_rope(graph, y, in.ids, -1, 1, 8, 1e4, &rope, &y), "rope");
  both[0] = both[1] = y;
  check_ok(ds_op_load_balance(graph, both, 2, in.mask, 2, &y), "load_balance");
  check_ok(ds_op_fill(graph, 0.1 + 0.2, "f32", NULL, &y), "fill");
  return graph;
}

static void errors(void) {
  inputs in;
  ds_graph* graph = begin(&in);
  ds_gelu_options gelu = ds_gelu_options_init();
  int32_t y = -7;
  gelu.form = "\"erf\\";
  check_error(ds_op_gelu(graph, in.x, &gelu, &y), DS_ERROR_INVALID_ARGUMENT,
              "gelu: attribute 'form' must be one of tanh erf 10, got text '\"erf\\'");
  check_error(ds_op_linear(graph, in.x, -1, in.b, NULL, &y), DS_ERROR_INVALID_ARGUMENT,
              "linear: inputs[1] must be a value from 0 to 4, got -1");
  check_error(ds_op_scale(graph, in.x, NAN, &y), DS_ERROR_INVALID_ARGUMENT, "attrs");
  check(y == -7, "numbers are written on success only");
  ds_graph_destroy(graph);
}

int main(void) {
  ds_graph *a = by_name(), *b = by_helper();
  char *want = NULL, *got = NULL;
  check_ok(ds_graph_print(a, &want), "print");
  check_ok(ds_graph_print(b, &got), "print");
  check(strcmp(want, got) == 0, got);
  ds_graph_destroy(a);
  ds_graph_destroy(b);
  ds_text_destroy(want);
  ds_text_destroy(got);
  errors();
  return 0;
}
