#include "support/random_model.h"

#include "support/dice.h"

namespace ds::test {
namespace {

class Modeller {
 public:
  explicit Modeller(uint64_t seed) : dice_(seed, 2) {
    g_.name = "random-" + std::to_string(seed);
    g_.bound = 1 + dice_.below(14);
  }

  Graph build() {
    bool tokens = dice_.one_in(2);
    ValueId wte;
    if (tokens) {
      wte = param("wte", {vocab_ = 2 + dice_.below(40), width_ = 1 + dice_.below(40)});
      x_ = g_.add("embedding", {wte, g_.add_input("x", {DS_DTYPE_I32, {Dim::n()}})});
    } else {
      x_ = g_.add_input("x", {DS_DTYPE_F32, {Dim::n(), width_ = 1 + dice_.below(40)}});
    }
    ValueId target = tokens ? g_.add_input("target", {DS_DTYPE_I32, {Dim::n()}}) : ValueId();
    for (int64_t blocks = 1 + dice_.below(7); blocks > 0; --blocks) block();
    if (tokens) {
      if (g_.type(wte).shape[1].extent == width_ && !dice_.one_in(4)) {
        x_ = g_.add("linear", {x_, wte});
      } else {
        x_ = linear(x_, vocab_, "head");
      }
      g_.add_output("loss", g_.add("cross_entropy", {x_, target}, {}, "loss"));
    } else {
      x_ = linear(x_, 1 + dice_.below(20), "head");
      target = g_.add_input("target", g_.type(x_));
      g_.add_output("loss", g_.add("mse", {x_, target}, {}, "loss"));
    }
    g_.add_output("prediction", x_);
    return std::move(g_);
  }

 private:
  ValueId param(const std::string& name, Shape shape, Init init = {"normal", 0.2}) {
    return g_.add_param(name, {DS_DTYPE_F32, std::move(shape)}, std::move(init));
  }
  std::string scope() const { return "h." + std::to_string(serial_) + "."; }
  int64_t width_of(ValueId x) const { return g_.type(x).shape[1].extent; }

  ValueId linear(ValueId x, int64_t out, const std::string& name) {
    ValueId w = param(name + ".weight", {out, width_of(x)});
    if (dice_.one_in(3)) return g_.add("linear", {x, w});
    return g_.add("linear", {x, w, param(name + ".bias", {out}, {"normal", 0.1})});
  }

  ValueId norm(ValueId x) {
    ValueId w = param(scope() + "ln.weight", {width_of(x)}, {"ones", 0});
    return g_.add("layer_norm", {x, w, param(scope() + "ln.bias", {width_of(x)})}, {{"eps", 1e-5}});
  }

  ValueId drop(ValueId x) {
    return g_.add("dropout", {x},
                  {{"p", 0.1 + 0.1 * static_cast<double>(dice_.below(4))}, {"op", drops_++}});
  }

  ValueId attention(ValueId x) {
    int64_t heads = 1 + dice_.below(3), width = heads * (1 + dice_.below(8));
    ValueId qkv = linear(x, 3 * width, scope() + "qkv");
    ValueId y = g_.add("attention", {qkv}, {{"heads", heads}, {"seq", 1 + dice_.below(g_.bound)}});
    return linear(y, width_of(x), scope() + "proj");
  }

  // Adds a branch that changes the width of x, applies an activation and restores the width.
  ValueId branch(ValueId x) {
    ValueId y = linear(x, dice_.pick<int64_t>({1, 7, 16, 33, 100}), scope() + "up");
    y = g_.add(dice_.one_in(2) ? "gelu" : "relu", {y});
    return linear(y, width_of(x), scope() + "down");
  }

  // Multiplies x by a square matrix, which all such blocks of x's width share.
  ValueId shared(ValueId x) {
    std::string name = "shared." + std::to_string(width_of(x));
    ParamId known = g_.find_param(name);
    ValueId w = known.exists() ? g_.params[known].value : param(name, {width_of(x), width_of(x)});
    return g_.add("linear", {x, w});
  }

  void block() {
    ++serial_;
    switch (dice_.below(9)) {
      case 0:
        x_ = linear(x_, width_ = 1 + dice_.below(48), scope() + "fc");
        break;
      case 1:
        x_ = norm(x_);
        break;
      case 2:
        x_ = g_.add(dice_.one_in(2) ? "gelu" : "relu", {x_});
        break;
      case 3:
        x_ = drop(x_);
        break;
      case 4:
        x_ = g_.add("add", {x_, branch(norm(x_))});
        break;
      case 5:
        x_ = g_.add("add", {x_, drop(branch(x_))});
        break;
      case 6:
        x_ = g_.add("add", {x_, attention(x_)});
        break;
      case 7:
        x_ = shared(shared(x_));
        break;
      default:
        // Nothing uses the result of this branch.
        branch(x_);
    }
  }

  Dice dice_;
  Graph g_;
  ValueId x_;
  int64_t width_ = 0, vocab_ = 0, serial_ = 0, drops_ = 0;
};

}  // namespace

Graph random_model(uint64_t seed) { return Modeller(seed).build(); }

}  // namespace ds::test
