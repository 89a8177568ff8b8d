// Compares the counted operations of modules with those recorded from DeepSpeed 0.19.8
// (tests/data/semantics/flops_profile.json).
#include "core/graph/module_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/json.h"
#include "nn/models/hf.h"
#include "nn/models/hf_keys.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

Recording recorded_costs() {
  return {semantics_path("flops_profile.json"), {"models", "modules", "ops"}};
}

// Returns a config.json with the recorded sizes and the keys that the recording lacks.
Json model_config(const Record& recorded) {
  const std::string family = recorded.at("model").string();
  Json config = Json::parse(
      family == "gpt2"
          ? R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})"
          : R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "rope_theta": 10000.0})");
  const HfKeys* keys = hf_keys(family);
  EXPECT_NE(keys, nullptr) << family << " is not known here";
  for (const auto& [name, value] : recorded.at("config").object()) {
    EXPECT_TRUE((keys && (keys->find(name) || !keys->alias_of(name).empty())) || is_plain_key(name))
        << name << " is not known here";
    config.set(name, value);
  }
  return config;
}

// For some of torch's functions, the graph ops that do their work, and the number of calls that
// each node represents.
struct Calls {
  // Functions whose calls are counted together.
  std::set<std::string> functions;
  std::set<std::string> ops;
  int64_t of_a_node;
};
const std::vector<Calls> kCalls{{{"addmm", "linear"}, {"linear", "linear_cross_entropy"}, 1},
                                {{"embedding"}, {"embedding", "position"}, 1},
                                {{"layer_norm"}, {"layer_norm"}, 1},
                                {{"silu"}, {"silu", "glu"}, 1},
                                {{"matmul"}, {"attention"}, 2},
                                {{"softmax"}, {"attention"}, 1}};

void expect_calls(const Json& recorded, const Graph& graph) {
  std::set<std::string> known;
  for (const Calls& calls : kCalls) {
    int64_t want = 0, got = 0;
    for (const auto& [function, call] : recorded.object()) {
      if (!calls.functions.contains(function)) continue;
      want += call.at("calls").integer();
      known.insert(function);
    }
    if (want == 0) continue;
    for (const Node& node : graph.nodes) got += calls.ops.contains(node.op) ? calls.of_a_node : 0;
    EXPECT_EQ(got, want) << *calls.functions.begin();
  }
  EXPECT_EQ(known.size(), recorded.object().size()) << "functions that are not known here";
}

// The ops of the nodes that belong directly to each module, not to a module inside it.
using OpsByPath = std::map<std::string, std::set<std::string>>;

OpsByPath ops_by_path(const Graph& graph) {
  OpsByPath out;
  for (NodeId id : IdRange(
           NodeId(0), graph.backward_begin.exists() ? graph.backward_begin : graph.nodes.past()))
    out[module_of(graph, id)].insert(graph.nodes[id].op);
  return out;
}

// The ops that a module of a recorded class may have in libds, possibly none, and its possible
// names.
struct Class {
  std::set<std::string> ops, names;
};
const std::map<std::string, Class> kClasses{
    {"Linear", {{"linear", "linear_cross_entropy"}, {}}},
    {"Conv1D", {{"linear"}, {}}},
    {"LayerNorm", {{"layer_norm"}, {}}},
    {"LlamaRMSNorm", {{"rms_norm"}, {}}},
    {"Embedding", {{"embedding", "position"}, {}}},
    {"SiLUActivation", {{"silu", "glu"}, {"act", "act_fn"}}},
    {"SiLU", {{"silu", "glu"}, {"act", "act_fn"}}},
    {"ReLU", {{"relu", "glu"}, {"act", "act_fn"}}},
    {"GELUActivation", {{"gelu", "glu"}, {"act", "act_fn"}}},
    {"NewGELUActivation", {{"gelu", "glu"}, {"act", "act_fn"}}},
    {"GPT2LMHeadModel", {{}, {"(model)"}}},
    {"LlamaForCausalLM", {{}, {"(model)"}}},
    {"GPT2Model", {{}, {"transformer"}}},
    {"LlamaModel", {{}, {"model"}}},
    {"ModuleList", {{}, {"h", "layers"}}},
    {"GPT2Block", {{}, {"N"}}},
    {"LlamaDecoderLayer", {{}, {"N"}}},
    {"GPT2Attention", {{}, {"attn"}}},
    {"LlamaAttention", {{}, {"self_attn"}}},
    {"GPT2MLP", {{}, {"mlp"}}},
    {"LlamaMLP", {{}, {"mlp"}}},
    {"LlamaRotaryEmbedding", {{}, {"rotary_emb"}}},
    {"Dropout", {{}, {"drop", "dropout", "attn_dropout", "resid_dropout"}}},
};

// Checks the class and name of a module; `path` is its path in libds.
void expect_class(const Record& module, const OpsByPath& ops, const std::string& path) {
  const std::string& type = module.at("type").string();
  const auto known = kClasses.find(type);
  ASSERT_NE(known, kClasses.end()) << type << " is not known here";
  const std::string& name = module.at("name").string();
  std::string last = name.substr(name.rfind('.') + 1);
  if (!last.empty() && last.find_first_not_of("0123456789") == last.npos) last = "N";
  EXPECT_TRUE(known->second.names.empty() || known->second.names.contains(last)) << type;
  const auto own = ops.find(path);
  if (known->second.ops.empty()) {
    EXPECT_TRUE(own == ops.end() || own->second.count("linear") == 0) << type;
    return;
  }
  ASSERT_NE(own, ops.end()) << type;
  EXPECT_TRUE(std::any_of(own->second.begin(), own->second.end(), [&](const std::string& op) {
    return known->second.ops.contains(op);
  })) << type;
}

std::map<std::string, Module> by_path(const std::vector<Module>& modules) {
  std::map<std::string, Module> out;
  for (const Module& m : modules) out[m.path] = m;
  return out;
}

TEST(ModuleCost, ModelsHaveTheCountsOfDeepSpeed) {
  const Recording all = recorded_costs();
  for (const Record& recorded : all.list("models")) {
    size_t compared = 0;
    EXPECT_EQ(recorded.at("attention").string(), "eager");
    const std::string family = recorded.at("model").string();
    SCOPED_TRACE(family);
    const int64_t batch = recorded.at("input_shape").array()[0].integer(),
                  seq = recorded.at("input_shape").array()[1].integer();
    const Json config = model_config(recorded);
    HfModel model = hf_model(config, batch * seq, seq);
    std::map<std::string, Module> found = by_path(modules_of(model.graph, batch * seq));
    const OpsByPath ops = ops_by_path(model.graph);
    EXPECT_EQ(found[""].cost.flops, recorded.at("flops").number());
    EXPECT_EQ(found[""].cost.macs, recorded.at("macs").number());
    EXPECT_EQ(found[""].params, recorded.at("params").integer());
    double counted = 0;
    for (const auto& [function, call] : recorded.at("calls").object()) {
      const Record one(call, function);
      counted += one.at("flops").number();
      EXPECT_GT(one.at("calls").integer(), 0);
    }
    expect_calls(recorded.at("calls"), model.graph);
    EXPECT_EQ(found[""].cost.flops, counted);
    for (const Record& module : recorded.list("modules")) {
      const std::string name = module.at("name").string();
      SCOPED_TRACE(name);
      // Two names are specific to libds: a head that shares its weight with the embedding is
      // `logits` and has no parameters, and SwiGLU's activation is `act`.
      if (name == "(model)") {
        expect_class(module, ops, "(model)");
        EXPECT_EQ(found[""].cost.flops, module.at("flops").number());
        EXPECT_EQ(found[""].cost.macs, module.at("macs").number());
        EXPECT_EQ(found[""].params, module.at("params").integer());
        continue;
      }
      const bool tied_head = name == "lm_head" && config.at("tie_word_embeddings").boolean();
      std::string path = tied_head ? "logits" : name;
      if (path.ends_with(".act_fn")) path.resize(path.size() - 3);
      expect_class(module, ops, path);
      if (!found.contains(path)) {
        EXPECT_EQ(module.at("flops").number(), 0) << "dropout and activations that count nothing";
        EXPECT_EQ(module.at("macs").number(), 0);
        EXPECT_EQ(module.at("params").integer(), 0);
        continue;
      }
      ++compared;
      EXPECT_EQ(found[path].cost.flops, module.at("flops").number());
      EXPECT_EQ(found[path].cost.macs, module.at("macs").number());
      const Module& owner = tied_head
                                ? found[family == "gpt2" ? "transformer.wte" : "model.embed_tokens"]
                                : found[path];
      EXPECT_EQ(owner.params, module.at("params").integer());
    }
    // Most modules must have been compared: all but the model itself, dropouts and modules with no
    // counted operations.
    EXPECT_GT(2 * compared, recorded.at("modules").array().size());
  }
}

// Modules of torch for which libds has no op, or only an op of another form.
const std::set<std::string> kOtherModules{
    "Conv1d", "Conv2d", "ConvTranspose2d", "BatchNorm2d", "GroupNorm", "MaxPool2d", "AvgPool1d",
    "GRU",    "LSTM",   "Softmax",         "ReLU6",       "LeakyReLU", "ELU",       "Dropout"};

int64_t product(const Json& extents) {
  int64_t all = 1;
  for (const Json& one : extents.array()) all *= one.integer();
  return all;
}

// Returns a graph that does the work of one module with one op; nullopt if libds has no such op.
std::optional<Graph> graph_of_module(const Record& recorded) {
  const std::string name = recorded.at("module").string();
  const Json::Array& args = recorded.at("args").array();
  const Record options = recorded.inside("kwargs");
  const Json& shape = recorded.at("input_shape");
  // The normalized shape is a single extent or a list of the input's last extents.
  int64_t width = shape.array().back().integer();
  if (name == "LayerNorm" || name == "RMSNorm")
    width = args.at(0).is_array() ? product(args[0]) : args[0].integer();
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
  } else if (name == "LayerNorm" || name == "RMSNorm") {
    double eps = 1e-5;
    if (args.size() > 1) eps = args[1].number();
    if (const Json* given = options.find("eps")) eps = given->number();
    const bool layer = name == "LayerNorm", affine = flag("elementwise_affine"),
               bias = layer && flag("bias");
    // libds has no layer_norm with a weight but no bias, and no rms_norm without a weight.
    if (affine ? layer && !bias : !layer) return std::nullopt;
    std::vector<ValueId> in{x};
    if (affine) in.push_back(g.add_param("m.weight", vector, {}));
    if (affine && layer) in.push_back(g.add_param("m.bias", vector, {}));
    g.add(layer ? "layer_norm" : "rms_norm", in, {{"eps", eps}}, "m");
  } else if (name == "Embedding") {
    const int64_t rows = args.at(0).integer(), columns = args.at(1).integer();
    g.bound = product(shape);
    const ValueId ids = g.add_input("ids", {DS_DTYPE_I32, {Dim::n()}});
    g.add("embedding", {g.add_param("m.weight", {DS_DTYPE_F32, {rows, columns}}, {}), ids}, {},
          "m");
  } else if (name == "ReLU" || name == "SiLU" || name == "Tanh" || name == "Sigmoid") {
    std::string op = name;
    std::transform(op.begin(), op.end(), op.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    g.add(op, {x}, {}, "m");
  } else if (name == "GELU") {
    // DeepSpeed counts torch's GELU module. The activation of libds is that of Hugging Face's
    // models, which DeepSpeed does not count.
    const Json* form = options.find("approximate");
    EXPECT_TRUE(!form || form->string() == "none" || form->string() == "tanh") << form->string();
    return std::nullopt;
  } else {
    EXPECT_TRUE(kOtherModules.contains(name)) << name << " is not known here";
    static_cast<void>(options.all());
    return std::nullopt;
  }
  return g;
}

// Compares single modules whose work libds does with one op.
TEST(ModuleCost, LinearNormsAndActivationsHaveTheCountsOfDeepSpeed) {
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
  EXPECT_FALSE(compared.empty());
}

// Returns the extents of operand i of a recorded function.
std::vector<int64_t> extents(const Record& recorded, size_t i) {
  std::vector<int64_t> out;
  for (const Json& extent : recorded.at("shapes").array().at(i).array())
    out.push_back(extent.integer());
  return out;
}

// Returns the cost of `count` products of [rows, in] and [in, out], optionally with the bias of an
// addmm, as a linear op.
ModuleCost product_of(int64_t count, const std::vector<int64_t>& left,
                      const std::vector<int64_t>& right, bool bias) {
  const int64_t rows = left.at(left.size() - 2), in = left.back(), out = right.back();
  EXPECT_EQ(right.at(right.size() - 2), in);
  Graph g;
  g.bound = rows;
  std::vector<ValueId> operands{g.add_input("x", {DS_DTYPE_F32, {Dim::n(), in}}),
                                g.add_param("w", {DS_DTYPE_F32, {in, out}}, {})};
  if (bias) operands.push_back(g.add_param("b", {DS_DTYPE_F32, {out}}, {}));
  g.add("linear", operands, {{"transposed", int64_t{1}}}, "m");
  const ModuleCost one = forward_cost(g, g.nodes[NodeId(0)], rows);
  return {static_cast<double>(count) * one.flops, static_cast<double>(count) * one.macs};
}

// Returns the cost of an attention with queries [B, H, T, D], keys [B, H, S, D] and values [B, H,
// S, E] without its softmax, which the function does not count: half of an attention of depth D
// plus half of one of depth E.
ModuleCost attention_of(const std::vector<int64_t>& q, const std::vector<int64_t>& k,
                        const std::vector<int64_t>& v) {
  EXPECT_EQ(k, (std::vector<int64_t>{q.at(0), q.at(1), k.at(2), q.at(3)}));
  EXPECT_EQ(v, (std::vector<int64_t>{q[0], q[1], k[2], v.at(3)}));
  const int64_t rows = q[0] * q[2];
  ModuleCost sum;
  for (int64_t depth : {q[3], v[3]}) {
    Graph g;
    g.bound = rows * k[2];
    std::vector<ValueId> in;
    for (const char* name : {"q", "k", "v"})
      in.push_back(g.add_input(name, {DS_DTYPE_F32, {Dim::n(), q[1] * depth}}));
    g.add("attention", in, {{"heads", q[1]}, {"seq", k[2]}, {"causal", int64_t{0}}}, "m");
    const ModuleCost one = forward_cost(g, g.nodes[NodeId(0)], rows);
    sum.macs += one.macs / 2;
    sum.flops += (one.flops - static_cast<double>(q[1] * rows * k[2])) / 2;
  }
  return sum;
}

// Returns the number of elements in the result of two operands, one of which may be broadcast.
double elements_of(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  double all = 1;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1,
                  of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    EXPECT_TRUE(of_a == of_b || of_a == 1 || of_b == 1);
    all *= static_cast<double>(std::max(of_a, of_b));
  }
  return all;
}

// Compares single functions of torch. Products and attention are ops of libds. DeepSpeed counts
// elementwise sums and products that are written as functions, but not operators, which Hugging
// Face's models use.
TEST(ModuleCost, FunctionsHaveTheCountsOfDeepSpeed) {
  const Recording all = recorded_costs();
  for (const Record& recorded : all.list("ops")) {
    const std::string& op = recorded.at("op").string();
    SCOPED_TRACE(recorded.dump());
    const Record result = recorded.inside("result");
    const size_t operands = recorded.at("shapes").array().size();
    ModuleCost want;
    if (op == "matmul" || op == "operator@" || op == "bmm" || op.starts_with("einsum:")) {
      const std::vector<int64_t> left = extents(recorded, 0), right = extents(recorded, 1);
      EXPECT_EQ(operands, 2u);
      int64_t count = 1;
      for (size_t i = 0; i + 2 < left.size(); ++i) count *= left[i];
      EXPECT_TRUE(std::equal(left.begin(), left.end() - 2, right.begin(), right.end() - 2));
      want = product_of(count, left, right, false);
      if (op.starts_with("einsum:")) {
        EXPECT_EQ(op, "einsum:bij,bjk->bik") << "is not known here";
        // numpy's einsum_path adds one operation to the number of flops.
        want = {want.flops + 1, 0};
      }
    } else if (op == "addmm") {
      EXPECT_EQ(extents(recorded, 0), std::vector<int64_t>{extents(recorded, 2).back()});
      want = product_of(1, extents(recorded, 1), extents(recorded, 2), true);
    } else if (op == "sdpa") {
      want = attention_of(extents(recorded, 0), extents(recorded, 1), extents(recorded, 2));
    } else if (op == "add" || op == "mul") {
      want.flops = elements_of(extents(recorded, 0), extents(recorded, 1));
    } else {
      static const std::set<std::string> nothing{"operator+", "operator*", "sub",
                                                 "exp",       "tanh",      "rsqrt"};
      EXPECT_TRUE(nothing.contains(op)) << op << " is not known here";
      for (size_t i = 0; i < operands; ++i) EXPECT_FALSE(extents(recorded, i).empty());
    }
    EXPECT_EQ(result.at("flops").number(), want.flops);
    EXPECT_EQ(result.at("macs").number(), want.macs);
  }
}

TEST(ModuleCost, GatesAreCountedLikeTheirActivation) {
  const auto flops = [](const char* act) {
    Graph g;
    g.bound = 4;
    const TensorType type{DS_DTYPE_F32, {Dim::n(), 8}};
    g.add("glu", {g.add_input("g", type), g.add_input("u", type)}, {{"act", act}}, "m");
    return forward_cost(g, g.nodes[NodeId(0)], 4).flops;
  };
  for (const char* counted : {"silu", "relu", "relu2"}) EXPECT_EQ(flops(counted), 32) << counted;
  for (const char* other : {"gelu_tanh", "gelu_erf", "tanh", "sigmoid"})
    EXPECT_EQ(flops(other), 0) << other;
}

// The backward of a sum passes the same gradient to both of its operands.
TEST(ModuleCost, BackwardBelongsToTheModuleOfItsForward) {
  Graph g;
  g.bound = 4;
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), 8}});
  ValueId h =
      g.add("linear", {x, g.add_param("a.fc.weight", {DS_DTYPE_F32, {8, 8}}, {"normal", 0.1})}, {},
            "a.fc");
  ValueId act = g.add("gelu", {h}, {}, "a.act");
  ValueId y =
      g.add("linear", {act, g.add_param("a.proj.weight", {DS_DTYPE_F32, {8, 8}}, {"normal", 0.1})},
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
