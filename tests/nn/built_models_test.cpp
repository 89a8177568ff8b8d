// Compares graphs of published configurations (hf_configs.json) with the models that Transformers
// builds from them, as recorded by tests/interop/published.py in hf_built.json.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "kernels/formulas/rope.h"
#include "nn/models/hf.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::built_models {
namespace {

constexpr int64_t kRows = 32, kSeq = 16;
// Relative tolerance of rope frequencies, which Transformers keeps in f32.
constexpr double kSingle = 3e-7;

class Built {
 public:
  Built(const Json& config, const Record& want)
      : want_(want),
        graph_(hf_model(config, kRows, kSeq).graph),
        trained_(hf_model(config, kRows, kSeq, HfMode::training).graph) {}

  void check() const {
    parameters();
    norms();
    activations();
    attention();
    ropes();
    EXPECT_EQ(dropouts(), numbers(want_.at("dropouts")));
    const Json& row = want_.at("padding");
    EXPECT_EQ(nodes(graph_, "embedding").at(0)->attrs.integer_or("padding", -1),
              row.is_null() ? -1 : row.integer());
    if (const Json* cap = want_.find("softcap")) {
      ASSERT_FALSE(nodes(graph_, "softcap").empty());
      EXPECT_EQ(nodes(graph_, "softcap")[0]->attrs.real("cap"), cap->number());
    }
    if (want_.has("experts")) experts(want_.inside("experts"));
  }

 private:
  static std::vector<double> numbers(const Json& list) {
    std::vector<double> out;
    for (const Json& one : list.array()) out.push_back(one.number());
    return out;
  }
  static std::vector<const Node*> nodes(const Graph& graph, const std::string& op) {
    std::vector<const Node*> out;
    for (const Node& node : graph.nodes) {
      if (node.op == op) out.push_back(&node);
    }
    return out;
  }
  int64_t columns(ValueId value) const {
    const Shape& shape = graph_.type(value).shape;
    return shape[shape.rank() - 1].extent;
  }

  void parameters() const {
    int64_t count = 0;
    bool drawn = false;
    for (const auto& param : graph_.params) {
      int64_t size = 1;
      const Shape& shape = graph_.type(param.value).shape;
      for (size_t d = 0; d < shape.rank(); ++d) size *= shape[d].extent;
      count += size;
      drawn = drawn ||
              (param.init.kind == "normal" && param.init.scale == want_.at("deviation").number());
    }
    EXPECT_EQ(count, want_.at("parameters").integer());
    EXPECT_TRUE(drawn) << "no parameter is drawn with " << want_.at("deviation").number();
  }

  std::vector<const Node*> all_norms() const {
    std::vector<const Node*> all = nodes(graph_, "layer_norm");
    for (const Node* node : nodes(graph_, "rms_norm")) all.push_back(node);
    return all;
  }
  void norms() const {
    const std::vector<double> eps = numbers(want_.at("eps"));
    ASSERT_EQ(eps.size(), 1u);
    EXPECT_EQ(static_cast<int64_t>(all_norms().size()), want_.at("norms").integer());
    for (const Node* node : all_norms()) EXPECT_EQ(node->attrs.real("eps"), eps[0]);
    if (const Json* parallel = want_.find("parallel")) {
      EXPECT_EQ(all_norms().at(0)->in[0] == all_norms().at(1)->in[0], parallel->boolean());
    }
    if (const Json* first = want_.find("norm_first")) {
      const Node* node = all_norms().at(0);
      const bool before = node < nodes(graph_, "attention").at(0);
      EXPECT_EQ(before, first->boolean());
    }
  }

  void activations() const {
    std::vector<std::string> got;
    const auto note = [&](const std::string& name) {
      if (got.empty() || got.back() != name) got.push_back(name);
    };
    for (const Node& node : graph_.nodes) {
      if (node.op == "glu") note(node.attrs.text("act"));
      if (node.op == "gelu") note("gelu_" + std::string(node.attrs.text_or("form", "tanh")));
      if (node.op == "relu") note("relu");
    }
    std::vector<std::string> want;
    for (const Json& one : want_.at("activation").array()) want.push_back(one.string());
    EXPECT_EQ(got, want);
  }

  void attention() const {
    const std::vector<const Node*> all = nodes(graph_, "attention"),
                                   noisy = nodes(trained_, "attention");
    const std::vector<Record> layers = want_.list("attention");
    ASSERT_EQ(all.size(), layers.size());
    ASSERT_EQ(noisy.size(), layers.size());
    for (size_t l = 0; l < layers.size(); ++l) {
      const Record& want = layers[l];
      const Attrs& attrs = all[l]->attrs;
      const int64_t heads = attrs.integer("heads"), width = want.at("width").integer();
      EXPECT_EQ(heads, want.at("heads").integer());
      EXPECT_EQ(attrs.integer_or("kv_heads", heads), want.at("kv_heads").integer());
      EXPECT_EQ(columns(all[l]->out[0]), heads * width);
      const double scale = attrs.real_or("scale", 0);
      EXPECT_DOUBLE_EQ(scale == 0 ? 1 / std::sqrt(static_cast<double>(width)) : scale,
                       want.at("scale").number());
      EXPECT_EQ(attrs.integer_or("window", 0), want.at("window").integer()) << "layer " << l;
      EXPECT_EQ(attrs.real_or("softcap", 0), want.at("softcap").number());
      EXPECT_EQ(noisy[l]->attrs.real_or("dropout", 0), want.at("dropout").number());
      EXPECT_EQ(attrs.integer_or("causal", 1) != 0, want.at("causal").boolean());
    }
  }
  // Returns the probabilities of the dropouts that are not 0, in graph order.
  std::vector<double> dropouts() const {
    std::vector<double> out;
    for (const Node* node : nodes(trained_, "dropout")) out.push_back(node->attrs.real("p"));
    return out;
  }

  void ropes() const {
    const std::vector<const Node*> all = nodes(graph_, "rope");
    ASSERT_EQ(all.empty(), want_.at("rope").is_null());
    if (all.empty()) return;
    const Record want = want_.inside("rope");
    for (const Node* node : all) {
      const Rope rope(node->attrs, columns(node->in[0]));
      EXPECT_EQ(rope.dims, want.at("columns").integer());
      EXPECT_NEAR(rope.magnitude, want.at("magnitude").number(), kSingle);
      EXPECT_EQ(node->attrs.text_or("scaling", "default"), want.at("scaling").string());
      if (const Json* original = want.find("original")) {
        EXPECT_EQ(node->attrs.integer("original"), original->integer());
      }
      turns(rope, want);
      if (!want.has("longer")) continue;
      const Record longer = want.inside("longer");
      turns(Rope(node->attrs, columns(node->in[0]), longer.at("length").integer()), longer);
    }
  }
  static void turns(const Rope& rope, const Record& want) {
    const int64_t pairs = rope.dims / 2;
    double sum = 0;
    for (int64_t i = 0; i < pairs; ++i) sum += rope.frequency(i);
    for (auto [got, name] : {std::pair{rope.frequency(0), "first"},
                             {rope.frequency(pairs - 1), "last"},
                             {sum, "sum"}}) {
      const double number = want.at(name).number();
      EXPECT_NEAR(got, number, kSingle * number) << name;
    }
  }

  void experts(const Record& want) const {
    for (const Node* node : nodes(graph_, "top_gates"))
      EXPECT_EQ(node->attrs.integer("k"), want.at("of_a_token").integer());
    const double balance = want.at("balance").number();
    ASSERT_EQ(nodes(graph_, "load_balance").empty(), balance == 0);
    if (balance != 0) {
      EXPECT_EQ(nodes(graph_, "scale").back()->attrs.real("factor"), balance);
    }
  }

  const Record& want_;
  Graph graph_, trained_;
};

TEST(PublishedConfigs, GraphsEqualTheModelsThatTransformersBuilds) {
  const Recording recorded(data_path("hf_built.json"), {"models"});
  const Json configs = read_json(data_path("hf_configs.json"));
  const Json& models = recorded.document().at("models");
  EXPECT_EQ(models.object().size(), configs.object().size());
  for (const auto& [name, json] : models.object()) {
    SCOPED_TRACE(name);
    const Json* config = configs.find(name);
    ASSERT_NE(config, nullptr) << "hf_configs.json has no " << name;
    const Record want(json, name);
    try {
      Built(*config, want).check();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace ds::test::built_models
