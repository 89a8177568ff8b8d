// The table of the device's kernels, and the helpers that its rows share.
#include "kernels/cuda/host.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {
namespace {

std::vector<KernelRow> own_rows() {
  std::vector<KernelRow> rows;
  for (std::span<const KernelRow> part :
       {elementwise_rows(), activation_rows(), update_rows(), lamb_rows(), step_rows(),
        table_rows(), norm_rows(), loss_rows(), rope_rows(), attention_rows(), quantize_rows(),
        router_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

const std::vector<KernelRow>& all_rows() {
  static const std::vector<KernelRow> rows = own_rows();
  return rows;
}

}  // namespace

std::vector<std::string_view> kernel_operations() {
  std::vector<std::string_view> names;
  for (const KernelRow& row : all_rows()) {
    if (std::find(names.begin(), names.end(), row.op) == names.end()) names.emplace_back(row.op);
  }
  return names;
}

// The rows of an operation are tried in the order of the table.
std::unique_ptr<Kernel> make_kernel(const Query& query, std::string* refusal) {
  std::string reasons;
  for (const KernelRow& row : all_rows()) {
    if (query.op != row.op) continue;
    std::string reason;
    if (row.takes == Takes::own || takes_floats(query, &reason)) {
      if (auto kernel = row.make(query, &reason)) return kernel;
    }
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (refusal) *refusal = reasons.empty() ? "the device has no kernel for it" : reasons;
  return nullptr;
}

namespace {

// A kernel that consists of a function and the size of its scratch memory.
class Made final : public Kernel {
 public:
  Made(Run run, int64_t scratch) : run_(std::move(run)), scratch_(scratch) {}
  int64_t scratch_bytes() const override { return scratch_; }
  void run(Launcher& launcher, const Arguments& arguments) const override {
    run_(launcher, arguments);
  }

 private:
  Run run_;
  int64_t scratch_;
};

}  // namespace

std::unique_ptr<Kernel> made(Run run, int64_t scratch) {
  return std::make_unique<Made>(std::move(run), scratch);
}

bool takes_floats(const Query& query, std::string* refusal) {
  auto among = [&](std::span<const TensorView> views, const char* side) {
    for (size_t i = 0; i < views.size(); ++i) {
      DType t = views[i].dtype;
      if (t == DS_DTYPE_F32 || t == DS_DTYPE_BF16 || t == DS_DTYPE_F16 || t == DS_DTYPE_I32)
        continue;
      *refusal = fmt::format("{} {} is {}, but the device's kernels support f32, bf16 and f16",
                             side, i, dtype_name(t));
      return false;
    }
    return true;
  };
  return among(query.in, "operand") && among(query.out, "result");
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace ds::cuda
