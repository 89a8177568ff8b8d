#include "kernels/cuda/activation.h"

#include <fmt/core.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

struct Named {
  std::string_view name;
  Act act;
};
constexpr Named kActs[] = {{"silu", Act::silu},         {"gelu_tanh", Act::gelu_tanh},
                           {"gelu_erf", Act::gelu_erf}, {"gelu_10", Act::gelu_10},
                           {"relu", Act::relu},         {"tanh", Act::tanh},
                           {"relu2", Act::relu2},       {"laplace", Act::laplace},
                           {"sigmoid", Act::sigmoid},   {"quick_gelu", Act::quick_gelu},
                           {"softplus", Act::softplus}};

// The activation of an operation of its own (gelu: of its form) or of glu's attribute.
bool find_act(const Query& query, Act* act, std::string* refusal) {
  std::string name(query.op.substr(0, query.op.find("_dx")));
  if (name == "glu") name = query.attrs.text("act");
  if (name == "gelu") name = "gelu_" + std::string(query.attrs.text_or("form", "tanh"));
  for (const Named& row : kActs) {
    if (row.name != name) continue;
    *act = row.act;
    return true;
  }
  *refusal = fmt::format("the device has no activation '{}'", name);
  return false;
}

Made make_act(const Query& query, std::string* refusal, const char* entry) {
  Act act;
  if (!takes_floats(query, refusal) || !find_act(query, &act, refusal)) return nullptr;
  return made([=](Launcher& launcher, const Arguments& c) {
    ElementArgs a = element_args(c);
    a.flag = static_cast<int32_t>(act);
    start_elements(launcher, entry, a);
  });
}
Made make_value(const Query& query, std::string* refusal) {
  return make_act(query, refusal, "activate");
}
Made make_slope(const Query& query, std::string* refusal) {
  return make_act(query, refusal, "activate_dx");
}

// Gate and up of `views`, two tensors or the halves of one.
void split(std::span<const TensorView> views, int64_t width, Operand* gate, Operand* up) {
  *gate = operand(views[0]);
  *up = views.size() > 1 ? operand(views[1]) : *gate;
  if (views.size() == 1) up->data = views[0].as<std::byte>() + width * size_of(views[0].dtype);
}

Made make_glu(const Query& query, std::string* refusal) {
  Act act;
  if (!takes_floats(query, refusal) || !find_act(query, &act, refusal)) return nullptr;
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
    for (const Operand& o : a.in) a.wide = a.wide && aligned(o.data);
    for (const Operand& o : a.out) a.wide = a.wide && aligned(o.data);
    start_elements(launcher, backward ? "glu_dx" : "glu", a);
  });
}

void set_cap(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.a = static_cast<float>(attrs.real("cap"));
}
Made make_softcap(const Query& query, std::string* refusal) {
  return make_elements(query, refusal, "softcap", set_cap);
}
Made make_softcap_dx(const Query& query, std::string* refusal) {
  return make_elements(query, refusal, "softcap_dx", set_cap);
}
Made make_mse_dx(const Query& query, std::string* refusal) {
  return make_elements(
      query, refusal, "mse_dx", [](ElementArgs& a, const Attrs&, const Arguments& c) {
        a.count = c.in[1].numel();
        a.wide = aligned(c.in[1].data) && aligned(c.in[2].data) && aligned(c.out[0].data);
      });
}

constexpr KernelRow kRows[] = {
    {"gelu", make_value},       {"gelu_dx", make_slope},
    {"silu", make_value},       {"silu_dx", make_slope},
    {"tanh", make_value},       {"tanh_dx", make_slope},
    {"relu2", make_value},      {"relu2_dx", make_slope},
    {"sigmoid", make_value},    {"sigmoid_dx", make_slope},
    {"softplus", make_value},   {"softplus_dx", make_slope},
    {"quick_gelu", make_value}, {"quick_gelu_dx", make_slope},
    {"laplace", make_value},    {"laplace_dx", make_slope},
    {"glu", make_glu},          {"glu_dx", make_glu},
    {"softcap", make_softcap},  {"softcap_dx", make_softcap_dx},
    {"mse_dx", make_mse_dx},
};

}  // namespace

std::span<const KernelRow> activation_rows() { return kRows; }

}  // namespace ds::cuda
