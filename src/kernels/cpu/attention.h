#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cpu/cpu.h"

namespace ds::cpu {

// The causal heads of one packed batch: row r of qkv is q, k, v, each `width` = heads * depth wide; sequence
// s is rows [s * seq, min((s + 1) * seq, rows)).
struct HeadsShape {
  int64_t rows, width, heads, depth, seq, sequences;
  float scale;  // 1 / sqrt(depth)

  HeadsShape(const TensorView& qkv, const Attrs& attrs)
      : rows(qkv.dims[0]),
        width(qkv.dims[1] / 3),
        heads(attrs.integer("heads")),
        depth(width / heads),
        seq(std::min(attrs.integer("seq"), rows)),
        sequences(ceil_div(rows, seq)),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(depth)))) {}

  int64_t length(int64_t sequence) const { return std::min(seq, rows - sequence * seq); }
  // Rows of a block of queries or keys: its f32 copies stay in the second-level cache.
  int64_t block() const { return depth <= 256 ? 128 : 32; }
};

// Takes packed causal heads of f32 and bf16 without optional attributes.
inline std::string refuse_attention(const KernelQuery& query) {
  if (query.in.size() != (query.op == "attention" ? 1 : 4)) return "operands other than qkv";
  if (query.attrs.items().size() != 2) return "attributes " + query.attrs.print();
  DType dtype = query.out[0];
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 ? "" : std::string(dtype_name(dtype)) + " operands";
}

// Rows of queries whose scores are alive at the same time.
constexpr int64_t kStrip = 16;

// Hands out f32 arrays of one thread's scratch, 64-byte aligned.
class Carver {
 public:
  explicit Carver(std::span<std::byte> bytes) : bytes_(bytes) {}
  float* floats(int64_t count) {
    size_t begin = used_;
    used_ += static_cast<size_t>(round_up(count, 16)) * sizeof(float);
    ensure(used_ <= bytes_.size(), "attention needs {} bytes of scratch, team has {}", used_, bytes_.size());
    return reinterpret_cast<float*>(bytes_.data() + begin);
  }
  int64_t left() const { return static_cast<int64_t>((bytes_.size() - used_) / sizeof(float)) / 16 * 16; }

 private:
  std::span<std::byte> bytes_;
  size_t used_ = 0;
};

}  // namespace ds::cpu
