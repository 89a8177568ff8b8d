#include "support/graphs.h"

namespace ds::test {

Graph two_layer_mlp() {
  Graph g;
  g.name = "mlp";
  g.bound = 64;
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), 6}});
  ValueId target = g.add_input("target", {DS_DTYPE_F32, {Dim::n(), 3}});
  ValueId w1 = g.add_param("fc1.weight", {DS_DTYPE_F32, {5, 6}}, {"normal", 0.5});
  ValueId b1 = g.add_param("fc1.bias", {DS_DTYPE_F32, {5}}, {"zeros", 0});
  ValueId h = g.add("gelu", {g.add("linear", {x, w1, b1}, {}, "fc1")}, {}, "act");
  ValueId gain = g.add_param("ln.weight", {DS_DTYPE_F32, {5}}, {"ones", 0});
  ValueId shift = g.add_param("ln.bias", {DS_DTYPE_F32, {5}}, {"zeros", 0});
  h = g.add("layer_norm", {h, gain, shift}, {{"eps", 1e-5}}, "ln");
  ValueId w2 = g.add_param("fc2.weight", {DS_DTYPE_F32, {3, 5}}, {"normal", 0.5});
  ValueId y = g.add("linear", {h, w2}, {}, "fc2");
  g.add_output("loss", g.add("mse", {y, target}, {}, "loss"));
  return g;
}

}  // namespace ds::test
