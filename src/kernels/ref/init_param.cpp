#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/base/round.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The number of elements in one task. Because init_param has no faster kernel, the reference uses
// the thread team: one thread would draw the values of a large model for minutes.
constexpr int64_t kBlock = 16384;

// Maps the index of an element in a rank's slice to its index in the whole parameter. Attribute
// `runs` lists the parts of every `stride` elements that the slice holds, as pairs (first, count).
// With stride 0, both indices are equal.
class Places {
 public:
  explicit Places(const Attrs& attrs) : stride_(attrs.integer_or("stride", 0)) {
    if (stride_ == 0) return;
    runs_ = attrs.integers("runs");
    ensure(!runs_.empty() && runs_.size() % 2 == 0,
           "init_param: runs must be pairs, got {} numbers", runs_.size());
    for (size_t k = 1; k < runs_.size(); k += 2) row_ += runs_[k];
    ensure(row_ > 0, "init_param: runs must cover at least 1 element, got {}", row_);
  }
  int64_t operator()(int64_t i) const {
    if (stride_ == 0) return i;
    // The slice has row_ of every stride_ elements of the parameter. Find the run that holds
    // element i.
    int64_t column = i % row_;
    size_t k = 0;
    for (; column >= runs_[k + 1]; k += 2) column -= runs_[k + 1];
    return i / row_ * stride_ + runs_[k] + column;
  }

 private:
  int64_t stride_, row_ = 0;
  std::vector<int64_t> runs_;
};

// Returns an element of a tensor of uniform numbers in [-1, 1).
double uniform_element(const RandomStream& stream, uint64_t element) {
  return 2 * static_cast<double>(uniform01(stream.block(element / 4)[element % 4])) - 1;
}

// out[i] = element begin + i of the rank's slice of parameter `param`: 0, 1, or `scale` times a
// standard normal number or a uniform one in [-1, 1), in f32. A random value depends on the
// element's index in the whole parameter, so all layouts start with the same values.
void init_param(const KernelContext& c) {
  float* out = c.out[0].as<float>();
  const std::string& kind = c.attrs.text("kind");
  int64_t begin = c.attrs.integer("begin");
  double scale = c.attrs.real("scale");
  RandomStream stream =
      init_stream(c.scalars.seed, static_cast<uint32_t>(c.attrs.integer("param")));
  const bool normal = kind == "normal", drawn = normal || kind == "uniform";
  ensure(drawn || kind == "zeros" || kind == "ones",
         "init_param: kind must be zeros, ones, normal or uniform, got '{}'", kind);
  const int64_t count = c.out[0].numel();
  const Places place(c.attrs);
  // Each element is drawn independently, so the division into tasks does not affect the result.
  auto draw = [&](int64_t task, int) {
    for (int64_t i = task * kBlock; i < std::min(count, (task + 1) * kBlock); ++i) {
      const auto element = static_cast<uint64_t>(drawn ? place(begin + i) : 0);
      out[i] = normal  ? static_cast<float>(scale * normal_element(stream, element))
               : drawn ? static_cast<float>(scale * uniform_element(stream, element))
                       : (kind == "ones" ? 1.0f : 0.0f);
    }
  };
  c.team.parallel_for(ceil_div(count, kBlock), std::cref(draw));
}

}  // namespace

void add_init_param(KernelRegistry& registry) { add_kernel(registry, "init_param", init_param); }

}  // namespace ds::ref
