// Compares layer functions, forward and backward, with f64 values recorded from torch
// (activations.json, which gives the tolerances for f32). Runs every kernel that accepts the
// operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/conformance.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::recorded_layers {
namespace {

// Ops with one operand, by the names of the recorded cases.
const std::map<std::string, std::pair<std::string, Attrs>> kElementwise{
    {"gelu", {"gelu", {{"form", "erf"}}}},
    {"gelu_tanh", {"gelu", {{"form", "tanh"}}}},
    {"silu", {"silu", {}}},
    {"relu", {"relu", {}}},
    {"tanh", {"tanh", {}}},
    {"relu_squared", {"relu2", {}}},
    {"sigmoid", {"sigmoid", {}}},
    {"softplus", {"softplus", {}}},
    {"quick_gelu", {"quick_gelu", {}}}};

std::vector<int64_t> dims_of(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& extent : list.array()) out.push_back(extent.integer());
  return out;
}

class RecordedLayers : public testing::Test {
 protected:
  // Returns a recorded input with the extents that the case gives.
  Tensor input(const std::string& name) const { return tensor(name, dims_of(inputs_->at(name))); }
  std::vector<int64_t> output() const { return dims_of(case_->at("output")); }
  Tensor gradient() const { return tensor("dy", output()); }

  // Returns a recorded tensor of the case. Four dimensions [batch, heads, rows, depth] are
  // converted to the layout of attention, [batch * rows, heads * depth].
  Tensor tensor(const std::string& name, std::vector<int64_t> dims,
                DType dtype = DS_DTYPE_F32) const {
    const std::vector<double> values = tensors_.numbers(name_ + "." + name);
    if (dims.size() < 4) {
      Tensor out(dtype, dims);
      for (int64_t e = 0; e < out.numel(); ++e) out.set(e, values.at(static_cast<size_t>(e)));
      return out;
    }
    const int64_t heads = dims[1], rows = dims[2], depth = dims[3];
    Tensor out(dtype, {dims[0] * rows, heads * depth});
    for (int64_t e = 0; e < out.numel(); ++e) {
      int64_t d = e % depth, h = e / depth % heads, r = e / (depth * heads) % rows,
              b = e / (depth * heads * rows);
      out.set(e, values.at(static_cast<size_t>(((b * heads + h) * rows + r) * depth + d)));
    }
    return out;
  }
  Tensor exact(const std::string& name, const std::vector<int64_t>& dims) const {
    return tensor(name + ".f64", dims, DS_DTYPE_F64);
  }

  // Runs every kernel that accepts the operands and compares its first results with `want`. Returns
  // the results of the reference.
  std::vector<Tensor> compare(const std::string& op, const Attrs& attrs,
                              const std::vector<Tensor>& in, const std::vector<Tensor>& out,
                              const std::vector<Tensor>& want) {
    std::vector<DType> from, to;
    for (const Tensor& t : in) from.push_back(t.dtype());
    for (const Tensor& t : out) to.push_back(t.dtype());
    std::vector<Tensor> got;
    for (const KernelImpl& impl : registry_.all()) {
      if (impl.op != op || (impl.refuse && !impl.refuse({op, from, to, attrs}).empty())) continue;
      got = out;
      for (Tensor& t : got) t.poison();
      got = run_case(impl, InstructionCase{op, attrs, in, got}, team_);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_LE(distance(got[i], want[i]), 1)
            << name_ << ": " << op << " of " << impl.name << ", result " << i;
      }
      ++compared_;
    }
    EXPECT_FALSE(got.empty()) << op;
    return got;
  }

  // Returns the largest error relative to its tolerance.
  double distance(const Tensor& got, const Tensor& want) const {
    EXPECT_EQ(got.numel(), want.numel());
    double worst = 0;
    for (int64_t e = 0; e < want.numel(); ++e) {
      const double off = std::abs(got.at(e) - want.at(e)) / tolerance_.of(want.at(e));
      if (std::isnan(off)) return off;
      worst = std::max(worst, off);
    }
    return worst;
  }

  void elementwise(const std::string& op, const Attrs& attrs) {
    const Tensor x = input("x"), dy = gradient();
    const std::vector<int64_t> dims = output();
    compare(op, attrs, {x}, {x}, {exact("y", dims)});
    compare(op + "_dx", attrs, {dy, x}, {x}, {exact("dx", dims)});
  }

  void swiglu() {
    const std::vector<int64_t> dims{1, output().at(0)};
    EXPECT_EQ(dims_of(inputs_->at("g")), output());
    EXPECT_EQ(dims_of(inputs_->at("u")), output());
    const Tensor g = tensor("g", dims), u = tensor("u", dims), dy = tensor("dy", dims);
    const Attrs attrs{{"act", "silu"}};
    compare("glu", attrs, {g, u}, {g}, {exact("y", dims)});
    compare("glu_dx", attrs, {dy, g, u}, {g, u}, {exact("dg", dims), exact("du", dims)});
  }

  void norm(bool layer) {
    const std::vector<int64_t> dims = output(), width{dims.at(1)};
    const Tensor x = input("x"), dy = gradient(), w = input("w");
    const Attrs eps{{"eps", case_->at("eps").number()}};
    if (layer) {
      const Tensor of_rows(DS_DTYPE_F32, {dims[0]});
      const std::vector<Tensor> y =
          compare("layer_norm", eps, {x, w, input("b")}, {x, of_rows, of_rows}, {exact("y", dims)});
      compare("layer_norm_dx", {}, {dy, x, w, y[1], y[2]}, {x}, {exact("dx", dims)});
      compare("layer_norm_dw", {}, {dy, x, y[1], y[2]}, {w, w},
              {exact("dw", width), exact("db", width)});
      return;
    }
    const Tensor of_runs(DS_DTYPE_F32, {dims[0], 1});
    const std::vector<Tensor> y =
        compare("rms_norm", eps, {x, w}, {x, of_runs}, {exact("y", dims)});
    compare("rms_norm_dx", {}, {dy, x, w, y[1]}, {x}, {exact("dx", dims)});
    compare("rms_norm_dw", {{"width", width[0]}}, {dy, x, y[1]}, {w}, {exact("dw", width)});
  }

  // Compares rope. The recorded rows start at position `start`, so `start` other rows precede them
  // in each sequence.
  void rope() {
    const std::vector<int64_t> dims = dims_of(case_->at("shape"));
    EXPECT_EQ(dims, output());
    const int64_t batch = dims.at(0), rows = dims.at(2), start = case_->at("start").integer();
    const std::string& layout = case_->at("layout").string();
    const int64_t neighbours = layout == "pairs (2i, 2i+1), as in GPT-J" ? 1 : 0;
    EXPECT_TRUE(neighbours == 1 || layout == "pairs (i, i+D/2), as in Llama") << layout;
    const auto behind = [&](const Tensor& t) { return shifted(t, batch, rows, start); };
    const Tensor x = behind(input("x")), dy = behind(gradient());
    Attrs attrs{{"heads", dims.at(1)},
                {"seq", start + rows},
                {"theta", case_->at("theta").number()},
                {"interleaved", neighbours}};
    compare("rope", attrs, {x}, {x}, {behind(exact("y", dims))});
    attrs.set("inverse", int64_t{1});
    compare("rope", attrs, {dy}, {x}, {behind(exact("dx", dims))});
  }

  // Inserts `start` rows of 0 before the rows of each sequence; rotating 0 gives 0.
  static Tensor shifted(const Tensor& t, int64_t batch, int64_t rows, int64_t start) {
    const int64_t columns = t.dims()[1], seq = start + rows;
    Tensor out(t.dtype(), {batch * seq, columns});
    for (int64_t e = 0; e < out.numel(); ++e) {
      const int64_t r = e / columns % seq - start, first = e / columns / seq * rows;
      out.set(e, r < 0 ? 0 : t.at((first + r) * columns + e % columns));
    }
    return out;
  }

  void cross_entropy() {
    const Tensor x = input("x");
    const std::vector<int64_t> dims = x.dims(), of_loss = output();
    const Tensor targets = tensor("target", {dims[0]}, DS_DTYPE_I32);
    const Tensor loss(DS_DTYPE_F32, of_loss), stats(DS_DTYPE_F32, {dims[0], 2}),
        dy = tensor("dy", of_loss);
    Attrs attrs;
    // No other target is negative, so only this value can be ignored.
    if (const Json* ignored = case_->find("ignore_index")) {
      EXPECT_EQ(ignored->integer(), -100);
    }
    if (const Json* e = case_->find("label_smoothing")) attrs.set("label_smoothing", e->number());
    if (const Json* z = case_->find("z")) attrs.set("z_loss", z->number());
    if (const Json* reduction = case_->find("reduction"))
      attrs.set("reduction", reduction->string());
    const std::vector<Tensor> y =
        compare("cross_entropy", attrs, {x, targets}, {loss, stats}, {exact("y", of_loss)});
    compare("cross_entropy_dx", attrs, {dy, x, targets, y[1]}, {x}, {exact("dx", dims)});
    head(attrs, x, targets, dy);
  }

  // Compares the same values with the fused head, whose weight is the identity matrix.
  void head(const Attrs& attrs, const Tensor& x, const Tensor& targets, const Tensor& dy) {
    const int64_t rows = x.dims()[0], words = x.dims()[1];
    Tensor unit(DS_DTYPE_F32, {words, words});
    for (int64_t e = 0; e < unit.numel(); ++e) unit.set(e, e % (words + 1) == 0 ? 1 : 0);
    const Tensor stats(DS_DTYPE_F32, {rows, 2}), room(DS_DTYPE_F32, {rows, words}),
        of_rows(DS_DTYPE_F32, {rows});
    std::vector<Tensor> out{dy, stats, room, of_rows};
    if (attrs.has("label_smoothing")) out.push_back(of_rows);
    const std::vector<Tensor> y =
        compare("linear_cross_entropy", attrs, {x, unit, targets}, out, {exact("y", dy.dims())});
    compare("linear_cross_entropy_dx", attrs, {dy, x, unit, targets, y[1]}, {x, unit, room},
            {exact("dx", x.dims())});
  }

  void softmax() {
    const Tensor x = input("x"), dy = gradient();
    const std::vector<int64_t> dims = output();
    const bool causal = name_ == "softmax_causal";
    Attrs attrs, seq{{"seq", dims[0]}};
    if (name_ == "log_softmax") attrs.set("log", int64_t{1});
    const std::vector<Tensor> y = compare(causal ? "causal_softmax" : "softmax",
                                          causal ? seq : attrs, {x}, {x}, {exact("y", dims)});
    compare("softmax_dx", attrs, {dy, y[0]}, {x}, {exact("dx", dims)});
  }

  void attention() {
    const std::vector<int64_t> of_q = dims_of(inputs_->at("q")), of_k = dims_of(inputs_->at("k"));
    EXPECT_EQ(dims_of(inputs_->at("v")), of_k);
    EXPECT_EQ(output(), of_q);
    const bool causal = case_->at("causal").boolean();
    // Query i sees keys 0 to i, so no query sees keys beyond the last query.
    const int64_t batch = of_q[0], queries = of_q[2], all_keys = of_k[2],
                  keys = causal ? std::min(queries, all_keys) : all_keys,
                  seq = std::max(queries, keys);
    const auto seen = [&](const Tensor& t) { return shorter(t, batch, all_keys, keys); };
    const auto as_query = [&](const Tensor& t) { return longer(t, batch, queries, seq, true); };
    const auto as_gradient = [&](const Tensor& t) { return longer(t, batch, queries, seq, false); };
    const auto as_key = [&](const Tensor& t) { return longer(t, batch, keys, seq, false); };
    const Tensor q = as_query(tensor("q", of_q)), k = as_key(seen(tensor("k", of_k))),
                 v = as_key(seen(tensor("v", of_k)));
    const Attrs attrs{{"heads", of_q[1]},
                      {"kv_heads", of_k[1]},
                      {"seq", seq},
                      {"causal", static_cast<int64_t>(causal)}};
    std::vector<Tensor> in{q, k, v};
    if (keys < seq) {
      in.emplace_back(DS_DTYPE_I32, std::vector<int64_t>{batch * seq});
      for (int64_t r = 0; r < batch * seq; ++r) in.back().set(r, r % seq < keys ? 1 : 0);
    }
    const Tensor lse(DS_DTYPE_F32, {of_q[1], batch * seq});
    const std::vector<Tensor> y =
        compare("attention", attrs, in, {q, lse}, {as_query(exact("y", of_q))});
    in.insert(in.begin(), as_gradient(tensor("dy", of_q)));
    in.insert(in.end(), y.begin(), y.end());
    for (const char* name : {"dk", "dv"}) expect_unseen(exact(name, of_k), batch, all_keys, keys);
    compare("attention_dx", attrs, in, {q, k, v},
            {as_gradient(exact("dq", of_q)), as_key(seen(exact("dk", of_k))),
             as_key(seen(exact("dv", of_k)))});
  }

  // Returns the first `kept` rows of each sequence.
  static Tensor shorter(const Tensor& t, int64_t batch, int64_t rows, int64_t kept) {
    const int64_t columns = t.dims()[1];
    Tensor out(t.dtype(), {batch * kept, columns});
    for (int64_t e = 0; e < out.numel(); ++e) {
      const int64_t row = e / columns;
      out.set(e, t.at((row / kept * rows + row % kept) * columns + e % columns));
    }
    return out;
  }
  // Checks that all rows but the first `kept` of each sequence have a gradient of 0.
  static void expect_unseen(const Tensor& t, int64_t batch, int64_t rows, int64_t kept) {
    const int64_t columns = t.dims()[1];
    EXPECT_EQ(t.dims()[0], batch * rows);
    for (int64_t e = 0; e < t.numel(); ++e) {
      if (e / columns % rows >= kept) {
        EXPECT_EQ(t.at(e), 0);
      }
    }
  }

  // Returns a tensor with rows appended to each sequence, because attention needs as many queries
  // as keys. Appended queries repeat the first query, so that their results are known, and their
  // gradients are 0. Appended keys are 0, and the mask hides them.
  static Tensor longer(const Tensor& t, int64_t batch, int64_t rows, int64_t seq, bool repeated) {
    const int64_t columns = t.dims()[1];
    Tensor out(t.dtype(), {batch * seq, columns});
    for (int64_t e = 0; e < out.numel(); ++e) {
      const int64_t column = e % columns, r = e / columns % seq, first = e / columns / seq * rows;
      const bool there = r < rows;
      out.set(e, there || repeated ? t.at((first + (there ? r : 0)) * columns + column) : 0);
    }
    return out;
  }

  void run_all() {
    const Recording all(semantics_path("activations.json"), {"cases"});
    for (const Record& given : all.list("cases")) {
      const Record inputs = given.inside("inputs");
      case_ = &given;
      inputs_ = &inputs;
      given.told({"note"});
      name_ = given.at("name").string();
      SCOPED_TRACE(name_);
      const bool statistics = name_.starts_with("attention") || name_.find("norm") != name_.npos;
      tolerance_ = all.tolerance(statistics ? "attention and norms" : "against f64");
      if (auto row = kElementwise.find(name_); row != kElementwise.end()) {
        elementwise(row->second.first, row->second.second);
      } else if (name_ == "swiglu") {
        swiglu();
      } else if (name_.find("norm") != name_.npos) {
        norm(name_.starts_with("layer"));
      } else if (name_.starts_with("rope")) {
        rope();
      } else if (name_.find("softmax") != name_.npos) {
        softmax();
      } else if (name_.starts_with("ce_")) {
        cross_entropy();
      } else if (name_.starts_with("attention")) {
        attention();
      } else {
        ADD_FAILURE() << "case '" << name_ << "' is not known here";
      }
      ++cases_;
    }
  }

  KernelRegistry registry_ = built_in_kernels();
  ThreadTeam team_{2};
  RecordedTensors tensors_{semantics_path("activations.safetensors")};
  const Record *case_ = nullptr, *inputs_ = nullptr;
  std::string name_;
  Tolerance tolerance_;
  int64_t compared_ = 0, cases_ = 0;
};

TEST_F(RecordedLayers, AgreeWithTorch) {
  run_all();
  EXPECT_GE(cases_, 1);
  // Each case runs forward and backward, by at least two kernels.
  EXPECT_GE(compared_, 4 * cases_);
}

}  // namespace
}  // namespace ds::test::recorded_layers
