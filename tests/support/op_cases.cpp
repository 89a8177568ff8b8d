#include "core/base/error.h"
#include "core/base/round.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

struct Sizes {
  int64_t n, heads, depth, out, vocab, seq;
  int64_t width() const { return heads * depth; }
};

// A builder of the cases for one set of sizes. Statistics come from the f64 reference.
class CaseBuilder {
 public:
  CaseBuilder(const Sizes& sizes, std::vector<OpCase>& cases) : s_(sizes), cases_(cases) {
    register_ref(registry_);
  }

  void build() {
    embedding();
    linear();
    layer_norm();
    rms_norm();
    elementwise();
    gates();
    rope();
    router();
    attention();
    attention_variants();
    cached_attention();
    losses();
    softmax();
    dora();
  }

 private:
  Tensor real(std::vector<int64_t> dims) {
    return random_tensor(DS_DTYPE_F64, std::move(dims), ++seed_);
  }
  void add(std::string op, Attrs attrs, std::vector<Tensor> in) {
    cases_.push_back({std::move(op), std::move(attrs), std::move(in)});
  }
  // Returns the outputs of the case that was added last.
  std::vector<Tensor> outputs() {
    return run_case(implementation(registry_, cases_.back().op, "ref"), cases_.back(), DS_DTYPE_F64,
                    team_);
  }

  void embedding() {
    int64_t rows = s_.seq + 2;
    Tensor ids = random_ids(s_.n, s_.vocab, 5), x = real({s_.n, s_.width()});
    add("embedding", {}, {real({s_.vocab, s_.width()}), ids});
    add("embedding_dw", {{"rows", s_.vocab}}, {x, ids});
    auto padding = static_cast<int64_t>(ids.at(0));
    add("embedding_dw", {{"rows", s_.vocab}, {"padding", padding}}, {x, ids});
    add("position", {{"seq", s_.seq}}, {x, real({rows, s_.width()})});
    add("position_dw", {{"seq", s_.seq}, {"rows", rows}}, {x});
    add("last_row", {}, {x});
  }

  void linear() {
    Tensor x = real({s_.n, s_.width()}), w = real({s_.out, s_.width()}), dy = real({s_.n, s_.out});
    add("linear", {}, {x, w});
    add("linear", {}, {x, w, real({s_.out})});
    add("linear", {}, {real({3, s_.width()}), w, real({s_.out})});
    add("linear_dx", {}, {dy, w});
    add("linear_dw", {}, {dy, x});
    add("linear_db", {}, {dy});
    const Attrs transposed{{"transposed", int64_t{1}}};
    Tensor turned = real({s_.width(), s_.out});
    add("linear", transposed, {real({3, s_.width()}), turned, real({s_.out})});
    // The inner dimension is so long that kernels process it in several pieces.
    Tensor deep = real({90 * s_.out, s_.width()});
    add("linear", transposed, {real({2, 90 * s_.out}), deep});
    add("linear", transposed, {x, turned});
    add("linear", transposed, {x, turned, real({s_.out})});
    add("linear_dx", transposed, {dy, turned});
    add("linear_dw", transposed, {dy, x});
  }

  void dora() {
    const int64_t rank = 3;
    const Tensor w = real({s_.out, s_.width()}), turned = real({s_.width(), s_.out}),
                 a = real({rank, s_.width()}), b = real({s_.out, rank}),
                 base = real({s_.n, s_.out}), product = real({s_.n, s_.out}),
                 dy = real({s_.n, s_.out}), m = real({s_.out}), bias = real({s_.out});
    add("dora_norm", {{"factor", 0.5}, {"transposed", int64_t{1}}}, {turned, a, b});
    add("dora_norm", {{"factor", 2.0}}, {w, a, b});
    const Tensor norms = outputs()[0];
    add("dora", {}, {base, product, m, norms});
    add("dora", {}, {base, product, m, norms, bias});
    add("dora_dx", {}, {dy, m, norms});
    add("dora_dm", {}, {dy, base, product, norms});
    add("dora_dm", {}, {dy, base, product, norms, bias});
  }

  void layer_norm() {
    Tensor x = real({s_.n, s_.width()}), w = real({s_.width()}), dy = real({s_.n, s_.width()});
    add("layer_norm", {{"eps", 1e-5}}, {x, w, real({s_.width()})});
    std::vector<Tensor> y = outputs();
    add("layer_norm_dx", {}, {dy, x, w, y[1], y[2]});
    add("layer_norm_dw", {}, {dy, x, y[1], y[2]});
    add("layer_norm", {{"eps", 1e-5}}, {x});
    add("layer_norm_dx", {}, {dy, x, y[1], y[2]});
  }

  // Adds cases that normalize whole rows, and cases that normalize each head separately.
  void rms_norm() {
    Tensor x = real({s_.n, s_.width()}), dy = real({s_.n, s_.width()});
    for (int64_t width : {s_.width(), s_.depth}) {
      for (int64_t offset : {0, 1}) {
        Attrs attrs{{"eps", 0.1}}, attrs_dx;
        if (offset != 0) attrs.set("offset", offset);
        if (offset != 0) attrs_dx.set("offset", offset);
        Tensor w = real({width});
        add("rms_norm", attrs, {x, w});
        Tensor rstd = outputs()[1];
        add("rms_norm_dx", attrs_dx, {dy, x, w, rstd});
        if (offset == 0) add("rms_norm_dw", {{"width", width}}, {dy, x, rstd});
      }
    }
  }

  void elementwise() {
    Tensor x = real({s_.n, s_.width()}), dy = real({s_.n, s_.width()});
    add("gelu", {}, {x});
    add("gelu_dx", {}, {dy, x});
    add("gelu", {{"form", "erf"}}, {x});
    add("gelu_dx", {{"form", "erf"}}, {dy, x});
    add("gelu", {{"form", "10"}}, {x});
    add("gelu_dx", {{"form", "10"}}, {dy, x});
    for (const char* op :
         {"silu", "relu", "tanh", "relu2", "laplace", "sigmoid", "quick_gelu", "softplus"}) {
      add(op, {}, {x});
      add(std::string(op) + "_dx", {}, {dy, x});
    }
    add("add", {}, {x, dy});
    add("dropout", {{"p", 0.3}, {"op", int64_t{9}}}, {x});
    // The draws of some of these streams skip the layer.
    for (int64_t stream : {9, 10, 11, 12}) {
      add("layerdrop", {{"p", 0.5}, {"op", stream}}, {x, dy});
      add("layerdrop_dx", {{"p", 0.5}, {"op", stream}}, {dy});
    }
    add("cast", {{"dtype", "f64"}}, {x});
    add("fill", {{"value", 0.5}, {"dtype", "f64"}}, {});
  }

  void gates() {
    Tensor x = real({s_.n, s_.width()}), y = real({s_.n, s_.width()}),
           dy = real({s_.n, s_.width()});
    Tensor packed = real({s_.n, 2 * s_.width()});
    for (const char* act : {"silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2",
                            "laplace", "sigmoid", "quick_gelu", "softplus"}) {
      Attrs attrs{{"act", act}};
      add("glu", attrs, {x, y});
      add("glu", attrs, {packed});
      add("glu_dx", attrs, {dy, x, y});
      add("glu_dx", attrs, {dy, packed});
    }
    add("mul", {}, {x, y});
    add("scale", {{"factor", 0.37}}, {x});
    add("softcap", {{"cap", 0.6}}, {x});
    add("softcap_dx", {{"cap", 1.5}}, {dy, y});
  }

  void rope() {
    int64_t depth = 2 * s_.depth, heads = s_.heads;
    Attrs plain{{"heads", heads}, {"seq", s_.seq}, {"theta", 1e4}};
    auto with = [&](std::initializer_list<std::pair<const char*, Attrs::Value>> more) {
      Attrs attrs = plain;
      for (const auto& [name, value] : more) attrs.set(name, value);
      return attrs;
    };
    Tensor x = real({s_.n, heads * depth});
    int64_t original = 8 * s_.seq;
    add("rope", plain, {x});
    add("rope", with({{"interleaved", int64_t{1}}, {"inverse", int64_t{1}}}), {x});
    add("rope", with({{"dims", (s_.depth + 1) / 2 * 2}, {"interleaved", int64_t{1}}}), {x});
    add("rope", with({{"scaling", "linear"}, {"factor", 2.5}, {"dims", (s_.depth + 1) / 2 * 2}}),
        {x});
    for (const char* scaling : {"llama3", "yarn"}) {
      add("rope",
          with({{"scaling", scaling},
                {"factor", 4.0},
                {"low", 1.0},
                {"high", 4.0},
                {"original", original}}),
          {x});
    }
    std::string factors;
    for (int64_t i = 0; i < s_.depth; ++i)
      factors += (i == 0 ? "" : " ") + std::to_string(1 + i % 3) + ".25";
    add("rope", with({{"scaling", "longrope"}, {"factors", factors}, {"magnitude", 1.3}}), {x});
    rope_by_length(with, x, factors);
    add("rope", with({{"heads", 3 * heads}, {"period", int64_t{3}}, {"rotated", int64_t{2}}}),
        {real({s_.n, 3 * heads * depth})});
    add("rope", plain, {x, places(3)});
  }

  // Adds cases of scalings that depend on the text's length. Attribute `seq` and operand `length`
  // lie on opposite sides of `original`.
  template <typename With>
  void rope_by_length(const With& with, const Tensor& x, const std::string& factors) {
    std::string wide;
    for (int64_t i = 0; i < s_.depth; ++i)
      wide += (i == 0 ? "" : " ") + std::to_string(2 + i % 4) + ".5";
    for (int64_t original : {s_.seq - 1, s_.seq}) {
      if (original < 1) continue;
      Tensor length(DS_DTYPE_I32, {1});
      length.set(0, static_cast<double>(original < s_.seq ? original : s_.seq + 2));
      Attrs longrope =
          with({{"scaling", "longrope"}, {"factors", factors}, {"original", original}});
      longrope.set("long_factors", wide);
      Attrs dynamic =
          with({{"scaling", "dynamic"}, {"factor", 3.0}, {"original", original}, {"power", 1.25}});
      for (const Attrs& attrs : {longrope, dynamic}) {
        add("rope", attrs, {x});
        add("rope", attrs, {x, places(3), length});
      }
    }
  }

  // Returns the positions of a text's rows: first, first + 1 and so on, except that the last row
  // has position first - 1.
  Tensor places(int64_t first) {
    Tensor out(DS_DTYPE_I32, {s_.n});
    for (int64_t r = 0; r < s_.n; ++r) out.set(r, r + 1 == s_.n ? first - 1 : first + r);
    return out;
  }

  // Returns logits. Any two values of a row differ by more than the step of a finite difference, so
  // the largest value stays the largest.
  Tensor logits() {
    Tensor z = real({s_.n, s_.out});
    for (int64_t e = 0; e < z.numel(); ++e) {
      z.set(e, static_cast<double>((e % s_.out + 3 * (e / s_.out)) % s_.out) * 0.125 - 1);
    }
    return z;
  }

  void router() {
    Tensor z = logits(), x = real({s_.n, s_.width()}), dy = real({s_.n, s_.out}), one = real({});
    int64_t k = (s_.out + 1) / 2;
    for (int64_t normalize : {0, 1}) {
      Attrs attrs{{"k", k}};
      if (normalize == 0) attrs.set("normalize", normalize);
      add("top_gates", attrs, {z});
      add("top_gates_dx", attrs, {dy, z});
    }
    add("scale_rows", {{"column", s_.out - 1}}, {x, dy});
    add("scale_rows_dw", {{"columns", s_.out}, {"column", s_.out / 2}},
        {x, real({s_.n, s_.width()})});
    add("load_balance", {{"k", k}}, {z});
    add("load_balance", {{"k", int64_t{1}}}, {z, dy, z});
    add("load_balance_dx", {{"k", k}}, {one, z, dy});
    add("load_balance", {{"k", k}}, {z, dy, key_mask()});
    add("load_balance_dx", {{"k", k}}, {one, z, dy, key_mask()});
  }

  void attention() {
    Attrs attrs{{"heads", s_.heads}, {"seq", s_.seq}};
    Tensor qkv = real({s_.n, 3 * s_.width()});
    add("attention", attrs, {qkv});
    std::vector<Tensor> y = outputs();
    add("attention_dx", attrs, {real({s_.n, s_.width()}), qkv, y[0], y[1]});
  }

  // Returns q, k and v with `groups` key heads, packed into one tensor if `parts` is 1.
  std::vector<Tensor> heads_of(size_t parts, int64_t groups) {
    if (parts == 1) return {real({s_.n, (s_.heads + 2 * groups) * s_.depth})};
    return {real({s_.n, s_.width()}), real({s_.n, groups * s_.depth}),
            real({s_.n, groups * s_.depth})};
  }

  // Returns a mask that hides all keys of the second sequence, key 0 (so that row 0 sees nothing if
  // causal) and some others.
  Tensor key_mask() {
    Tensor mask(DS_DTYPE_I32, {s_.n});
    for (int64_t r = 0; r < s_.n; ++r) mask.set(r, r != 0 && r / s_.seq != 1 && r % 5 != 3);
    return mask;
  }

  // Returns, for each row, the first row of its document. Documents have 1, 2, ... rows, up to the
  // smaller of seq and 5, then 1 again.
  Tensor document_begins() {
    Tensor begin(DS_DTYPE_I32, {s_.n});
    int64_t first = 0, length = 1;
    for (int64_t r = 0; r < s_.n; ++r) {
      if (r == first + length) {
        first = r;
        length = length % std::min<int64_t>(s_.seq, 5) + 1;
      }
      begin.set(r, static_cast<double>(first));
    }
    return begin;
  }

  void attention_case(size_t parts, int64_t groups, bool masked, Attrs attrs) {
    attrs.set("heads", s_.heads);
    attrs.set("seq", s_.seq);
    if (groups != s_.heads) attrs.set("kv_heads", groups);
    std::vector<Tensor> in = heads_of(parts, groups);
    if (masked) in.push_back(attrs.has("documents") ? document_begins() : key_mask());
    add("attention", attrs, in);
    std::vector<Tensor> y = outputs();
    in.insert(in.begin(), real({s_.n, s_.width()}));
    in.insert(in.end(), y.begin(), y.end());
    add("attention_dx", attrs, in);
  }

  void attention_variants() {
    attention_case(3, s_.heads, false, {});
    attention_case(3, 1, true, {});
    attention_case(1, 1, false, {{"window", int64_t{2}}});
    attention_case(1, s_.heads, true, {{"causal", int64_t{0}}});
    attention_case(3, 1, false, {{"causal", int64_t{0}}, {"scale", 0.75}});
    const Attrs::Value stream = int64_t{32770};
    attention_case(1, s_.heads, false, {{"dropout", 0.4}, {"op", stream}});
    attention_case(3, 1, true, {{"dropout", 0.25}, {"op", stream}, {"causal", int64_t{0}}});
    attention_case(3, s_.heads, true, {{"softcap", 0.5}, {"window", s_.seq / 2 + 1}});
    attention_case(1, s_.heads, true, {{"per_head", int64_t{1}}, {"scale", 1.5}});
    const Attrs::Value yes = int64_t{1};
    attention_case(1, s_.heads, true, {{"documents", yes}});
    attention_case(3, 1, true, {{"documents", yes}, {"window", int64_t{2}}, {"softcap", 0.5}});
    attention_case(1, 1, true, {{"documents", yes}, {"dropout", 0.25}, {"op", stream}});
  }

  void cached_case(size_t parts, int64_t groups, Attrs attrs) {
    constexpr int64_t kBefore = 5;
    attrs.set("heads", s_.heads);
    if (groups != s_.heads) attrs.set("kv_heads", groups);
    std::vector<Tensor> in = heads_of(parts, groups);
    in.push_back(places(kBefore));
    in.push_back(real({2 * groups, s_.n + kBefore + 2, s_.depth}));
    add("cached_attention", attrs, in);
  }

  void cached_attention() {
    cached_case(1, s_.heads, {});
    cached_case(1, 1, {{"window", int64_t{3}}});
    cached_case(3, s_.heads, {{"softcap", 0.5}, {"scale", 0.75}});
    cached_case(3, 1, {{"window", s_.n + 2}, {"scale", 1.5}});
    cached_case(1, s_.heads, {{"per_head", int64_t{1}}});
  }

  void losses() {
    Tensor logits = real({s_.n, s_.vocab}), targets = random_ids(s_.n, s_.vocab, 6), one = real({});
    if (s_.n > 2) targets.set(1, -100);
    add("count_targets", {}, {targets});
    add("cross_entropy", {}, {logits, targets});
    std::vector<Tensor> loss = outputs();
    add("cross_entropy_dx", {}, {one, logits, targets, loss[1]});
    Tensor target = real({s_.n, s_.vocab});
    head(s_.vocab, targets);
    for (const Attrs& attrs :
         {Attrs{{"label_smoothing", 0.3}}, Attrs{{"z_loss", 0.05}, {"reduction", "sum"}},
          Attrs{{"label_smoothing", 0.1}, {"z_loss", 0.01}, {"reduction", "none"}}}) {
      add("cross_entropy", attrs, {logits, targets});
      std::vector<Tensor> y = outputs();
      add("cross_entropy_dx", attrs, {real(y[0].dims()), logits, targets, y[1]});
      head(s_.vocab, targets, attrs);
    }
    add("mse", {}, {logits, target});
    add("mse_dx", {}, {one, logits, target});
    preferences();
  }

  // Each text has a target in its first row. Losses are above 0, as -log p is.
  void preferences() {
    const int64_t rows = std::max<int64_t>(1, s_.n / 4);
    Tensor losses = real({s_.n}), reference = real({s_.n}), one = real({});
    Tensor targets = random_ids(s_.n, s_.vocab, 9);
    for (int64_t r = 0; r < s_.n; ++r) {
      losses.set(r, std::abs(losses.at(r)) + 0.1);
      if (r % rows != 0 && r % 3 == 0) targets.set(r, -100);
    }
    add("preference_loss", {{"rows", rows}}, {losses, targets, reference});
    add("preference_loss_dx", {{"rows", rows}}, {one, losses, targets, reference});
    for (const char* loss : {"sigmoid", "hinge", "ipo", "odds", "simpo"}) {
      const std::string_view name = loss;
      Attrs attrs{{"rows", rows}, {"loss", std::string(name)}, {"beta", 0.3}};
      if (name == "sigmoid") attrs.set("label_smoothing", 0.2);
      if (name == "simpo") attrs.set("margin", 0.5);
      std::vector<Tensor> in{losses, targets};
      if (name != "odds" && name != "simpo") in.push_back(reference);
      add("preference_loss", attrs, in);
      in.insert(in.begin(), one);
      add("preference_loss_dx", attrs, in);
    }
  }

  void head(int64_t words, const Tensor& targets, const Attrs& attrs = {}) {
    Tensor x = real({s_.n, s_.width()}), w = real({words, s_.width()});
    add("linear_cross_entropy", attrs, {x, w, targets});
    std::vector<Tensor> y = outputs();
    Tensor dloss = real(y[0].dims());
    add("linear_cross_entropy_dx", attrs, {dloss, x, w, targets, y[1]});
    Attrs kept = attrs;
    kept.set("kept", int64_t{1});
    add("linear_cross_entropy", kept, {x, w, targets});
    add("linear_cross_entropy_dx", kept, {dloss, x, w, targets, y[1], kept_logits(x, w)});
  }
  // Returns the logits in the padded layout in which the forward part of a head keeps them.
  static Tensor kept_logits(const Tensor& x, const Tensor& w) {
    const int64_t rows = x.dims()[0], width = x.dims()[1], words = w.dims()[0],
                  stride = round_up(words, 8);
    Tensor logits(DS_DTYPE_F64, {rows, stride});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < words; ++v) {
        double sum = 0;
        for (int64_t i = 0; i < width; ++i) sum += x.at(r * width + i) * w.at(v * width + i);
        logits.set(r * stride + v, sum);
      }
    }
    return logits;
  }

  void softmax() {
    Tensor x = real({s_.n, s_.out}), dy = real({s_.n, s_.out});
    for (int64_t log : {0, 1}) {
      Attrs attrs;
      if (log != 0) attrs.set("log", log);
      add("softmax", attrs, {x});
      Tensor y = outputs()[0];
      add("softmax_dx", attrs, {dy, y});
    }
    add("causal_softmax", {{"seq", s_.seq}}, {x});
  }

  Sizes s_;
  std::vector<OpCase>& cases_;
  KernelRegistry registry_;
  ThreadTeam team_{1};
  uint64_t seed_ = 100;
};

std::vector<OpCase> build(std::initializer_list<Sizes> all) {
  std::vector<OpCase> cases;
  for (const Sizes& sizes : all) CaseBuilder(sizes, cases).build();
  return cases;
}

}  // namespace

std::vector<OpCase> op_cases() {
  return build({{7, 2, 3, 5, 11, 3}, {1, 1, 1, 1, 2, 1}, {10, 3, 4, 7, 6, 16}, {9, 1, 5, 3, 4, 4}});
}

std::vector<OpCase> large_op_cases() {
  return build({{33, 4, 16, 65, 131, 16}, {50, 3, 17, 48, 63, 20}, {130, 2, 64, 127, 257, 64}});
}

}  // namespace ds::test
