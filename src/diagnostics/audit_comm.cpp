#include "diagnostics/audit_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/program/instruction.h"
#include "kernels/ref/ref.h"

namespace ds {
namespace {

// Number of bytes of each rank's input that are compared at a time.
constexpr int64_t kPiece = int64_t{256} << 10;

// A comparison of one collective's result, piece by piece. A piece has the bytes [at, at + size) of
// every rank's input.
class CollectiveJudge {
 public:
  CollectiveJudge(Op op, const AuditGroup& group, const TensorView& in, const TensorView& out)
      : op_(op), group_(group), in_(in), out_(out), bytes_(bytes_of(in)) {}

  // Every rank of `all` broadcasts its pieces, whatever its group is, so that all groups are
  // audited by the same broadcasts.
  Verdict run(Communicator& all, const std::string& label) {
    if (std::string reason = unknown(); !reason.empty()) return Verdict::unaudited(reason);
    const std::string say = "audit of " + label;
    std::vector<std::vector<std::byte>> given(static_cast<size_t>(all.size()));
    for (int64_t at = 0; at < bytes_; at += kPiece) {
      auto size = static_cast<size_t>(std::min(kPiece, bytes_ - at));
      for (int root = 0; root < all.size(); ++root) {
        std::vector<std::byte>& piece = given[static_cast<size_t>(root)];
        piece.resize(size);
        if (root == all.rank()) std::memcpy(piece.data(), in_.as<std::byte>() + at, size);
        all.broadcast(piece.data(), size, root, say);
      }
      see(at, given);
    }
    return verdict_;
  }

 private:
  bool sums() const { return op_ == Op::reduce_scatter || op_ == Op::all_reduce; }

  // Returns the reason why the collective cannot be audited, or "". The result is the same on all
  // ranks.
  std::string unknown() const {
    bool widens =
        in_.dtype == DS_DTYPE_F32 || in_.dtype == DS_DTYPE_BF16 || in_.dtype == DS_DTYPE_F16;
    if (sums()) return widens && out_.dtype == DS_DTYPE_F32 ? "" : "a sum of another type than f32";
    return op_ == Op::all_gather || op_ == Op::all_to_all ? ""
                                                          : "this collective cannot be repeated";
  }

  // Compares the part of the result that the pieces at `at` determine.
  void see(int64_t at, const std::vector<std::vector<std::byte>>& given) {
    if (sums()) return see_sums(at, given);
    for (size_t k = 0; k < group_.ranks.size(); ++k) {
      const std::vector<std::byte>& piece = given[static_cast<size_t>(group_.ranks[k])];
      auto size = static_cast<int64_t>(piece.size()), member = static_cast<int64_t>(k);
      if (op_ == Op::all_gather) {
        equal(piece.data(), member * bytes_ + at, size);
        continue;
      }
      int64_t block = bytes_ / static_cast<int64_t>(group_.ranks.size());
      int64_t mine = static_cast<int64_t>(group_.own) * block;
      int64_t begin = std::max(at, mine), end = std::min(at + size, mine + block);
      if (begin < end)
        equal(piece.data() + (begin - at), member * block + (begin - mine), end - begin);
    }
  }

  // Compares the `size` bytes of the result at `at` with `want`.
  void equal(const std::byte* want, int64_t at, int64_t size) {
    if (!verdict_.passed()) return;
    // The offset of the element that contains `at`.
    int64_t unit = size_of(out_.dtype), first = at / unit * unit;
    const std::byte* got = out_.as<std::byte>() + at;
    if (std::memcmp(got, want, static_cast<size_t>(size)) == 0) return;
    auto differs = std::mismatch(got, got + size, want).first - got;
    verdict_ = Verdict::wrong(fmt::format("output 0[{}]: differs from the bits that rank {} sent",
                                          (first + differs) / unit, source(at)));
  }

  // Returns the rank from which byte `at` of the result comes.
  int source(int64_t at) const {
    int64_t block =
        op_ == Op::all_gather ? bytes_ : bytes_ / static_cast<int64_t>(group_.ranks.size());
    return group_.ranks[static_cast<size_t>(at / block)];
  }

  // Adds up the elements of the pieces that belong to this rank's result, in the order of the
  // reference kernels, and compares the sums.
  void see_sums(int64_t at, const std::vector<std::vector<std::byte>>& given) {
    int64_t unit = size_of(in_.dtype), numel = out_.numel();
    int64_t mine = op_ == Op::reduce_scatter ? static_cast<int64_t>(group_.own) * numel : 0;
    int64_t first = at / unit, count = static_cast<int64_t>(given[0].size()) / unit;
    std::vector<float> terms(group_.ranks.size());
    for (int64_t e = std::max(first, mine); e < std::min(first + count, mine + numel); ++e) {
      for (size_t k = 0; k < terms.size(); ++k) {
        TensorView piece = in_;
        piece.data = const_cast<std::byte*>(given[static_cast<size_t>(group_.ranks[k])].data());
        terms[k] = static_cast<float>(element_of(piece, e - first));
      }
      sum(e - mine, ref::tree_sum(terms));
    }
  }

  // Compares element e of the result with `want`; any two NaN are equal.
  void sum(int64_t e, float want) {
    float got = out_.as<float>()[e];
    bool same = std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want) ||
                (std::isnan(got) && std::isnan(want));
    if (same || !verdict_.passed()) return;
    verdict_ = Verdict::wrong(fmt::format("output 0[{}]: {:.9g} instead of {:.9g}", e, got, want));
    if (std::isfinite(got - want) && got != want)
      verdict_.error = std::abs(double{got} - double{want});
  }

  const Op op_;
  const AuditGroup& group_;
  const TensorView &in_, &out_;
  const int64_t bytes_;
  Verdict verdict_;
};

}  // namespace

Verdict judge_collective(Op op, const AuditGroup& group, const TensorView& in,
                         const TensorView& out, Communicator& all, const std::string& label) {
  return CollectiveJudge(op, group, in, out).run(all, label);
}

}  // namespace ds
