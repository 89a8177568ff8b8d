/* ds_ops.h: a function for each operation of ds.h, with operands and attributes that the compiler
 * checks. Written by tools/bindings.py; do not edit.
 *
 * ds_op_NAME(graph, operands..., attributes..., options, out) is ds_graph_op(graph, "NAME", ...).
 * Pass -1 for an absent optional operand. Optional attributes are members of an options structure,
 * which ds_NAME_options_init() fills; NULL leaves them all out. *out is the first result; further
 * results are the numbers after it. If there is not enough memory for the attributes, the status is
 * DS_ERROR_OUT_OF_MEMORY.
 *
 * C99 and C++. The functions are static, so that the header alone is enough.
 */
#ifndef DS_OPS_H
#define DS_OPS_H
/* clang-format off */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ds.h"

/** An integer that is not given; of numbers NAN stands for that, of texts NULL. */
#define DS_OPS_NOT_GIVEN INT64_MIN

/** An operation while its helper gathers operands and attributes. */
typedef struct ds_ops_node {
  char* attrs;
  int32_t* inputs;
  size_t length, capacity, count, room;
  int failed;
} ds_ops_node;

static inline void ds_ops_begin(ds_ops_node* node) { memset(node, 0, sizeof *node); }

static inline void ds_ops_operand(ds_ops_node* node, int32_t value) {
  if (node->count == node->room) {
    size_t room = node->room * 2 + 8;
    int32_t* inputs = (int32_t*)realloc(node->inputs, room * sizeof *inputs);
    if (!inputs) {
      node->failed = 1;
      return;
    }
    node->inputs = inputs;
    node->room = room;
  }
  node->inputs[node->count++] = value;
}

static inline void ds_ops_put(ds_ops_node* node, char letter) {
  if (node->length + 1 >= node->capacity) {
    size_t capacity = node->capacity * 2 + 64;
    char* attrs = (char*)realloc(node->attrs, capacity);
    if (!attrs) {
      node->failed = 1;
      return;
    }
    node->attrs = attrs;
    node->capacity = capacity;
  }
  node->attrs[node->length++] = letter;
  node->attrs[node->length] = '\0';
}

static inline void ds_ops_quoted(ds_ops_node* node, const char* text) {
  ds_ops_put(node, '"');
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') ds_ops_put(node, '\\');
    ds_ops_put(node, *text);
  }
  ds_ops_put(node, '"');
}

static inline void ds_ops_name(ds_ops_node* node, const char* name) {
  ds_ops_put(node, node->length == 0 ? '{' : ',');
  ds_ops_quoted(node, name);
  ds_ops_put(node, ':');
}

static inline void ds_ops_integer(ds_ops_node* node, const char* name, int64_t value) {
  char digits[32];
  const char* at = digits;
  snprintf(digits, sizeof digits, "%lld", (long long)value);
  ds_ops_name(node, name);
  while (*at) ds_ops_put(node, *at++);
}

/* Whatever the locale writes between the digits of a number, in JSON it is a point. */
static inline void ds_ops_number(ds_ops_node* node, const char* name, double value) {
  char digits[64];
  const char* at = digits;
  int point = 0;
  snprintf(digits, sizeof digits, "%.16e", value);
  ds_ops_name(node, name);
  for (; *at; ++at) {
    if (strchr("0123456789+-einfa", *at)) {
      ds_ops_put(node, *at);
    } else if (point++ == 0) {
      ds_ops_put(node, '.');
    }
  }
}

static inline void ds_ops_text(ds_ops_node* node, const char* name, const char* value) {
  ds_ops_name(node, name);
  ds_ops_quoted(node, value);
}

static inline ds_status ds_ops_end(ds_ops_node* node, ds_graph* graph, const char* op, int32_t* out) {
  ds_status status = DS_ERROR_OUT_OF_MEMORY;
  if (node->length > 0) ds_ops_put(node, '}');
  if (!node->failed) status = ds_graph_op(graph, op, node->inputs, node->count, node->attrs, out);
  free(node->attrs);
  free(node->inputs);
  return status;
}

/** Attributes of embedding that may be left out. */
typedef struct ds_embedding_options {
  /** row of w that gets no gradient from this operation; -1: no row; -1 by default */
  int64_t padding;
} ds_embedding_options;

static inline ds_embedding_options ds_embedding_options_init(void) {
  ds_embedding_options options;
  options.padding = -1;
  return options;
}

/** The rows of a table that ids name.
 * @param w T[V,C], a row for each word
 * @param ids i32[n], words, 0 to V-1
 * @param options [nullable]
 * @param out [out] y: T[n,C], a row for each id */
static inline ds_status ds_op_embedding(ds_graph* graph, int32_t w, int32_t ids, const ds_embedding_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, ids);
  if (options) {
    if (options->padding != -1) ds_ops_integer(&node, "padding", options->padding);
  }
  return ds_ops_end(&node, graph, "embedding", out);
}

/** Attributes of embedding_dw that may be left out. */
typedef struct ds_embedding_dw_options {
  /** row of w that gets no gradient from this operation; -1: no row; -1 by default */
  int64_t padding;
} ds_embedding_dw_options;

static inline ds_embedding_dw_options ds_embedding_dw_options_init(void) {
  ds_embedding_dw_options options;
  options.padding = -1;
  return options;
}

/** The gradient of the table of an embedding: the sum of the rows of dy by id, in row order in A. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param ids i32[n], words, 0 to V-1
 * @param rows V
 * @param options [nullable]
 * @param out [out] dw: T[V,C], gradient of w */
static inline ds_status ds_op_embedding_dw(ds_graph* graph, int32_t dy, int32_t ids, int64_t rows, const
    ds_embedding_dw_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, ids);
  ds_ops_integer(&node, "rows", rows);
  if (options) {
    if (options->padding != -1) ds_ops_integer(&node, "padding", options->padding);
  }
  return ds_ops_end(&node, graph, "embedding_dw", out);
}

/** Adds to each row the row of a table for its position in the sequence: y[r] = x[r] + w[r mod seq].
 * @param x T[n,C], rows
 * @param w T[P,C], a row for each position
 * @param seq rows of a sequence, at most P
 * @param out [out] y: T[n,C], sums */
static inline ds_status ds_op_position(ds_graph* graph, int32_t x, int32_t w, int64_t seq, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_integer(&node, "seq", seq);
  return ds_ops_end(&node, graph, "position", out);
}

/** The gradient of the table of a position; rows from seq on are 0. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param seq rows of a sequence, at most P
 * @param rows P
 * @param out [out] dw: T[P,C], gradient of w */
static inline ds_status ds_op_position_dw(ds_graph* graph, int32_t dy, int64_t seq, int64_t rows, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_integer(&node, "seq", seq);
  ds_ops_integer(&node, "rows", rows);
  return ds_ops_end(&node, graph, "position_dw", out);
}

/** The last row. Not differentiable.
 * @param x T[n,C], rows
 * @param out [out] y: T[1,C], x[n-1] */
static inline ds_status ds_op_last_row(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "last_row", out);
}

/** Attributes of linear that may be left out. */
typedef struct ds_linear_options {
  /** 1: the weight is stored as T[I,O]; 0 by default */
  int32_t transposed;
} ds_linear_options;

static inline ds_linear_options ds_linear_options_init(void) {
  ds_linear_options options;
  options.transposed = 0;
  return options;
}

/** The product x w^T of rows and a weight, plus a bias if given.
 * @param x T[n,I], rows
 * @param w T[O,I], weight
 * @param b [nullable: -1] T[O], bias
 * @param options [nullable]
 * @param out [out] y: T[n,O], products */
static inline ds_status ds_op_linear(ds_graph* graph, int32_t x, int32_t w, int32_t b, const ds_linear_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  if (b >= 0) ds_ops_operand(&node, b);
  if (options) {
    if (options->transposed != 0) ds_ops_integer(&node, "transposed", options->transposed);
  }
  return ds_ops_end(&node, graph, "linear", out);
}

/** Attributes of linear_dx that may be left out. */
typedef struct ds_linear_dx_options {
  /** 1: the weight is stored as T[I,O]; 0 by default */
  int32_t transposed;
} ds_linear_dx_options;

static inline ds_linear_dx_options ds_linear_dx_options_init(void) {
  ds_linear_dx_options options;
  options.transposed = 0;
  return options;
}

/** The gradient dy w of the rows of a linear. Not differentiable.
 * @param dy T[n,O], gradient of the result
 * @param w T[O,I], weight
 * @param options [nullable]
 * @param out [out] dx: T[n,I], gradient of x */
static inline ds_status ds_op_linear_dx(ds_graph* graph, int32_t dy, int32_t w, const ds_linear_dx_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, w);
  if (options) {
    if (options->transposed != 0) ds_ops_integer(&node, "transposed", options->transposed);
  }
  return ds_ops_end(&node, graph, "linear_dx", out);
}

/** Attributes of linear_dw that may be left out. */
typedef struct ds_linear_dw_options {
  /** 1: the weight is stored as T[I,O]; 0 by default */
  int32_t transposed;
} ds_linear_dw_options;

static inline ds_linear_dw_options ds_linear_dw_options_init(void) {
  ds_linear_dw_options options;
  options.transposed = 0;
  return options;
}

/** The gradient dy^T x of the weight of a linear. Not differentiable.
 * @param dy T[n,O], gradient of the result
 * @param x T[n,I], rows
 * @param options [nullable]
 * @param out [out] dw: T[O,I], gradient of w */
static inline ds_status ds_op_linear_dw(ds_graph* graph, int32_t dy, int32_t x, const ds_linear_dw_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  if (options) {
    if (options->transposed != 0) ds_ops_integer(&node, "transposed", options->transposed);
  }
  return ds_ops_end(&node, graph, "linear_dw", out);
}

/** The gradient of the bias of a linear: the sum of each column. Not differentiable.
 * @param dy T[n,O], gradient of the result
 * @param out [out] db: T[O], gradient of b */
static inline ds_status ds_op_linear_db(ds_graph* graph, int32_t dy, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  return ds_ops_end(&node, graph, "linear_db", out);
}

/** Normalized rows (x - mean) rstd w + b; w and b are given together or left out, which means 1 and 0.
 * @param x T[n,C], rows
 * @param w [nullable: -1] T[C], weight
 * @param b [nullable: -1] T[C], bias
 * @param eps added to the variance or mean square before its square root, > 0
 * @param out [out] y: T[n,C], normalized rows; then mean: A[n], mean of each row; then rstd: A[n], 1 / sqrt(variance +
 * eps) of each row */
static inline ds_status ds_op_layer_norm(ds_graph* graph, int32_t x, int32_t w, int32_t b, double eps, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  if (w >= 0) ds_ops_operand(&node, w);
  if (b >= 0) ds_ops_operand(&node, b);
  ds_ops_number(&node, "eps", eps);
  return ds_ops_end(&node, graph, "layer_norm", out);
}

/** The gradient of the rows of a layer_norm. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param x T[n,C], rows
 * @param w [nullable: -1] T[C], weight
 * @param mean A[n], mean of each row
 * @param rstd A[n], 1 / sqrt(variance + eps) of each row
 * @param out [out] dx: T[n,C], gradient of x */
static inline ds_status ds_op_layer_norm_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t w, int32_t mean, int32_t
    rstd, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  if (w >= 0) ds_ops_operand(&node, w);
  ds_ops_operand(&node, mean);
  ds_ops_operand(&node, rstd);
  return ds_ops_end(&node, graph, "layer_norm_dx", out);
}

/** The gradients of weight and bias of a layer_norm. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param x T[n,C], rows
 * @param mean A[n], mean of each row
 * @param rstd A[n], 1 / sqrt(variance + eps) of each row
 * @param out [out] dw: T[C], gradient of w; then db: T[C], gradient of b */
static inline ds_status ds_op_layer_norm_dw(ds_graph* graph, int32_t dy, int32_t x, int32_t mean, int32_t rstd, int32_t*
    out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, mean);
  ds_ops_operand(&node, rstd);
  return ds_ops_end(&node, graph, "layer_norm_dw", out);
}

/** Attributes of rms_norm that may be left out. */
typedef struct ds_rms_norm_options {
  /** 1: w + 1 in place of w; 0 by default */
  int32_t offset;
} ds_rms_norm_options;

static inline ds_rms_norm_options ds_rms_norm_options_init(void) {
  ds_rms_norm_options options;
  options.offset = 0;
  return options;
}

/** Normalizes each run of D columns by itself: x rstd w. With D = C the runs are whole rows; with the width of a head
 * they are the heads of q or k.
 * @param x T[n,C], rows
 * @param w T[D], weight; D divides C
 * @param eps added to the variance or mean square before its square root, > 0
 * @param options [nullable]
 * @param out [out] y: T[n,C], normalized rows; then rstd: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run */
static inline ds_status ds_op_rms_norm(ds_graph* graph, int32_t x, int32_t w, double eps, const ds_rms_norm_options*
    options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_number(&node, "eps", eps);
  if (options) {
    if (options->offset != 0) ds_ops_integer(&node, "offset", options->offset);
  }
  return ds_ops_end(&node, graph, "rms_norm", out);
}

/** Attributes of rms_norm_dx that may be left out. */
typedef struct ds_rms_norm_dx_options {
  /** 1: w + 1 in place of w; 0 by default */
  int32_t offset;
} ds_rms_norm_dx_options;

static inline ds_rms_norm_dx_options ds_rms_norm_dx_options_init(void) {
  ds_rms_norm_dx_options options;
  options.offset = 0;
  return options;
}

/** The gradient of the rows of an rms_norm. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param x T[n,C], rows
 * @param w T[D], weight; D divides C
 * @param rstd A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
 * @param options [nullable]
 * @param out [out] dx: T[n,C], gradient of x */
static inline ds_status ds_op_rms_norm_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t w, int32_t rstd, const
    ds_rms_norm_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, rstd);
  if (options) {
    if (options->offset != 0) ds_ops_integer(&node, "offset", options->offset);
  }
  return ds_ops_end(&node, graph, "rms_norm_dx", out);
}

/** The gradient of the weight of an rms_norm, for any offset: the sum of dy x rstd over rows and runs. Not
 * differentiable.
 * @param dy T[n,C], gradient of the result
 * @param x T[n,C], rows
 * @param rstd A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
 * @param width D
 * @param out [out] dw: T[D], gradient of w */
static inline ds_status ds_op_rms_norm_dw(ds_graph* graph, int32_t dy, int32_t x, int32_t rstd, int64_t width, int32_t*
    out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, rstd);
  ds_ops_integer(&node, "width", width);
  return ds_ops_end(&node, graph, "rms_norm_dw", out);
}

/** Attributes of gelu that may be left out. */
typedef struct ds_gelu_options {
  /** tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at most 10
   * (tanh, erf, 10); "tanh" by default */
  const char* form;
} ds_gelu_options;

static inline ds_gelu_options ds_gelu_options_init(void) {
  ds_gelu_options options;
  options.form = "tanh";
  return options;
}

/** The activation x Phi(x), Phi the distribution function of normal numbers, of each element.
 * @param x T[any], any tensor
 * @param options [nullable]
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_gelu(ds_graph* graph, int32_t x, const ds_gelu_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  if (options) {
    if (options->form && strcmp(options->form, "tanh") != 0) ds_ops_text(&node, "form", options->form);
  }
  return ds_ops_end(&node, graph, "gelu", out);
}

/** Attributes of gelu_dx that may be left out. */
typedef struct ds_gelu_dx_options {
  /** tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at most 10
   * (tanh, erf, 10); "tanh" by default */
  const char* form;
} ds_gelu_dx_options;

static inline ds_gelu_dx_options ds_gelu_dx_options_init(void) {
  ds_gelu_dx_options options;
  options.form = "tanh";
  return options;
}

/** The gradient of the activation gelu. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param options [nullable]
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_gelu_dx(ds_graph* graph, int32_t dy, int32_t x, const ds_gelu_dx_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  if (options) {
    if (options->form && strcmp(options->form, "tanh") != 0) ds_ops_text(&node, "form", options->form);
  }
  return ds_ops_end(&node, graph, "gelu_dx", out);
}

/** The activation max(x, 0) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_relu(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "relu", out);
}

/** The gradient of the activation relu. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_relu_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "relu_dx", out);
}

/** The activation x / (1 + exp(-x)) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_silu(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "silu", out);
}

/** The gradient of the activation silu. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_silu_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "silu_dx", out);
}

/** The activation tanh(x) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_tanh(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "tanh", out);
}

/** The gradient of the activation tanh. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_tanh_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "tanh_dx", out);
}

/** The activation max(x, 0)^2 of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_relu2(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "relu2", out);
}

/** The gradient of the activation relu2. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_relu2_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "relu2_dx", out);
}

/** The activation 1 / (1 + exp(-x)) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_sigmoid(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "sigmoid", out);
}

/** The gradient of the activation sigmoid. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_sigmoid_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "sigmoid_dx", out);
}

/** The activation x / (1 + exp(-1.702 x)) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_quick_gelu(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "quick_gelu", out);
}

/** The gradient of the activation quick_gelu. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_quick_gelu_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "quick_gelu_dx", out);
}

/** The activation log(1 + exp(x)) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_softplus(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "softplus", out);
}

/** The gradient of the activation softplus. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_softplus_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "softplus_dx", out);
}

/** The activation 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt(2)))) of each element.
 * @param x T[any], any tensor
 * @param out [out] y: T[any], activations */
static inline ds_status ds_op_laplace(ds_graph* graph, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "laplace", out);
}

/** The gradient of the activation laplace. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param x T[any], any tensor
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_laplace_dx(ds_graph* graph, int32_t dy, int32_t x, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  return ds_ops_end(&node, graph, "laplace_dx", out);
}

/** A gated linear unit act(gate) up, rounded once.
 * @param gate T[n,F], the operand that is activated
 * @param up T[n,F], the operand that is gated
 * @param act the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
 * gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
 * @param out [out] y: T[n,F], act(gate) up */
static inline ds_status ds_op_glu(ds_graph* graph, int32_t gate, int32_t up, const char* act, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, gate);
  ds_ops_operand(&node, up);
  ds_ops_text(&node, "act", act);
  return ds_ops_end(&node, graph, "glu", out);
}

/** A gated linear unit act(gate) up, rounded once.
 * @param x T[n,2F], gate and up, side by side
 * @param act the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
 * gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
 * @param out [out] y: T[n,F], act(gate) up */
static inline ds_status ds_op_glu_packed(ds_graph* graph, int32_t x, const char* act, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_text(&node, "act", act);
  return ds_ops_end(&node, graph, "glu", out);
}

/** The gradients of a glu. Not differentiable.
 * @param dy T[n,F], gradient of the result
 * @param gate T[n,F], the operand that is activated
 * @param up T[n,F], the operand that is gated
 * @param act the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
 * gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
 * @param out [out] dgate: T[n,F], gradient of gate; then dup: T[n,F], gradient of up */
static inline ds_status ds_op_glu_dx(ds_graph* graph, int32_t dy, int32_t gate, int32_t up, const char* act, int32_t*
    out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, gate);
  ds_ops_operand(&node, up);
  ds_ops_text(&node, "act", act);
  return ds_ops_end(&node, graph, "glu_dx", out);
}

/** The gradients of a glu. Not differentiable.
 * @param dy T[n,F], gradient of the result
 * @param x T[n,2F], gate and up, side by side
 * @param act the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
 * gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)
 * @param out [out] dx: T[n,2F], gradient of x */
static inline ds_status ds_op_glu_dx_packed(ds_graph* graph, int32_t dy, int32_t x, const char* act, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  ds_ops_text(&node, "act", act);
  return ds_ops_end(&node, graph, "glu_dx", out);
}

/** The product of two tensors of one shape, element by element.
 * @param a T[any], first factor
 * @param b T[any], second factor
 * @param out [out] y: T[any], a b */
static inline ds_status ds_op_mul(ds_graph* graph, int32_t a, int32_t b, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, a);
  ds_ops_operand(&node, b);
  return ds_ops_end(&node, graph, "mul", out);
}

/** A tensor times a number, which is rounded to A first. Its gradient is the same operation.
 * @param x T[any], any tensor
 * @param factor the number
 * @param out [out] y: T[any], x factor */
static inline ds_status ds_op_scale(ds_graph* graph, int32_t x, double factor, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_number(&node, "factor", factor);
  return ds_ops_end(&node, graph, "scale", out);
}

/** Values bounded smoothly: cap tanh(x / cap).
 * @param x T[any], any tensor
 * @param cap the bound, > 0
 * @param out [out] y: T[any], bounded values */
static inline ds_status ds_op_softcap(ds_graph* graph, int32_t x, double cap, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_number(&node, "cap", cap);
  return ds_ops_end(&node, graph, "softcap", out);
}

/** The gradient dy (1 - (y / cap)^2) of a softcap. Not differentiable.
 * @param dy T[any], gradient of the result
 * @param y T[any], the result
 * @param cap the bound, > 0
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_softcap_dx(ds_graph* graph, int32_t dy, int32_t y, double cap, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, y);
  ds_ops_number(&node, "cap", cap);
  return ds_ops_end(&node, graph, "softcap_dx", out);
}

/** Attributes of attention that may be left out. */
typedef struct ds_attention_options {
  /** G, heads of keys and values, a divisor of H; 0: H heads; 0 by default */
  int64_t kv_heads;
  /** 1: a row sees itself and rows before it, 0: its whole sequence; 1 by default */
  int32_t causal;
  /** number of rows that a row sees, itself included; 0: all; only for causal attention; 0 by default */
  int64_t window;
  /** factor of scores; 0: 1/sqrt(D); 0.0 by default */
  double scale;
  /** bound of scores; 0: none; 0.0 by default */
  double softcap;
  /** 1: qkv is q, k, v of head 0, then of head 1 and so on; 0 by default */
  int32_t per_head;
  /** probability of dropping a weight in a training step, in [0, 1); 0.0 by default */
  double dropout;
  /** number of the random stream of dropout, 0 to 65535; needed with dropout; not given by default */
  int64_t op;
  /** 1: mask is begin, which holds for each row the first row of its document. Documents follow one another, each at
   * most seq rows long; a row sees only its own document; 0 by default */
  int32_t documents;
} ds_attention_options;

static inline ds_attention_options ds_attention_options_init(void) {
  ds_attention_options options;
  options.kv_heads = 0;
  options.causal = 1;
  options.window = 0;
  options.scale = 0.0;
  options.softcap = 0.0;
  options.per_head = 0;
  options.dropout = 0.0;
  options.op = DS_OPS_NOT_GIVEN;
  options.documents = 0;
  return options;
}

/** Attention within sequences: softmax(scores) v for each row and head.
 * @param q T[n,HD], queries of H heads
 * @param k T[n,GD], keys of G heads
 * @param v T[n,GD], values of G heads
 * @param mask [nullable: -1] i32[n], rows where it is 0 are seen by no row; with documents it is begin
 * @param heads H, heads of queries
 * @param seq rows of a sequence
 * @param options [nullable]
 * @param out [out] y: T[n,HD], weighted sums of values; then lse: A[H,n], logarithm of the sum of exp of the scores */
static inline ds_status ds_op_attention(ds_graph* graph, int32_t q, int32_t k, int32_t v, int32_t mask, int64_t heads,
    int64_t seq, const ds_attention_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, q);
  ds_ops_operand(&node, k);
  ds_ops_operand(&node, v);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_integer(&node, "heads", heads);
  ds_ops_integer(&node, "seq", seq);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->causal != 1) ds_ops_integer(&node, "causal", options->causal);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
    if (options->dropout != 0.0) ds_ops_number(&node, "dropout", options->dropout);
    if (options->op != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "op", options->op);
    if (options->documents != 0) ds_ops_integer(&node, "documents", options->documents);
  }
  return ds_ops_end(&node, graph, "attention", out);
}

/** Attention within sequences: softmax(scores) v for each row and head.
 * @param qkv T[n,(H+2G)D], queries, keys and values, side by side
 * @param mask [nullable: -1] i32[n], rows where it is 0 are seen by no row; with documents it is begin
 * @param heads H, heads of queries
 * @param seq rows of a sequence
 * @param options [nullable]
 * @param out [out] y: T[n,HD], weighted sums of values; then lse: A[H,n], logarithm of the sum of exp of the scores */
static inline ds_status ds_op_attention_packed(ds_graph* graph, int32_t qkv, int32_t mask, int64_t heads, int64_t seq,
    const ds_attention_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, qkv);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_integer(&node, "heads", heads);
  ds_ops_integer(&node, "seq", seq);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->causal != 1) ds_ops_integer(&node, "causal", options->causal);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
    if (options->dropout != 0.0) ds_ops_number(&node, "dropout", options->dropout);
    if (options->op != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "op", options->op);
    if (options->documents != 0) ds_ops_integer(&node, "documents", options->documents);
  }
  return ds_ops_end(&node, graph, "attention", out);
}

/** Attributes of attention_dx that may be left out. */
typedef struct ds_attention_dx_options {
  /** G, heads of keys and values, a divisor of H; 0: H heads; 0 by default */
  int64_t kv_heads;
  /** 1: a row sees itself and rows before it, 0: its whole sequence; 1 by default */
  int32_t causal;
  /** number of rows that a row sees, itself included; 0: all; only for causal attention; 0 by default */
  int64_t window;
  /** factor of scores; 0: 1/sqrt(D); 0.0 by default */
  double scale;
  /** bound of scores; 0: none; 0.0 by default */
  double softcap;
  /** 1: qkv is q, k, v of head 0, then of head 1 and so on; 0 by default */
  int32_t per_head;
  /** probability of dropping a weight in a training step, in [0, 1); 0.0 by default */
  double dropout;
  /** number of the random stream of dropout, 0 to 65535; needed with dropout; not given by default */
  int64_t op;
  /** 1: mask is begin, which holds for each row the first row of its document. Documents follow one another, each at
   * most seq rows long; a row sees only its own document; 0 by default */
  int32_t documents;
} ds_attention_dx_options;

static inline ds_attention_dx_options ds_attention_dx_options_init(void) {
  ds_attention_dx_options options;
  options.kv_heads = 0;
  options.causal = 1;
  options.window = 0;
  options.scale = 0.0;
  options.softcap = 0.0;
  options.per_head = 0;
  options.dropout = 0.0;
  options.op = DS_OPS_NOT_GIVEN;
  options.documents = 0;
  return options;
}

/** The gradients of an attention. Not differentiable.
 * @param dy T[n,HD], gradient of y
 * @param q T[n,HD], queries of H heads
 * @param k T[n,GD], keys of G heads
 * @param v T[n,GD], values of G heads
 * @param mask [nullable: -1] i32[n], rows where it is 0 are seen by no row; with documents it is begin
 * @param y T[n,HD], weighted sums of values
 * @param lse A[H,n], logarithm of the sum of exp of the scores
 * @param heads H, heads of queries
 * @param seq rows of a sequence
 * @param options [nullable]
 * @param out [out] dq: T[n,HD], gradient of q; then dk: T[n,GD], gradient of k; then dv: T[n,GD], gradient of v */
static inline ds_status ds_op_attention_dx(ds_graph* graph, int32_t dy, int32_t q, int32_t k, int32_t v, int32_t mask,
    int32_t y, int32_t lse, int64_t heads, int64_t seq, const ds_attention_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, q);
  ds_ops_operand(&node, k);
  ds_ops_operand(&node, v);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_operand(&node, y);
  ds_ops_operand(&node, lse);
  ds_ops_integer(&node, "heads", heads);
  ds_ops_integer(&node, "seq", seq);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->causal != 1) ds_ops_integer(&node, "causal", options->causal);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
    if (options->dropout != 0.0) ds_ops_number(&node, "dropout", options->dropout);
    if (options->op != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "op", options->op);
    if (options->documents != 0) ds_ops_integer(&node, "documents", options->documents);
  }
  return ds_ops_end(&node, graph, "attention_dx", out);
}

/** The gradients of an attention. Not differentiable.
 * @param dy T[n,HD], gradient of y
 * @param qkv T[n,(H+2G)D], queries, keys and values, side by side
 * @param mask [nullable: -1] i32[n], rows where it is 0 are seen by no row; with documents it is begin
 * @param y T[n,HD], weighted sums of values
 * @param lse A[H,n], logarithm of the sum of exp of the scores
 * @param heads H, heads of queries
 * @param seq rows of a sequence
 * @param options [nullable]
 * @param out [out] dqkv: T[n,(H+2G)D], gradient of qkv */
static inline ds_status ds_op_attention_dx_packed(ds_graph* graph, int32_t dy, int32_t qkv, int32_t mask, int32_t y,
    int32_t lse, int64_t heads, int64_t seq, const ds_attention_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, qkv);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_operand(&node, y);
  ds_ops_operand(&node, lse);
  ds_ops_integer(&node, "heads", heads);
  ds_ops_integer(&node, "seq", seq);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->causal != 1) ds_ops_integer(&node, "causal", options->causal);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
    if (options->dropout != 0.0) ds_ops_number(&node, "dropout", options->dropout);
    if (options->op != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "op", options->op);
    if (options->documents != 0) ds_ops_integer(&node, "documents", options->documents);
  }
  return ds_ops_end(&node, graph, "attention_dx", out);
}

/** Attributes of cached_attention that may be left out. */
typedef struct ds_cached_attention_options {
  /** G, heads of keys and values, a divisor of H; 0: H heads; 0 by default */
  int64_t kv_heads;
  /** number of rows that a row sees, itself included; 0: all; only for causal attention; 0 by default */
  int64_t window;
  /** factor of scores; 0: 1/sqrt(D); 0.0 by default */
  double scale;
  /** bound of scores; 0: none; 0.0 by default */
  double softcap;
  /** 1: qkv is q, k, v of head 0, then of head 1 and so on; 0 by default */
  int32_t per_head;
} ds_cached_attention_options;

static inline ds_cached_attention_options ds_cached_attention_options_init(void) {
  ds_cached_attention_options options;
  options.kv_heads = 0;
  options.window = 0;
  options.scale = 0.0;
  options.softcap = 0.0;
  options.per_head = 0;
  return options;
}

/** Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
 * the cache. Not differentiable.
 * @param q T[n,HD], queries of H heads
 * @param k T[n,GD], keys of G heads
 * @param v T[n,GD], values of G heads
 * @param positions i32[n], position of each row in the text, below P; all are different
 * @param cache T[2G,P,D], keys, then values, of the P positions of a text
 * @param heads H, heads of queries
 * @param options [nullable]
 * @param out [out] y: T[n,HD], weighted sums of values; then cache: T[2G,P,D], keys, then values, of the P positions of
 * a text */
static inline ds_status ds_op_cached_attention(ds_graph* graph, int32_t q, int32_t k, int32_t v, int32_t positions,
    int32_t cache, int64_t heads, const ds_cached_attention_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, q);
  ds_ops_operand(&node, k);
  ds_ops_operand(&node, v);
  ds_ops_operand(&node, positions);
  ds_ops_operand(&node, cache);
  ds_ops_integer(&node, "heads", heads);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
  }
  return ds_ops_end(&node, graph, "cached_attention", out);
}

/** Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
 * the cache. Not differentiable.
 * @param qkv T[n,(H+2G)D], queries, keys and values, side by side
 * @param positions i32[n], position of each row in the text, below P; all are different
 * @param cache T[2G,P,D], keys, then values, of the P positions of a text
 * @param heads H, heads of queries
 * @param options [nullable]
 * @param out [out] y: T[n,HD], weighted sums of values; then cache: T[2G,P,D], keys, then values, of the P positions of
 * a text */
static inline ds_status ds_op_cached_attention_packed(ds_graph* graph, int32_t qkv, int32_t positions, int32_t cache,
    int64_t heads, const ds_cached_attention_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, qkv);
  ds_ops_operand(&node, positions);
  ds_ops_operand(&node, cache);
  ds_ops_integer(&node, "heads", heads);
  if (options) {
    if (options->kv_heads != 0) ds_ops_integer(&node, "kv_heads", options->kv_heads);
    if (options->window != 0) ds_ops_integer(&node, "window", options->window);
    if (options->scale != 0.0) ds_ops_number(&node, "scale", options->scale);
    if (options->softcap != 0.0) ds_ops_number(&node, "softcap", options->softcap);
    if (options->per_head != 0) ds_ops_integer(&node, "per_head", options->per_head);
  }
  return ds_ops_end(&node, graph, "cached_attention", out);
}

/** Attributes of rope that may be left out. */
typedef struct ds_rope_options {
  /** columns of a head that are rotated; 0: all; 0 by default */
  int64_t dims;
  /** a head is rotated if its number modulo period is below rotated; heads if absent; not given by default */
  int64_t period;
  /** see period; period if absent; not given by default */
  int64_t rotated;
  /** 1: the columns of a pair are neighbours; 0: they are dims/2 apart; 0 by default */
  int32_t interleaved;
  /** 1: rotates by the opposite angles; 0 by default */
  int32_t inverse;
  /** how angles are changed for longer texts (none, linear, dynamic, llama3, yarn, longrope); "none" by default */
  const char* scaling;
  /** for every scaling except none and longrope, > 0; not given by default */
  double factor;
  /** for llama3 and yarn, > 0; not given by default */
  double low;
  /** for llama3 and yarn, > 0; not given by default */
  double high;
  /** length of texts before scaling; for dynamic, llama3 and yarn, and for longrope with long_factors; not given by
   * default */
  int64_t original;
  /** for dynamic; not given by default */
  double power;
  /** for longrope: dims/2 numbers > 0 with blanks between them; not given by default */
  const char* factors;
  /** for longrope: factors for texts longer than original; not given by default */
  const char* long_factors;
  /** factor of the result; 0: the factor that the scaling defines; 0.0 by default */
  double magnitude;
  /** for yarn: 1 rounds the first and the last scaled pair to whole ones; 1 by default */
  int32_t truncate;
} ds_rope_options;

static inline ds_rope_options ds_rope_options_init(void) {
  ds_rope_options options;
  options.dims = 0;
  options.period = DS_OPS_NOT_GIVEN;
  options.rotated = DS_OPS_NOT_GIVEN;
  options.interleaved = 0;
  options.inverse = 0;
  options.scaling = "none";
  options.factor = NAN;
  options.low = NAN;
  options.high = NAN;
  options.original = DS_OPS_NOT_GIVEN;
  options.power = NAN;
  options.factors = NULL;
  options.long_factors = NULL;
  options.magnitude = 0.0;
  options.truncate = 1;
  return options;
}

/** Rotary positions: rotates pairs of columns of each head by angles that grow with the position of the row.
 * @param x T[n,H*D], rows of H heads
 * @param positions [nullable: -1] i32[n], position of each row; r mod seq if absent
 * @param length [nullable: -1] i32[1], length of the text; seq if absent
 * @param heads H
 * @param seq rows of a sequence
 * @param theta base of the angles, > 1
 * @param options [nullable]
 * @param out [out] y: T[n,H*D], rotated rows */
static inline ds_status ds_op_rope(ds_graph* graph, int32_t x, int32_t positions, int32_t length, int64_t heads, int64_t
    seq, double theta, const ds_rope_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  if (positions >= 0) ds_ops_operand(&node, positions);
  if (length >= 0) ds_ops_operand(&node, length);
  ds_ops_integer(&node, "heads", heads);
  ds_ops_integer(&node, "seq", seq);
  ds_ops_number(&node, "theta", theta);
  if (options) {
    if (options->dims != 0) ds_ops_integer(&node, "dims", options->dims);
    if (options->period != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "period", options->period);
    if (options->rotated != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "rotated", options->rotated);
    if (options->interleaved != 0) ds_ops_integer(&node, "interleaved", options->interleaved);
    if (options->inverse != 0) ds_ops_integer(&node, "inverse", options->inverse);
    if (options->scaling && strcmp(options->scaling, "none") != 0) ds_ops_text(&node, "scaling", options->scaling);
    if (options->factor == options->factor) ds_ops_number(&node, "factor", options->factor);
    if (options->low == options->low) ds_ops_number(&node, "low", options->low);
    if (options->high == options->high) ds_ops_number(&node, "high", options->high);
    if (options->original != DS_OPS_NOT_GIVEN) ds_ops_integer(&node, "original", options->original);
    if (options->power == options->power) ds_ops_number(&node, "power", options->power);
    if (options->factors) ds_ops_text(&node, "factors", options->factors);
    if (options->long_factors) ds_ops_text(&node, "long_factors", options->long_factors);
    if (options->magnitude != 0.0) ds_ops_number(&node, "magnitude", options->magnitude);
    if (options->truncate != 1) ds_ops_integer(&node, "truncate", options->truncate);
  }
  return ds_ops_end(&node, graph, "rope", out);
}

/** Attributes of softmax that may be left out. */
typedef struct ds_softmax_options {
  /** 1: the logarithm of the softmax; 0 by default */
  int32_t log;
} ds_softmax_options;

static inline ds_softmax_options ds_softmax_options_init(void) {
  ds_softmax_options options;
  options.log = 0;
  return options;
}

/** The softmax exp(x) / sum exp(x) of each row, or its logarithm.
 * @param x T[n,C], rows
 * @param options [nullable]
 * @param out [out] y: T[n,C], a distribution for each row */
static inline ds_status ds_op_softmax(ds_graph* graph, int32_t x, const ds_softmax_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  if (options) {
    if (options->log != 0) ds_ops_integer(&node, "log", options->log);
  }
  return ds_ops_end(&node, graph, "softmax", out);
}

/** The softmax of the columns 0 to r mod seq of each row r; the other columns are 0.
 * @param x T[n,C], rows
 * @param seq rows of a sequence
 * @param out [out] y: T[n,C], a distribution for each row */
static inline ds_status ds_op_causal_softmax(ds_graph* graph, int32_t x, int64_t seq, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_integer(&node, "seq", seq);
  return ds_ops_end(&node, graph, "causal_softmax", out);
}

/** Attributes of softmax_dx that may be left out. */
typedef struct ds_softmax_dx_options {
  /** 1: the logarithm of the softmax; 0 by default */
  int32_t log;
} ds_softmax_dx_options;

static inline ds_softmax_dx_options ds_softmax_dx_options_init(void) {
  ds_softmax_dx_options options;
  options.log = 0;
  return options;
}

/** The gradient y (dy - sum dy y) of the rows of a softmax or causal_softmax, or dy - exp(y) sum dy if y is the
 * logarithm. Not differentiable.
 * @param dy T[n,C], gradient of the result
 * @param y T[n,C], the result
 * @param options [nullable]
 * @param out [out] dx: T[n,C], gradient of x */
static inline ds_status ds_op_softmax_dx(ds_graph* graph, int32_t dy, int32_t y, const ds_softmax_dx_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, y);
  if (options) {
    if (options->log != 0) ds_ops_integer(&node, "log", options->log);
  }
  return ds_ops_end(&node, graph, "softmax_dx", out);
}

/** Attributes of top_gates that may be left out. */
typedef struct ds_top_gates_options {
  /** 1: the weights of a row are divided by their sum; 1 by default */
  int32_t normalize;
} ds_top_gates_options;

static inline ds_top_gates_options ds_top_gates_options_init(void) {
  ds_top_gates_options options;
  options.normalize = 1;
  return options;
}

/** The softmax of each row at its k largest logits, and 0 elsewhere; of equal logits, those of lower index are chosen.
 * @param logits T[n,E], a score for each of E experts
 * @param k experts of a row, at most E
 * @param options [nullable]
 * @param out [out] gates: T[n,E], weights of the experts */
static inline ds_status ds_op_top_gates(ds_graph* graph, int32_t logits, int64_t k, const ds_top_gates_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, logits);
  ds_ops_integer(&node, "k", k);
  if (options) {
    if (options->normalize != 1) ds_ops_integer(&node, "normalize", options->normalize);
  }
  return ds_ops_end(&node, graph, "top_gates", out);
}

/** Attributes of top_gates_dx that may be left out. */
typedef struct ds_top_gates_dx_options {
  /** 1: the weights of a row are divided by their sum; 1 by default */
  int32_t normalize;
} ds_top_gates_dx_options;

static inline ds_top_gates_dx_options ds_top_gates_dx_options_init(void) {
  ds_top_gates_dx_options options;
  options.normalize = 1;
  return options;
}

/** The gradient of the logits of a top_gates, for a fixed choice. Not differentiable.
 * @param dy T[n,E], gradient of the gates
 * @param logits T[n,E], a score for each of E experts
 * @param k experts of a row, at most E
 * @param options [nullable]
 * @param out [out] dlogits: T[n,E], gradient of logits */
static inline ds_status ds_op_top_gates_dx(ds_graph* graph, int32_t dy, int32_t logits, int64_t k, const
    ds_top_gates_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, logits);
  ds_ops_integer(&node, "k", k);
  if (options) {
    if (options->normalize != 1) ds_ops_integer(&node, "normalize", options->normalize);
  }
  return ds_ops_end(&node, graph, "top_gates_dx", out);
}

/** Each row times its element of one column of gates: y[r] = x[r] gates[r, column].
 * @param x T[n,C], rows
 * @param gates T[n,E], weights of the experts
 * @param column index of the expert, below E
 * @param out [out] y: T[n,C], scaled rows */
static inline ds_status ds_op_scale_rows(ds_graph* graph, int32_t x, int32_t gates, int64_t column, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, gates);
  ds_ops_integer(&node, "column", column);
  return ds_ops_end(&node, graph, "scale_rows", out);
}

/** The gradient of the gates of a scale_rows: the product of dy[r] and x[r] in its column, 0 in the others. Not
 * differentiable.
 * @param dy T[n,C], gradient of the result
 * @param x T[n,C], rows
 * @param columns E
 * @param column index of the expert, below E
 * @param out [out] dgates: T[n,E], gradient of gates */
static inline ds_status ds_op_scale_rows_dw(ds_graph* graph, int32_t dy, int32_t x, int64_t columns, int64_t column,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, x);
  ds_ops_integer(&node, "columns", columns);
  ds_ops_integer(&node, "column", column);
  return ds_ops_end(&node, graph, "scale_rows_dw", out);
}

/** E times the sum of f p over the experts, where, over the rows of all layers, f is the share of rows that have the
 * expert among their k largest and p the mean of its softmax.
 * @param logits T[n,E], scores of each layer, one operand for each
 * @param mask [nullable: -1] i32[n], rows where it is 0 do not count
 * @param k experts of a row, at most E
 * @param out [out] loss: A[], k if all experts are used equally */
static inline ds_status ds_op_load_balance(ds_graph* graph, const int32_t* logits, size_t logits_count, int32_t mask,
    int64_t k, int32_t* out) {
  size_t i;
  ds_ops_node node;
  ds_ops_begin(&node);
  for (i = 0; i < logits_count; ++i) ds_ops_operand(&node, logits[i]);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_integer(&node, "k", k);
  return ds_ops_end(&node, graph, "load_balance", out);
}

/** The gradients of the logits of a load_balance, for fixed choices. Not differentiable.
 * @param dloss A[], gradient of the loss
 * @param logits T[n,E], scores of each layer, one operand for each
 * @param mask [nullable: -1] i32[n], rows where it is 0 do not count
 * @param k experts of a row, at most E
 * @param out [out] dlogits: T[n,E], gradient of each of the logits */
static inline ds_status ds_op_load_balance_dx(ds_graph* graph, int32_t dloss, const int32_t* logits, size_t
    logits_count, int32_t mask, int64_t k, int32_t* out) {
  size_t i;
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  for (i = 0; i < logits_count; ++i) ds_ops_operand(&node, logits[i]);
  if (mask >= 0) ds_ops_operand(&node, mask);
  ds_ops_integer(&node, "k", k);
  return ds_ops_end(&node, graph, "load_balance_dx", out);
}

/** The sum of two tensors of one shape.
 * @param a T[any], first summand
 * @param b T[any], second summand
 * @param out [out] y: T[any], a + b */
static inline ds_status ds_op_add(ds_graph* graph, int32_t a, int32_t b, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, a);
  ds_ops_operand(&node, b);
  return ds_ops_end(&node, graph, "add", out);
}

/** In a training step each element becomes 0 with probability p, and the others are multiplied by 1 / (1 - p). Its
 * gradient is the same operation.
 * @param x T[any], any tensor
 * @param p probability of dropping an element, in [0, 1)
 * @param op number of the random stream, 0 to 65535, different from those of other dropouts and of parameters
 * @param out [out] y: T[any], x with elements dropped */
static inline ds_status ds_op_dropout(ds_graph* graph, int32_t x, double p, int64_t op, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_number(&node, "p", p);
  ds_ops_integer(&node, "op", op);
  return ds_ops_end(&node, graph, "dropout", out);
}

/** The result of a layer or, with probability p in a training step, its input; one draw decides for all rows of the
 * micro-batch.
 * @param x T[any], input of the layer
 * @param y T[any], its result
 * @param p probability of leaving the layer out, in [0, 1)
 * @param op number of the random stream, 0 to 65535, different from those of dropouts and of parameters
 * @param out [out] z: T[any], x if the layer is left out, otherwise y */
static inline ds_status ds_op_layerdrop(ds_graph* graph, int32_t x, int32_t y, double p, int64_t op, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, y);
  ds_ops_number(&node, "p", p);
  ds_ops_integer(&node, "op", op);
  return ds_ops_end(&node, graph, "layerdrop", out);
}

/** The gradients of a layerdrop: dz for the operand that was the result, 0 for the other. Not differentiable.
 * @param dz T[any], gradient of the result
 * @param p probability of leaving the layer out, in [0, 1)
 * @param op number of the random stream, 0 to 65535, different from those of dropouts and of parameters
 * @param out [out] dx: T[any], gradient of x; then dy: T[any], gradient of y */
static inline ds_status ds_op_layerdrop_dx(ds_graph* graph, int32_t dz, double p, int64_t op, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dz);
  ds_ops_number(&node, "p", p);
  ds_ops_integer(&node, "op", op);
  return ds_ops_end(&node, graph, "layerdrop_dx", out);
}

/** Attributes of fill that may be left out. */
typedef struct ds_fill_options {
  /** 1: the value times the loss scale of the step; 0 by default */
  int64_t loss_scale;
} ds_fill_options;

static inline ds_fill_options ds_fill_options_init(void) {
  ds_fill_options options;
  options.loss_scale = 0;
  return options;
}

/** A scalar of a given value: the seed of gradients. Not differentiable.
 * @param value the value
 * @param dtype element type of the result (f32, bf16, f16, f64)
 * @param options [nullable]
 * @param out [out] y: T[], the value */
static inline ds_status ds_op_fill(ds_graph* graph, double value, const char* dtype, const ds_fill_options* options,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_number(&node, "value", value);
  ds_ops_text(&node, "dtype", dtype);
  if (options) {
    if (options->loss_scale != 0) ds_ops_integer(&node, "loss_scale", options->loss_scale);
  }
  return ds_ops_end(&node, graph, "fill", out);
}

/** The same values in another floating type, rounded to the nearest, ties to even.
 * @param x T[any], any tensor
 * @param dtype element type of the result (f32, bf16, f16, f64)
 * @param out [out] y: [any], x in the type dtype */
static inline ds_status ds_op_cast(ds_graph* graph, int32_t x, const char* dtype, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_text(&node, "dtype", dtype);
  return ds_ops_end(&node, graph, "cast", out);
}

/** Attributes of cross_entropy that may be left out. */
typedef struct ds_cross_entropy_options {
  /** e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p); 0.0 by default
   * */
  double label_smoothing;
  /** z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row; 0.0 by default */
  double z_loss;
  /** the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none); "mean" by
   * default */
  const char* reduction;
} ds_cross_entropy_options;

static inline ds_cross_entropy_options ds_cross_entropy_options_init(void) {
  ds_cross_entropy_options options;
  options.label_smoothing = 0.0;
  options.z_loss = 0.0;
  options.reduction = "mean";
  return options;
}

/** The mean over rows with a target of -log p, where p is the softmax of the row at its target; 0 without such rows.
 * Attributes change the loss of a row, or how losses are combined.
 * @param logits T[n,V], a score for each word
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param options [nullable]
 * @param out [out] loss: A[], the loss; A[n] with reduction "none", 0 in rows without a target; then stats: A[n,2],
 * statistics of each row's softmax for the backward part */
static inline ds_status ds_op_cross_entropy(ds_graph* graph, int32_t logits, int32_t targets, const
    ds_cross_entropy_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, logits);
  ds_ops_operand(&node, targets);
  if (options) {
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->z_loss != 0.0) ds_ops_number(&node, "z_loss", options->z_loss);
    if (options->reduction && strcmp(options->reduction, "mean") != 0) ds_ops_text(&node, "reduction", options->reduction);
  }
  return ds_ops_end(&node, graph, "cross_entropy", out);
}

/** Attributes of cross_entropy_dx that may be left out. */
typedef struct ds_cross_entropy_dx_options {
  /** e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p); 0.0 by default
   * */
  double label_smoothing;
  /** z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row; 0.0 by default */
  double z_loss;
  /** the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none); "mean" by
   * default */
  const char* reduction;
} ds_cross_entropy_dx_options;

static inline ds_cross_entropy_dx_options ds_cross_entropy_dx_options_init(void) {
  ds_cross_entropy_dx_options options;
  options.label_smoothing = 0.0;
  options.z_loss = 0.0;
  options.reduction = "mean";
  return options;
}

/** The gradient of the logits of a cross_entropy. Not differentiable.
 * @param dloss A[], gradient of the loss; A[n] with reduction "none"
 * @param logits T[n,V], a score for each word
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param stats A[n,2], statistics of each row's softmax for the backward part
 * @param options [nullable]
 * @param out [out] dlogits: T[n,V], gradient of logits */
static inline ds_status ds_op_cross_entropy_dx(ds_graph* graph, int32_t dloss, int32_t logits, int32_t targets, int32_t
    stats, const ds_cross_entropy_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, logits);
  ds_ops_operand(&node, targets);
  ds_ops_operand(&node, stats);
  if (options) {
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->z_loss != 0.0) ds_ops_number(&node, "z_loss", options->z_loss);
    if (options->reduction && strcmp(options->reduction, "mean") != 0) ds_ops_text(&node, "reduction", options->reduction);
  }
  return ds_ops_end(&node, graph, "cross_entropy_dx", out);
}

/** Attributes of linear_cross_entropy that may be left out. */
typedef struct ds_linear_cross_entropy_options {
  /** e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p); 0.0 by default
   * */
  double label_smoothing;
  /** z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row; 0.0 by default */
  double z_loss;
  /** the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none); "mean" by
   * default */
  const char* reduction;
  /** 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again; 0 by
   * default */
  int64_t kept;
} ds_linear_cross_entropy_options;

static inline ds_linear_cross_entropy_options ds_linear_cross_entropy_options_init(void) {
  ds_linear_cross_entropy_options options;
  options.label_smoothing = 0.0;
  options.z_loss = 0.0;
  options.reduction = "mean";
  options.kept = 0;
  return options;
}

/** The cross_entropy of x w^T. The logits are computed in blocks of at most 1024 words and neither rounded nor kept, or
 * are kept as a whole.
 * @param x T[n,C], rows
 * @param w T[V,C], a row for each word
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param options [nullable]
 * @param out [out] loss: A[], the loss; A[n] with reduction "none", 0 in rows without a target; then stats: A[n,2],
 * statistics of each row's softmax for the backward part */
static inline ds_status ds_op_linear_cross_entropy(ds_graph* graph, int32_t x, int32_t w, int32_t targets, const
    ds_linear_cross_entropy_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, targets);
  if (options) {
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->z_loss != 0.0) ds_ops_number(&node, "z_loss", options->z_loss);
    if (options->reduction && strcmp(options->reduction, "mean") != 0) ds_ops_text(&node, "reduction", options->reduction);
    if (options->kept != 0) ds_ops_integer(&node, "kept", options->kept);
  }
  return ds_ops_end(&node, graph, "linear_cross_entropy", out);
}

/** Attributes of linear_cross_entropy_dx that may be left out. */
typedef struct ds_linear_cross_entropy_dx_options {
  /** e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log p); 0.0 by default
   * */
  double label_smoothing;
  /** z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row; 0.0 by default */
  double z_loss;
  /** the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none); "mean" by
   * default */
  const char* reduction;
  /** 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again; 0 by
   * default */
  int64_t kept;
} ds_linear_cross_entropy_dx_options;

static inline ds_linear_cross_entropy_dx_options ds_linear_cross_entropy_dx_options_init(void) {
  ds_linear_cross_entropy_dx_options options;
  options.label_smoothing = 0.0;
  options.z_loss = 0.0;
  options.reduction = "mean";
  options.kept = 0;
  return options;
}

/** The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
 * over the blocks in A. Not differentiable.
 * @param dloss A[], gradient of the loss; A[n] with reduction "none"
 * @param x T[n,C], rows
 * @param w T[V,C], a row for each word
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param stats A[n,2], statistics of each row's softmax for the backward part
 * @param options [nullable]
 * @param out [out] dx: T[n,C], gradient of x; then dw: T[V,C], gradient of w */
static inline ds_status ds_op_linear_cross_entropy_dx(ds_graph* graph, int32_t dloss, int32_t x, int32_t w, int32_t
    targets, int32_t stats, const ds_linear_cross_entropy_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, targets);
  ds_ops_operand(&node, stats);
  if (options) {
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->z_loss != 0.0) ds_ops_number(&node, "z_loss", options->z_loss);
    if (options->reduction && strcmp(options->reduction, "mean") != 0) ds_ops_text(&node, "reduction", options->reduction);
    if (options->kept != 0) ds_ops_integer(&node, "kept", options->kept);
  }
  return ds_ops_end(&node, graph, "linear_cross_entropy_dx", out);
}

/** The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
 * over the blocks in A. Not differentiable.
 * @param dloss A[], gradient of the loss; A[n] with reduction "none"
 * @param x T[n,C], rows
 * @param w T[V,C], a row for each word
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param stats A[n,2], statistics of each row's softmax for the backward part
 * @param logits T[n,P], the logits that the forward part keeps with {kept=1}; P is V rounded up to a multiple of 8
 * @param options [nullable]
 * @param out [out] dx: T[n,C], gradient of x; then dw: T[V,C], gradient of w */
static inline ds_status ds_op_linear_cross_entropy_dx_kept(ds_graph* graph, int32_t dloss, int32_t x, int32_t w, int32_t
    targets, int32_t stats, int32_t logits, const ds_linear_cross_entropy_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, targets);
  ds_ops_operand(&node, stats);
  ds_ops_operand(&node, logits);
  if (options) {
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->z_loss != 0.0) ds_ops_number(&node, "z_loss", options->z_loss);
    if (options->reduction && strcmp(options->reduction, "mean") != 0) ds_ops_text(&node, "reduction", options->reduction);
    if (options->kept != 0) ds_ops_integer(&node, "kept", options->kept);
  }
  return ds_ops_end(&node, graph, "linear_cross_entropy_dx", out);
}

/** The number of rows with a target, as cross_entropy counts them. Not differentiable.
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param out [out] count: f32[], the number of rows with a target */
static inline ds_status ds_op_count_targets(ds_graph* graph, int32_t targets, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, targets);
  return ds_ops_end(&node, graph, "count_targets", out);
}

/** The mean of (x - target)^2 over all elements, added in order in f64.
 * @param x T[any], any tensor
 * @param target T[any], the wanted values of x
 * @param out [out] loss: A[], the loss */
static inline ds_status ds_op_mse(ds_graph* graph, int32_t x, int32_t target, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, target);
  return ds_ops_end(&node, graph, "mse", out);
}

/** The gradient 2 dloss (x - target) / elements of x in an mse. Not differentiable.
 * @param dloss A[], gradient of the loss
 * @param x T[any], any tensor
 * @param target T[any], the wanted values of x
 * @param out [out] dx: T[any], gradient of x */
static inline ds_status ds_op_mse_dx(ds_graph* graph, int32_t dloss, int32_t x, int32_t target, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, x);
  ds_ops_operand(&node, target);
  return ds_ops_end(&node, graph, "mse_dx", out);
}

/** Attributes of preference_loss that may be left out. */
typedef struct ds_preference_loss_options {
  /** how a pair is judged (sigmoid, hinge, ipo, odds, simpo); "sigmoid" by default */
  const char* loss;
  /** b > 0, the strength of the preference; 0.1 by default */
  double beta;
  /** e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo; 0.0 by default */
  double label_smoothing;
  /** the margin g of simpo; 0.0 by default */
  double margin;
} ds_preference_loss_options;

static inline ds_preference_loss_options ds_preference_loss_options_init(void) {
  ds_preference_loss_options options;
  options.loss = "sigmoid";
  options.beta = 0.1;
  options.label_smoothing = 0.0;
  options.margin = 0.0;
  return options;
}

/** The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
 * reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
 * sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
 * log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
 * The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.
 * @param losses A[n], the loss -log p of each row: a cross_entropy with reduction "none"
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param rows rows of a text; chosen and rejected texts take turns
 * @param options [nullable]
 * @param out [out] loss: A[], the loss; then rewards: A[4], means over pairs: the reward of the chosen and of the
 * rejected text, the share of pairs whose chosen text has the larger one, and the difference of both */
static inline ds_status ds_op_preference_loss(ds_graph* graph, int32_t losses, int32_t targets, int64_t rows, const
    ds_preference_loss_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, losses);
  ds_ops_operand(&node, targets);
  ds_ops_integer(&node, "rows", rows);
  if (options) {
    if (options->loss && strcmp(options->loss, "sigmoid") != 0) ds_ops_text(&node, "loss", options->loss);
    if (options->beta != 0.1) ds_ops_number(&node, "beta", options->beta);
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->margin != 0.0) ds_ops_number(&node, "margin", options->margin);
  }
  return ds_ops_end(&node, graph, "preference_loss", out);
}

/** The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
 * reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
 * sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
 * log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
 * The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.
 * @param losses A[n], the loss -log p of each row: a cross_entropy with reduction "none"
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param reference A[n], the losses of the same rows in the reference model
 * @param rows rows of a text; chosen and rejected texts take turns
 * @param options [nullable]
 * @param out [out] loss: A[], the loss; then rewards: A[4], means over pairs: the reward of the chosen and of the
 * rejected text, the share of pairs whose chosen text has the larger one, and the difference of both */
static inline ds_status ds_op_preference_loss_reference(ds_graph* graph, int32_t losses, int32_t targets, int32_t
    reference, int64_t rows, const ds_preference_loss_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, losses);
  ds_ops_operand(&node, targets);
  ds_ops_operand(&node, reference);
  ds_ops_integer(&node, "rows", rows);
  if (options) {
    if (options->loss && strcmp(options->loss, "sigmoid") != 0) ds_ops_text(&node, "loss", options->loss);
    if (options->beta != 0.1) ds_ops_number(&node, "beta", options->beta);
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->margin != 0.0) ds_ops_number(&node, "margin", options->margin);
  }
  return ds_ops_end(&node, graph, "preference_loss", out);
}

/** Attributes of preference_loss_dx that may be left out. */
typedef struct ds_preference_loss_dx_options {
  /** how a pair is judged (sigmoid, hinge, ipo, odds, simpo); "sigmoid" by default */
  const char* loss;
  /** b > 0, the strength of the preference; 0.1 by default */
  double beta;
  /** e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo; 0.0 by default */
  double label_smoothing;
  /** the margin g of simpo; 0.0 by default */
  double margin;
} ds_preference_loss_dx_options;

static inline ds_preference_loss_dx_options ds_preference_loss_dx_options_init(void) {
  ds_preference_loss_dx_options options;
  options.loss = "sigmoid";
  options.beta = 0.1;
  options.label_smoothing = 0.0;
  options.margin = 0.0;
  return options;
}

/** The gradients of the losses and the reference of a preference_loss. Not differentiable.
 * @param dloss A[], gradient of the loss
 * @param losses A[n], the loss -log p of each row: a cross_entropy with reduction "none"
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param rows rows of a text; chosen and rejected texts take turns
 * @param options [nullable]
 * @param out [out] dlosses: A[n], gradient of losses */
static inline ds_status ds_op_preference_loss_dx(ds_graph* graph, int32_t dloss, int32_t losses, int32_t targets,
    int64_t rows, const ds_preference_loss_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, losses);
  ds_ops_operand(&node, targets);
  ds_ops_integer(&node, "rows", rows);
  if (options) {
    if (options->loss && strcmp(options->loss, "sigmoid") != 0) ds_ops_text(&node, "loss", options->loss);
    if (options->beta != 0.1) ds_ops_number(&node, "beta", options->beta);
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->margin != 0.0) ds_ops_number(&node, "margin", options->margin);
  }
  return ds_ops_end(&node, graph, "preference_loss_dx", out);
}

/** The gradients of the losses and the reference of a preference_loss. Not differentiable.
 * @param dloss A[], gradient of the loss
 * @param losses A[n], the loss -log p of each row: a cross_entropy with reduction "none"
 * @param targets i32[n], the right word of each row; -100: the row has none
 * @param reference A[n], the losses of the same rows in the reference model
 * @param rows rows of a text; chosen and rejected texts take turns
 * @param options [nullable]
 * @param out [out] dlosses: A[n], gradient of losses; then dreference: A[n], gradient of reference */
static inline ds_status ds_op_preference_loss_dx_reference(ds_graph* graph, int32_t dloss, int32_t losses, int32_t
    targets, int32_t reference, int64_t rows, const ds_preference_loss_dx_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dloss);
  ds_ops_operand(&node, losses);
  ds_ops_operand(&node, targets);
  ds_ops_operand(&node, reference);
  ds_ops_integer(&node, "rows", rows);
  if (options) {
    if (options->loss && strcmp(options->loss, "sigmoid") != 0) ds_ops_text(&node, "loss", options->loss);
    if (options->beta != 0.1) ds_ops_number(&node, "beta", options->beta);
    if (options->label_smoothing != 0.0) ds_ops_number(&node, "label_smoothing", options->label_smoothing);
    if (options->margin != 0.0) ds_ops_number(&node, "margin", options->margin);
  }
  return ds_ops_end(&node, graph, "preference_loss_dx", out);
}

/** Attributes of dora_norm that may be left out. */
typedef struct ds_dora_norm_options {
  /** 1: the weight is stored as T[I,O]; 0 by default */
  int32_t transposed;
} ds_dora_norm_options;

static inline ds_dora_norm_options ds_dora_norm_options_init(void) {
  ds_dora_norm_options options;
  options.transposed = 0;
  return options;
}

/** The Euclidean norms of the rows of an adapted weight w + factor b a. Its gradient counts as 0. Not differentiable.
 * @param w T[O,I], weight
 * @param a T[R,I], first matrix of the adapter
 * @param b T[O,R], second matrix of the adapter
 * @param factor factor of the product b a
 * @param options [nullable]
 * @param out [out] norms: T[O], norm of each row */
static inline ds_status ds_op_dora_norm(ds_graph* graph, int32_t w, int32_t a, int32_t b, double factor, const
    ds_dora_norm_options* options, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, w);
  ds_ops_operand(&node, a);
  ds_ops_operand(&node, b);
  ds_ops_number(&node, "factor", factor);
  if (options) {
    if (options->transposed != 0) ds_ops_integer(&node, "transposed", options->transposed);
  }
  return ds_ops_end(&node, graph, "dora_norm", out);
}

/** The values that an adapter with magnitudes adds to the result of a linear: with c = m / norms, (c - 1) (base - b) +
 * c product. norms counts as a constant.
 * @param base T[n,O], products of rows and the weight, plus the bias
 * @param product T[n,O], products of rows and the adapter
 * @param m T[O], magnitude of each output
 * @param norms T[O], results of dora_norm
 * @param b [nullable: -1] T[O], bias in base
 * @param out [out] y: T[n,O], the sums */
static inline ds_status ds_op_dora(ds_graph* graph, int32_t base, int32_t product, int32_t m, int32_t norms, int32_t b,
    int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, base);
  ds_ops_operand(&node, product);
  ds_ops_operand(&node, m);
  ds_ops_operand(&node, norms);
  if (b >= 0) ds_ops_operand(&node, b);
  return ds_ops_end(&node, graph, "dora", out);
}

/** The gradients (c - 1) dy and c dy of base and product of a dora. Not differentiable.
 * @param dy T[n,O], gradient of the result
 * @param m T[O], magnitude of each output
 * @param norms T[O], results of dora_norm
 * @param out [out] dbase: T[n,O], gradient of base; then dproduct: T[n,O], gradient of product */
static inline ds_status ds_op_dora_dx(ds_graph* graph, int32_t dy, int32_t m, int32_t norms, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, m);
  ds_ops_operand(&node, norms);
  return ds_ops_end(&node, graph, "dora_dx", out);
}

/** The gradient of the magnitudes of a dora: the sum over rows of dy (base - b + product) / norms. Not differentiable.
 * @param dy T[n,O], gradient of the result
 * @param base T[n,O], products of rows and the weight, plus the bias
 * @param product T[n,O], products of rows and the adapter
 * @param norms T[O], results of dora_norm
 * @param b [nullable: -1] T[O], bias in base
 * @param out [out] dm: T[O], gradient of m */
static inline ds_status ds_op_dora_dm(ds_graph* graph, int32_t dy, int32_t base, int32_t product, int32_t norms, int32_t
    b, int32_t* out) {
  ds_ops_node node;
  ds_ops_begin(&node);
  ds_ops_operand(&node, dy);
  ds_ops_operand(&node, base);
  ds_ops_operand(&node, product);
  ds_ops_operand(&node, norms);
  if (b >= 0) ds_ops_operand(&node, b);
  return ds_ops_end(&node, graph, "dora_dm", out);
}

#endif
