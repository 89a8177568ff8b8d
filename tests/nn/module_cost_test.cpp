// Operations by module as DeepSpeed 0.19.8 counted them (tests/data/semantics/flops_profile.json).
#include "core/graph/module_cost.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

// What a config.json says beside the sizes that were recorded.
Json model_config(const Json& recorded) {
  const std::string family = recorded.at("model").string();
  Json config = Json::parse(
      family == "gpt2"
          ? R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})"
          : R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "rope_theta": 10000.0})");
  for (const auto& [name, value] : recorded.at("config").object()) config.set(name, value);
  return config;
}

std::map<std::string, Module> by_path(const std::vector<Module>& modules) {
  std::map<std::string, Module> out;
  for (const Module& m : modules) out[m.path] = m;
  return out;
}

TEST(ModuleCost, ModelsCountWhatDeepSpeedCounted) {
  size_t compared = 0;
  const Json file = read_semantics("flops_profile.json");
  for (const Json& recorded : file.at("models").array()) {
    const std::string family = recorded.at("model").string();
    SCOPED_TRACE(family);
    const int64_t batch = recorded.at("input_shape").array()[0].integer(),
                  seq = recorded.at("input_shape").array()[1].integer();
    HfModel model = hf_model(model_config(recorded), batch * seq, seq);
    std::map<std::string, Module> found = by_path(modules_of(model.graph, batch * seq));
    EXPECT_EQ(found[""].cost.flops, recorded.at("flops").number());
    EXPECT_EQ(found[""].cost.macs, recorded.at("macs").number());
    EXPECT_EQ(found[""].params, recorded.at("params").integer());
    for (const Json& module : recorded.at("modules").array()) {
      const std::string name = module.at("name").string();
      SCOPED_TRACE(name);
      // Two names are libds's own: a head whose weight is an embedding is `logits`, without parameters of its
      // own, and SwiGLU's activation is `act`.
      if (name == "(model)") continue;
      const bool tied_head = family == "gpt2" && name == "lm_head";
      std::string path = tied_head ? "logits" : name;
      if (path.ends_with(".act_fn")) path.resize(path.size() - 3);
      if (!found.contains(path)) {
        EXPECT_EQ(module.at("flops").number(), 0) << "dropout and activations that count nothing";
        EXPECT_EQ(module.at("params").integer(), 0);
        continue;
      }
      ++compared;
      EXPECT_EQ(found[path].cost.flops, module.at("flops").number());
      EXPECT_EQ(found[path].cost.macs, module.at("macs").number());
      if (!tied_head) {
        EXPECT_EQ(found[path].params, module.at("params").integer());
      }
    }
  }
  EXPECT_GT(compared, 50u);
}

// Single modules that one operation of libds is.
TEST(ModuleCost, LinearNormsAndActivationsCountWhatDeepSpeedCounted) {
  std::set<std::string> compared;
  const Json file = read_semantics("flops_profile.json");
  for (const Json& recorded : file.at("modules").array()) {
    const std::string name = recorded.at("module").string();
    const Json::Array& shape = recorded.at("input_shape").array();
    int64_t width = shape.back().integer(), rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i].integer();
    const Json* biased = recorded.at("kwargs").find("bias");
    const bool affine = !recorded.at("kwargs").find("elementwise_affine");
    Graph g;
    g.bound = rows;
    TensorType vector{DS_DTYPE_F32, {width}};
    ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), width}});
    if (name == "Linear") {
      const int64_t out = recorded.at("args").array()[1].integer();
      std::vector<ValueId> in{x, g.add_param("m.weight", {DS_DTYPE_F32, {out, width}}, {})};
      if (!biased) in.push_back(g.add_param("m.bias", {DS_DTYPE_F32, {out}}, {}));
      g.add("linear", in, {}, "m");
    } else if (name == "LayerNorm" && affine) {
      g.add("layer_norm", {x, g.add_param("m.weight", vector, {}), g.add_param("m.bias", vector, {})},
            {{"eps", 1e-5}}, "m");
    } else if (name == "ReLU" || name == "SiLU") {
      g.add(name == "ReLU" ? "relu" : "silu", {x}, {}, "m");
    } else if (name == "GELU") {
      g.add("gelu", {x}, {{"form", std::string("erf")}}, "m");
    } else {
      continue;
    }
    SCOPED_TRACE(recorded.dump());
    compared.insert(name);
    Module module = by_path(modules_of(g, rows))["m"];
    EXPECT_EQ(module.cost.flops, recorded.at("result").at("flops").number());
    EXPECT_EQ(module.cost.macs, recorded.at("result").at("macs").number());
    EXPECT_EQ(module.params, recorded.at("result").at("params").integer());
  }
  EXPECT_TRUE(compared.contains("Linear") && compared.contains("LayerNorm"));
}

// A sum of two values hands one gradient to both.
TEST(ModuleCost, BackwardBelongsToTheModuleOfItsForward) {
  Graph g;
  g.bound = 4;
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), 8}});
  ValueId h =
      g.add("linear", {x, g.add_param("a.fc.weight", {DS_DTYPE_F32, {8, 8}}, {"normal", 0.1})}, {}, "a.fc");
  ValueId act = g.add("gelu", {h}, {}, "a.act");
  ValueId y = g.add("linear", {act, g.add_param("a.proj.weight", {DS_DTYPE_F32, {8, 8}}, {"normal", 0.1})},
                    {}, "a.proj");
  y = g.add("add", {y, h}, {}, "a.residual");
  ValueId loss = g.add("mse", {y, g.add_input("t", {DS_DTYPE_F32, {Dim::n(), 8}})}, {}, "loss");
  g.add_output("loss", loss);
  differentiate(g, loss);
  std::map<std::string, std::string> modules;
  for (NodeId id : IdRange(g.backward_begin, g.nodes.past()))
    modules[g.values[g.nodes[id].out[0]].name] = module_of(g, id);
  EXPECT_EQ(modules["d.a.proj.weight"], "a.proj");
  EXPECT_EQ(modules["d.a.act"], "a.proj");
  EXPECT_EQ(modules["d.a.fc"], "a.act");
  EXPECT_EQ(modules["d.a.fc.weight"], "a.fc");
  EXPECT_EQ(modules["d.a.residual"], "loss");
}

}  // namespace
}  // namespace ds::test
