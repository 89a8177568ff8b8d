// The host side of activations, glu, the soft cap and the gradient of mse. All activations share
// two entries, `activate` and `activate_dx`, which find the activation in ElementArgs::flag.
#include "kernels/cuda/activation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/formulas/activation_names.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// Sets *act to the activation of an operation, which is its name (for gelu, with its form) or, for
// glu, its attribute `act`. Returns false with a reason if the device does not have it.
bool find_act(const Query& query, Act* act, std::string* refusal) {
  std::string name(query.op.substr(0, query.op.find("_dx")));
  if (name == "glu") name = query.attrs.text("act");
  if (name == "gelu") name = "gelu_" + std::string(query.attrs.text_or("form", "tanh"));
  const auto* const found = std::find(std::begin(kActivations), std::end(kActivations), name);
  *act = static_cast<Act>(found - std::begin(kActivations));
  if (found == std::end(kActivations))
    *refusal = fmt::format("the device has no activation '{}'", name);
  return found != std::end(kActivations);
}

Made make_act(const Query& query, std::string* refusal) {
  Act act;
  if (!find_act(query, &act, refusal)) return nullptr;
  const char* const entry = query.op.ends_with("_dx") ? "activate_dx" : "activate";
  return made([=](Launcher& launcher, const Arguments& c) {
    ElementArgs a = element_args(c);
    a.flag = static_cast<int32_t>(act);
    start_elements(launcher, entry, a);
  });
}

// Sets *gate and *up to the two tensors of `views`, or to the left and right halves of its only
// tensor.
void split(std::span<const TensorView> views, int64_t width, Operand* gate, Operand* up) {
  *gate = operand(views[0]);
  *up = views.size() > 1 ? operand(views[1]) : *gate;
  if (views.size() == 1) up->data = views[0].as<std::byte>() + width * size_of(views[0].dtype);
}

Made make_glu(const Query& query, std::string* refusal) {
  Act act;
  if (!find_act(query, &act, refusal)) return nullptr;
  const bool backward = query.op == "glu_dx";
  return made([=](Launcher& launcher, const Arguments& c) {
    ElementArgs a = element_args(c);
    std::span<const TensorView> x = c.in.subspan(backward ? 1 : 0);
    a.width = backward ? c.in[0].dims[1] : c.out[0].dims[1];
    a.stride = x[0].dims[1];
    a.count = x[0].dims[0] * a.width;
    a.flag = static_cast<int32_t>(act);
    split(x, a.width, &a.in[backward ? 1 : 0], &a.in[backward ? 2 : 1]);
    if (backward) split(c.out, a.width, &a.out[0], &a.out[1]);
    // The second half of a packed row may have a smaller alignment than the row.
    for (const Operand& o : a.in) a.wide = a.wide && aligned(o.data);
    for (const Operand& o : a.out) a.wide = a.wide && aligned(o.data);
    start_elements(launcher, backward ? "glu_dx" : "glu", a);
  });
}

void set_cap(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.a = static_cast<float>(attrs.real("cap"));
}
// The first operand, dloss, is one number, so count and alignment are taken from the other
// operands.
void set_mse_dx(ElementArgs& a, const Attrs&, const Arguments& c) {
  a.count = c.in[1].numel();
  a.wide = aligned(c.in[1].data) && aligned(c.in[2].data) && aligned(c.out[0].data);
}

constexpr KernelRow kRows[] = {
    {"gelu", make_act},
    {"gelu_dx", make_act},
    {"silu", make_act},
    {"silu_dx", make_act},
    {"tanh", make_act},
    {"tanh_dx", make_act},
    {"relu2", make_act},
    {"relu2_dx", make_act},
    {"sigmoid", make_act},
    {"sigmoid_dx", make_act},
    {"softplus", make_act},
    {"softplus_dx", make_act},
    {"quick_gelu", make_act},
    {"quick_gelu_dx", make_act},
    {"laplace", make_act},
    {"laplace_dx", make_act},
    {"glu", make_glu},
    {"glu_dx", make_glu},
    {"softcap", make_elements<set_cap>},
    {"softcap_dx", make_elements<set_cap>},
    {"mse_dx", make_elements<set_mse_dx>},
};

}  // namespace

std::span<const KernelRow> activation_rows() { return kRows; }

}  // namespace ds::cuda
