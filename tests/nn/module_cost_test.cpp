// Operations by module as DeepSpeed 0.19.8 counted them (tests/data/semantics/flops_profile.json).
#include "core/graph/module_cost.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

// Functions of torch by themselves, `ops`, are no modules.
Recording recorded_costs() { return {semantics_path("flops_profile.json"), {"models", "modules", "ops"}}; }

// What a config.json says beside the sizes that were recorded.
Json model_config(const Record& recorded) {
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
  const Recording all = recorded_costs();
  for (const Record& recorded : all.list("models")) {
    EXPECT_EQ(recorded.at("attention").string(), "eager");
    const std::string family = recorded.at("model").string();
    SCOPED_TRACE(family);
    const int64_t batch = recorded.at("input_shape").array()[0].integer(),
                  seq = recorded.at("input_shape").array()[1].integer();
    HfModel model = hf_model(model_config(recorded), batch * seq, seq);
    std::map<std::string, Module> found = by_path(modules_of(model.graph, batch * seq));
    EXPECT_EQ(found[""].cost.flops, recorded.at("flops").number());
    EXPECT_EQ(found[""].cost.macs, recorded.at("macs").number());
    EXPECT_EQ(found[""].params, recorded.at("params").integer());
    double counted = 0;
    for (const auto& [function, call] : recorded.at("calls").object()) {
      const Record one(call, function);
      counted += one.at("flops").number();
      EXPECT_GT(one.at("calls").integer(), 0);
    }
    EXPECT_EQ(found[""].cost.flops, counted);
    for (const Record& module : recorded.list("modules")) {
      const std::string name = module.at("name").string();
      SCOPED_TRACE(name);
      module.told({"type"});
      // Two names are libds's own: a head whose weight is an embedding is `logits`, without parameters of its
      // own, and SwiGLU's activation is `act`.
      if (name == "(model)") {
        EXPECT_EQ(found[""].cost.flops, module.at("flops").number());
        EXPECT_EQ(found[""].cost.macs, module.at("macs").number());
        EXPECT_EQ(found[""].params, module.at("params").integer());
        continue;
      }
      const bool tied_head = family == "gpt2" && name == "lm_head";
      std::string path = tied_head ? "logits" : name;
      if (path.ends_with(".act_fn")) path.resize(path.size() - 3);
      if (!found.contains(path)) {
        EXPECT_EQ(module.at("flops").number(), 0) << "dropout and activations that count nothing";
        EXPECT_EQ(module.at("macs").number(), 0);
        EXPECT_EQ(module.at("params").integer(), 0);
        continue;
      }
      ++compared;
      EXPECT_EQ(found[path].cost.flops, module.at("flops").number());
      EXPECT_EQ(found[path].cost.macs, module.at("macs").number());
      const Module& owner = tied_head ? found["transformer.wte"] : found[path];
      EXPECT_EQ(owner.params, module.at("params").integer());
    }
  }
  EXPECT_GT(compared, 50u);
}

// Modules of torch that libds has no operation for, or only in another form.
const std::set<std::string> kOtherModules{
    "Conv1d",  "Conv2d",    "ConvTranspose2d", "BatchNorm2d", "GroupNorm", "Embedding",
    "Dropout", "MaxPool2d", "AvgPool1d",       "GRU",         "LSTM",      "Softmax"};

int64_t product(const Json& extents) {
  int64_t all = 1;
  for (const Json& one : extents.array()) all *= one.integer();
  return all;
}

// One module as an operation of a graph; none where libds has no such.
std::optional<Graph> graph_of_module(const Record& recorded) {
  const std::string name = recorded.at("module").string();
  const Json::Array& args = recorded.at("args").array();
  const Record options = recorded.inside("kwargs");
  const Json& shape = recorded.at("input_shape");
  // The normalized shape may be one extent or a list, the last ones of the input.
  int64_t width = shape.array().back().integer();
  if (name == "LayerNorm") width = args.at(0).is_array() ? product(args[0]) : args[0].integer();
  const auto flag = [&](const char* key) {
    const Json* given = options.find(key);
    return !given || given->boolean();
  };
  Graph g;
  g.bound = product(shape) / width;
  TensorType vector{DS_DTYPE_F32, {width}};
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), width}});
  if (name == "Linear") {
    EXPECT_EQ(args.at(0).integer(), width);
    const int64_t out = args.at(1).integer();
    std::vector<ValueId> in{x, g.add_param("m.weight", {DS_DTYPE_F32, {out, width}}, {})};
    if (flag("bias")) in.push_back(g.add_param("m.bias", {DS_DTYPE_F32, {out}}, {}));
    g.add("linear", in, {}, "m");
  } else if (name == "LayerNorm") {
    double eps = 1e-5;
    if (args.size() > 1) eps = args[1].number();
    if (const Json* given = options.find("eps")) eps = given->number();
    const bool bias = flag("bias");
    if (!flag("elementwise_affine") || !bias) return std::nullopt;
    g.add("layer_norm", {x, g.add_param("m.weight", vector, {}), g.add_param("m.bias", vector, {})},
          {{"eps", eps}}, "m");
  } else if (name == "ReLU" || name == "SiLU") {
    g.add(name == "ReLU" ? "relu" : "silu", {x}, {}, "m");
  } else if (name == "GELU") {
    const Json* form = options.find("approximate");
    g.add("gelu", {x}, {{"form", std::string(form ? form->string() : "erf")}}, "m");
  } else {
    EXPECT_TRUE(kOtherModules.contains(name)) << name << " is not known here";
    static_cast<void>(options.all());
    return std::nullopt;
  }
  return g;
}

// Single modules that one operation of libds is.
TEST(ModuleCost, LinearNormsAndActivationsCountWhatDeepSpeedCounted) {
  std::set<std::string> compared;
  const Recording all = recorded_costs();
  for (const Record& recorded : all.list("modules")) {
    SCOPED_TRACE(recorded.dump());
    const Record result = recorded.inside("result");
    const std::optional<Graph> g = graph_of_module(recorded);
    if (!g) {
      for (const char* name : {"flops", "macs", "params"}) EXPECT_GE(result.at(name).integer(), 0);
      continue;
    }
    compared.insert(recorded.at("module").string());
    Module module = by_path(modules_of(*g, g->bound))["m"];
    EXPECT_EQ(module.cost.flops, result.at("flops").number());
    EXPECT_EQ(module.cost.macs, result.at("macs").number());
    EXPECT_EQ(module.params, result.at("params").integer());
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
