// The built-in families of kernels, fastest first, and DS_KERNELS, which restricts them.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

struct Family {
  std::string_view name;
  void (*add)(KernelRegistry& registry);
};
// The families in dispatch order.
constexpr Family kFamilies[] = {
#if defined(__x86_64__)
    {"gemm", register_gemm},
#endif
    {"onednn", register_onednn},
    {"cpu", register_cpu},
    {"ref", register_ref}};

}  // namespace

KernelRegistry built_in_kernels() {
  const char* variable = std::getenv("DS_KERNELS");
  std::string_view list = variable ? variable : "";
  std::vector<std::string_view> chosen;
  while (!list.empty()) {
    size_t comma = std::min(list.find(','), list.size());
    std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    bool known = std::any_of(std::begin(kFamilies), std::end(kFamilies),
                             [&](const Family& family) { return family.name == word; });
    require(known,
            "DS_KERNELS must list kernel families of this build (gemm, onednn, cpu, ref), got '{}'",
            word);
    chosen.push_back(word);
  }
  KernelRegistry registry;
  for (const Family& family : kFamilies) {
    bool wanted =
        chosen.empty() || std::find(chosen.begin(), chosen.end(), family.name) != chosen.end();
    if (wanted) family.add(registry);
  }
  return registry;
}

}  // namespace ds
