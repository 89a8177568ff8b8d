#include "jobs.h"

#include <span>
#include <string_view>

#include "core/graph/ops.h"
#include "core/program/codes.h"

namespace ds::bench {
namespace {

// A graph's shape is ds::Shape; this file's Shape is that of a model.
TensorType tensor(DType dtype, std::vector<int64_t> dims) {
  return {dtype, ds::Shape(std::vector<Dim>(dims.begin(), dims.end()))};
}

constexpr DType f32 = DS_DTYPE_F32, i32 = DS_DTYPE_I32;
constexpr int64_t kExperts = 8;

void linear_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  struct Layer {
    const char* name;
    int64_t out, in;
  };
  const Attrs turned{{"transposed", int64_t{1}}};
  for (const Layer& l : {Layer{"qkv", 3 * s.width, s.width},
                         {"proj", s.width, s.width},
                         {"fc", 4 * s.width, s.width},
                         {"fc_proj", s.width, 4 * s.width},
                         {"head", s.vocab, s.width}}) {
    TensorType x = tensor(t, {s.rows, l.in}), w = tensor(t, {l.out, l.in}), b = tensor(t, {l.out}),
               y = tensor(t, {s.rows, l.out}), wt = tensor(t, {l.in, l.out});
    std::string name = l.name;
    jobs.push_back({"linear/" + name, "linear", {}, {x, w, b}, {y}});
    jobs.push_back({"linear_dx/" + name, "linear_dx", {}, {y, w}, {x}});
    jobs.push_back({"linear_dw/" + name, "linear_dw", {}, {y, x}, {w}});
    jobs.push_back({"linear/" + name + "_t", "linear", turned, {x, wt, b}, {y}});
    jobs.push_back({"linear_dx/" + name + "_t", "linear_dx", turned, {y, wt}, {x}});
    jobs.push_back({"linear_dw/" + name + "_t", "linear_dw", turned, {y, x}, {wt}});
    jobs.push_back({"linear_db/" + name, "linear_db", {}, {y}, {b}});
  }
}

void attention_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType x = tensor(t, {s.rows, s.width}), qkv = tensor(t, {s.rows, 3 * s.width}),
             lse = tensor(f32, {s.heads, s.rows}), few = tensor(t, {s.rows, s.width / s.heads * 2});
  Attrs packed{{"heads", s.heads}, {"seq", s.seq}};
  Attrs grouped{{"heads", s.heads}, {"seq", s.seq}, {"kv_heads", int64_t{2}}};
  jobs.push_back({"attention", "attention", packed, {qkv}, {x, lse}});
  jobs.push_back({"attention_dx", "attention_dx", packed, {x, qkv, x, lse}, {qkv}});
  jobs.push_back({"attention/grouped", "attention", grouped, {x, few, few}, {x, lse}});
  jobs.push_back(
      {"attention_dx/grouped", "attention_dx", grouped, {x, x, few, few, x, lse}, {x, few, few}});
}

// Adds the kernels of one token of a text whose cache holds `seq` positions.
void decode_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType x = tensor(t, {1, s.width}), qkv = tensor(t, {1, 3 * s.width}), at = tensor(i32, {1}),
             cache = tensor(t, {2 * s.heads, s.seq, s.width / s.heads}),
             rows = tensor(t, {s.rows, s.width}), head = tensor(t, {s.vocab, s.width}),
             logits = tensor(t, {1, s.vocab});
  jobs.push_back({"cached_attention",
                  "cached_attention",
                  {{"heads", s.heads}},
                  {qkv, at, cache},
                  {x, cache},
                  s.seq});
  jobs.push_back({"last_row", "last_row", {}, {rows}, {x}});
  jobs.push_back({"linear/head_of_one_row", "linear", {}, {x, head}, {logits}});
}

// The scratch has the size that core/graph/ops plans.
void fused_head_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType x = tensor(t, {s.rows, s.width}), w = tensor(t, {s.vocab, s.width}),
             ids = tensor(i32, {s.rows}), one = tensor(f32, {}), stats = tensor(f32, {s.rows, 2});
  const TensorType in[] = {x, w, ids}, in_dx[] = {one, x, w, ids, stats};
  for (const char* name : {"linear_cross_entropy", "linear_cross_entropy_dx"}) {
    bool forward = std::string_view(name) == "linear_cross_entropy";
    std::span<const TensorType> operands = forward ? std::span<const TensorType>(in) : in_dx;
    jobs.push_back(
        {name, name, {}, {operands.begin(), operands.end()}, op(name).infer(operands, {})});
  }
}

void row_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType x = tensor(t, {s.rows, s.width}), w = tensor(t, {s.width}),
             stat = tensor(f32, {s.rows}), one = tensor(f32, {}), ids = tensor(i32, {s.rows}),
             table = tensor(t, {s.vocab, s.width}), places = tensor(t, {s.seq, s.width}),
             logits = tensor(t, {s.rows, s.vocab}), stats = tensor(f32, {s.rows, 2});
  Attrs seq{{"seq", s.seq}}, rows{{"rows", s.vocab}}, seq_rows{{"seq", s.seq}, {"rows", s.seq}};
  jobs.push_back({"embedding", "embedding", {}, {table, ids}, {x}});
  jobs.push_back({"embedding_dw", "embedding_dw", rows, {x, ids}, {table}});
  jobs.push_back({"position", "position", seq, {x, places}, {x}});
  jobs.push_back({"position_dw", "position_dw", seq_rows, {x}, {places}});
  jobs.push_back({"layer_norm", "layer_norm", {{"eps", 1e-5}}, {x, w, w}, {x, stat, stat}});
  jobs.push_back({"layer_norm_dx", "layer_norm_dx", {}, {x, x, w, stat, stat}, {x}});
  jobs.push_back({"layer_norm_dw", "layer_norm_dw", {}, {x, x, stat, stat}, {w, w}});
  jobs.push_back({"add", "add", {}, {x, x}, {x}});
  jobs.push_back({"dropout", "dropout", {{"p", 0.1}, {"op", int64_t{3}}}, {x}, {x}});
  jobs.push_back({"cross_entropy", "cross_entropy", {}, {logits, ids}, {one, stats}});
  jobs.push_back({"cross_entropy_dx", "cross_entropy_dx", {}, {one, logits, ids, stats}, {logits}});
  const Attrs smooth{{"label_smoothing", 0.1}, {"z_loss", 1e-4}};
  jobs.push_back({"cross_entropy/smooth", "cross_entropy", smooth, {logits, ids}, {one, stats}});
  jobs.push_back(
      {"cross_entropy_dx/smooth", "cross_entropy_dx", smooth, {one, logits, ids, stats}, {logits}});
  jobs.push_back({"softmax", "softmax", {}, {logits}, {logits}});
  jobs.push_back({"softmax/log", "softmax", {{"log", int64_t{1}}}, {logits}, {logits}});
  jobs.push_back({"softmax_dx", "softmax_dx", {}, {logits, logits}, {logits}});
  TensorType scores = tensor(t, {s.rows, s.seq});
  jobs.push_back({"causal_softmax", "causal_softmax", seq, {scores}, {scores}});
  fused_head_jobs(s, t, jobs);
  jobs.push_back({"mse", "mse", {}, {x, x}, {one}});
  jobs.push_back({"mse_dx", "mse_dx", {}, {one, x, x}, {x}});
}

// Adds activations at the width of the feed-forward part.
void activation_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType wide = tensor(t, {s.rows, 4 * s.width});
  struct Case {
    const char *name, *op;
    Attrs attrs;
  };
  for (const Case& c : {Case{"gelu", "gelu", {}},
                        {"gelu/erf", "gelu", {{"form", "erf"}}},
                        {"relu", "relu", {}},
                        {"gelu/10", "gelu", {{"form", "10"}}},
                        {"relu2", "relu2", {}},
                        {"silu", "silu", {}},
                        {"tanh", "tanh", {}},
                        {"laplace", "laplace", {}},
                        {"sigmoid", "sigmoid", {}},
                        {"quick_gelu", "quick_gelu", {}},
                        {"softplus", "softplus", {}},
                        {"softcap", "softcap", {{"cap", 30.0}}}}) {
    std::string name = c.name, op = c.op;
    std::string dx = op + "_dx" + name.substr(op.size());
    jobs.push_back({name, op, c.attrs, {wide}, {wide}});
    jobs.push_back({dx, op + "_dx", c.attrs, {wide, wide}, {wide}});
  }
  for (const char* act : {"silu", "gelu_tanh", "gelu_erf", "relu"}) {
    Attrs attrs{{"act", act}};
    jobs.push_back({std::string("glu/") + act, "glu", attrs, {wide, wide}, {wide}});
    jobs.push_back(
        {std::string("glu_dx/") + act, "glu_dx", attrs, {wide, wide, wide}, {wide, wide}});
  }
}

// Adds the operations of adapters with magnitudes (DoRA).
void magnitude_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  constexpr int64_t kRank = 16;
  TensorType x = tensor(t, {s.rows, s.width}), w = tensor(t, {s.width, s.width}),
             a = tensor(t, {kRank, s.width}), b = tensor(t, {s.width, kRank}),
             m = tensor(t, {s.width});
  jobs.push_back({"dora_norm", "dora_norm", {{"factor", 2.0}}, {w, a, b}, {m}});
  jobs.push_back({"dora", "dora", {}, {x, x, m, m}, {x}});
  jobs.push_back({"dora_dx", "dora_dx", {}, {x, m, m}, {x, x}});
  jobs.push_back({"dora_dm", "dora_dm", {}, {x, x, x, m}, {m}});
}

// Adds operations that GPT-2 lacks and Llama or mixtures of experts have, with heads as wide as
// those of attention.
void gated_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  int64_t depth = s.width / s.heads;
  TensorType x = tensor(t, {s.rows, s.width}), w = tensor(t, {s.width}),
             one_head = tensor(t, {depth}), stat = tensor(f32, {s.rows, 1}),
             stats = tensor(f32, {s.rows, s.heads}), gates = tensor(t, {s.rows, kExperts});
  Attrs eps{{"eps", 1e-6}}, rope{{"heads", s.heads}, {"seq", s.seq}, {"theta", 1e4}};
  Attrs column{{"column", int64_t{3}}}, columns{{"columns", kExperts}, {"column", int64_t{3}}};
  jobs.push_back({"rms_norm", "rms_norm", eps, {x, w}, {x, stat}});
  jobs.push_back({"rms_norm/heads", "rms_norm", eps, {x, one_head}, {x, stats}});
  jobs.push_back({"rms_norm_dx", "rms_norm_dx", {}, {x, x, w, stat}, {x}});
  jobs.push_back({"rms_norm_dx/heads", "rms_norm_dx", {}, {x, x, one_head, stats}, {x}});
  jobs.push_back({"rms_norm_dw", "rms_norm_dw", {{"width", s.width}}, {x, x, stat}, {w}});
  jobs.push_back(
      {"rms_norm_dw/heads", "rms_norm_dw", {{"width", depth}}, {x, x, stats}, {one_head}});
  jobs.push_back({"rope", "rope", rope, {x}, {x}});
  jobs.push_back({"mul", "mul", {}, {x, x}, {x}});
  jobs.push_back({"scale", "scale", {{"factor", 0.5}}, {x}, {x}});
  jobs.push_back({"scale_rows", "scale_rows", column, {x, gates}, {x}});
  jobs.push_back({"scale_rows_dw", "scale_rows_dw", columns, {x, x}, {gates}});
}

// Adds the coding of `elements` elements and, for f32, the sum of the codes of two ranks.
void quantize_jobs(const Shape& s, DType t, std::vector<Job>& jobs) {
  TensorType f = tensor(f32, {s.elements}), p = tensor(t, {s.elements});
  for (int64_t bits : {8, 4}) {
    TensorType codes = tensor(DS_DTYPE_U8, {code_bytes(s.elements, bits)}),
               both = tensor(DS_DTYPE_U8, {2 * code_bytes(s.elements, bits)});
    std::string kind = "/int" + std::to_string(bits);
    Attrs attrs{{"bits", bits}}, sum{{"bits", bits}, {"ranks", int64_t{2}}},
        fed{{"bits", bits}, {"err_beta", 0.8}};
    jobs.push_back({"quantize" + kind, "quantize", attrs, {p}, {codes}});
    jobs.push_back({"quantize/error" + kind, "quantize", fed, {p}, {f, codes}});
    jobs.push_back({"dequantize" + kind, "dequantize", attrs, {codes}, {p}});
    if (t == f32) jobs.push_back({"dequantize_sum" + kind, "dequantize_sum", sum, {both}, {f}});
  }
}

// Adds updates of `elements` parameters with f32 masters and states; param is the type of the copy
// to which masters are rounded.
void update_jobs(const Shape& s, DType param, std::vector<Job>& jobs) {
  TensorType f = tensor(f32, {s.elements}), p = tensor(param, {s.elements});
  Attrs adamw{{"l2", int64_t{0}}};
  Attrs sgd{{"nesterov", int64_t{0}}};
  jobs.push_back({"adamw", "adamw", adamw, {f}, {f, f, f, p}});
  jobs.push_back({"sgd", "sgd", sgd, {f}, {f, f, p}});
  jobs.push_back({"accumulate", "accumulate", {{"beta", int64_t{1}}}, {p}, {f}});
  if (param == f32) {
    const TensorType norms = tensor(DS_DTYPE_F64, {s.elements / 256});
    jobs.push_back({"granule_norms", "granule_norms", {}, {f}, {norms}});
    jobs.push_back({"sum_norms", "sum_norms", {}, {norms}, {tensor(DS_DTYPE_F64, {1})}});
    jobs.push_back({"clip", "clip", {{"max_norm", 1.0}}, {norms}, {tensor(DS_DTYPE_U8, {256})}});
    jobs.push_back({"zero", "zero", {}, {}, {f}});
    return;
  }
  jobs.push_back({"cast/to", "cast", {{"dtype", dtype_name(param)}}, {f}, {p}});
  jobs.push_back({"cast/from", "cast", {{"dtype", dtype_name(f32)}}, {p}, {f}});
}

}  // namespace

std::vector<Job> document_jobs(DType t, int64_t rows) {
  constexpr int64_t kHeads = 12, kDepth = 64;
  TensorType x = tensor(t, {rows, kHeads * kDepth}), qkv = tensor(t, {rows, 3 * kHeads * kDepth}),
             lse = tensor(f32, {kHeads, rows}), begin = tensor(i32, {rows});
  const Attrs attrs{{"heads", kHeads}, {"seq", rows}, {"documents", int64_t{1}}};
  return {{"attention/documents", "attention", attrs, {qkv, begin}, {x, lse}},
          {"attention_dx/documents", "attention_dx", attrs, {x, qkv, begin, x, lse}, {qkv}}};
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {"gpt2", 2048, 768, 12, 512, 50257, 1 << 25},
      {"main", 1024, 384, 6, 128, 256, 1 << 21},
  };
  return all;
}

std::vector<Job> jobs(const Shape& shape) {
  std::vector<Job> all;
  for (DType t : {DS_DTYPE_BF16, DS_DTYPE_F32}) {
    size_t first = all.size();
    linear_jobs(shape, t, all);
    attention_jobs(shape, t, all);
    decode_jobs(shape, t, all);
    row_jobs(shape, t, all);
    activation_jobs(shape, t, all);
    gated_jobs(shape, t, all);
    magnitude_jobs(shape, t, all);
    update_jobs(shape, t, all);
    quantize_jobs(shape, t, all);
    for (size_t i = first; i < all.size(); ++i) {
      all[i].name = std::string(shape.name) + "/" + all[i].name + "/" + dtype_name(t);
    }
  }
  return all;
}

}  // namespace ds::bench
