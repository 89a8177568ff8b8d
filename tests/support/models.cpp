#include "support/models.h"

#include <cstdlib>

namespace ds::test {

Graph make_mlp(int layers, int64_t width, int64_t bound) {
  Graph g;
  g.name = "mlp";
  g.bound = bound;
  TensorType rows{DS_DTYPE_F32, Shape{Dim::n(), width}};
  ValueId x = g.add_input("x", rows);
  ValueId target = g.add_input("target", rows);
  for (int l = 0; l < layers; ++l) {
    std::string scope = "h." + std::to_string(l) + ".";
    ValueId w = g.add_param(scope + "weight", {DS_DTYPE_F32, Shape{width, width}}, {"normal", 0.2});
    ValueId b = g.add_param(scope + "bias", {DS_DTYPE_F32, Shape{width}}, {});
    x = g.add("linear", {x, w, b}, {}, scope + "fc");
    if (l + 1 < layers) x = g.add("gelu", {x}, {}, scope + "act");
  }
  g.add_output("loss", g.add("mse", {x, target}, {}, "loss"));
  g.add_output("prediction", x);
  return g;
}

Graph make_tiny_gpt(int layers, int64_t width, int64_t heads, int64_t vocab, int64_t seq,
                    int64_t bound, double dropout, bool tied) {
  Graph g;
  g.name = "tiny_gpt";
  g.bound = bound;
  ValueId tokens = g.add_input("tokens", {DS_DTYPE_I32, Shape{Dim::n()}});
  ValueId targets = g.add_input("targets", {DS_DTYPE_I32, Shape{Dim::n()}});
  int64_t drops = 0;
  auto param = [&](const std::string& name, Shape shape, Init init) {
    return g.add_param(name, {DS_DTYPE_F32, std::move(shape)}, std::move(init));
  };
  auto drop = [&](ValueId x) {
    return dropout == 0 ? x : g.add("dropout", {x}, {{"p", dropout}, {"op", drops++}});
  };
  auto norm = [&](ValueId x, const std::string& name) {
    ValueId w = param(name + ".weight", Shape{width}, {"ones", 0}),
            b = param(name + ".bias", Shape{width}, {});
    return g.add("layer_norm", {x, w, b}, {{"eps", 1e-5}});
  };
  auto linear = [&](ValueId x, const std::string& name, int64_t out, int64_t in) {
    ValueId w = param(name + ".weight", Shape{out, in}, {"normal", 0.1}),
            b = param(name + ".bias", Shape{out}, {});
    return g.add("linear", {x, w, b});
  };
  ValueId wte = param("wte.weight", Shape{vocab, width}, {"normal", 0.1});
  ValueId wpe = param("wpe.weight", Shape{seq, width}, {"normal", 0.1});
  ValueId x = drop(g.add("position", {g.add("embedding", {wte, tokens}), wpe}, {{"seq", seq}}));
  for (int l = 0; l < layers; ++l) {
    std::string h = "h." + std::to_string(l) + ".";
    ValueId qkv = linear(norm(x, h + "ln_1"), h + "attn.qkv", 3 * width, width);
    ValueId y = g.add("attention", {qkv}, {{"heads", heads}, {"seq", seq}});
    x = g.add("add", {x, drop(linear(y, h + "attn.proj", width, width))});
    ValueId up = g.add("gelu", {linear(norm(x, h + "ln_2"), h + "mlp.fc", 4 * width, width)});
    x = g.add("add", {x, drop(linear(up, h + "mlp.proj", width, 4 * width))});
  }
  x = norm(x, "ln_f");
  ValueId head = tied ? wte : param("head.weight", Shape{vocab, width}, {"normal", 0.1});
  ValueId logits = g.add("linear", {x, head});
  g.add_output("loss", g.add("cross_entropy", {logits, targets}, {}, "loss"));
  g.add_output("logits", logits);
  return g;
}

Config make_config(int stage, int64_t accumulation, int world) {
  Config c;
  c.micro_batch = 1;
  c.accumulation = accumulation;
  c.train_batch = accumulation * world;
  c.zero.stage = stage;
  c.optimizer.lr = 1e-2;
  c.optimizer.weight_decay = 0.1;
  c.seed = 7;
  if (const char* device = std::getenv("DS_TEST_DEVICE")) c.device = device;
  return c;
}

}  // namespace ds::test
