// Problem. Muon's step of a matrix is the momentum made orthogonal: X starts as the momentum
// divided by its norm, and five times it is replaced by p(X) = a X + (b X X' + c (X X')^2) X, which
// drives all singular values towards 1. The products need the whole matrix, but the border between
// two ranks' parts of a bucket may be at any granule.
//
// Invariant. A step's bits do not depend on the cut: every rank that needs a matrix computes the
// products of the whole matrix, by the same instructions, whose bits depend only on shapes.
//
// Algorithm. For each bucket of matrices:
//  1. Each rank updates the momentum of its part and writes a second tensor, from which the step
//     is computed: the new momentum with the gradient mixed in once more (Nesterov).
//  2. A gather gives every rank this tensor for the whole bucket.
//  3. A rank computes the step of every matrix that has an element in its part: one rank for most
//     matrices, several for a matrix that spans their parts. Squares have the size of the short
//     side: X X' if a matrix has fewer rows, X' X if it has fewer columns.
//  4. The rank extracts the step of its part from these matrices.
// The products are those of `linear`, so they use its kernels. For matrices that are not square,
// "gram" iterates on R = X X' and on the product Q of the factors of X, both square, and multiplies
// X twice: before the third iteration, to restart from a nearly orthogonal matrix, and at the end.
// The polynomial is the same.
//
// Cost. A step gathers 4 bytes (f32) of each element that another rank updates. The products of a
// matrix with long side m and short side s take 5 (4 m + 2 s) s^2 operations, and about 22 s^3 + 8
// m s^2 with "gram".
//
// Sources. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); "gram":
// Dao (2026).
#include "update/matrix_update.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/program/instruction.h"
#include "optim/optimizer.h"
#include "update/stretch.h"
#include "zero/gather.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Emits the products of one matrix. A Value is a matrix that starts at element `first` of a buffer.
class MatrixEmitter {
 public:
  struct Value {
    BufferId buffer;
    int64_t first, rows, cols;
  };

  MatrixEmitter(ProgramBuilder& builder, const std::string& name, const MatrixUpdate& update,
                DType dtype)
      : b_(builder), name_(name), u_(update), dtype_(dtype) {}

  // The final X, as the sum of the first `terms` (1 or 2) of factor[0] * first and factor[1] *
  // second. The instruction that extracts this rank's elements also adds the terms, so that only
  // these elements are computed.
  struct Sum {
    Value first, second;
    double factor[2];
    int terms;
  };

  Sum orthogonal(const Value& momentum, bool gram) {
    wide_ = momentum.rows <= momentum.cols;
    Value x = fresh(momentum.rows, momentum.cols);
    emit(Op::unit_matrix, {momentum}, x, {{"eps", u_.scale_eps}});
    if (gram && x.rows != x.cols) return by_gram(x);
    for (int i = 1;; ++i) {
      Value square = squared(x);
      Value inner = blend(square, u_.b, product(square, square), u_.c);
      Value next = multiplied(inner, x);
      if (i == u_.iterations) return {x, next, {u_.a, 1}, 2};
      x = blend(x, u_.a, next, 1);
    }
  }

 private:
  // The index, from 0, of the iteration before which X and its square are recomputed.
  static constexpr int kRestart = 2;

  // Iterates on R = X X' and on the product Q of the factors. With Z = b R + c R^2 an iteration
  // multiplies X by Z + a, so Q becomes (Z + a) Q and R becomes (Z + a) R (Z + a). The last
  // iteration before a restart or the end needs no R.
  Sum by_gram(Value x) {
    Value r = squared(x), q = r;
    bool begun = false;
    for (int i = 0; i < u_.iterations; ++i) {
      if (i == kRestart) {
        x = multiplied(q, x);
        r = squared(x);
        begun = false;
      }
      Value z = blend(r, u_.b, product(r, r), u_.c);
      q = begun ? blend(q, u_.a, product(z, q), 1) : shifted(z, u_.a);
      begun = true;
      if (i + 1 == u_.iterations || i + 1 == kRestart) continue;
      Value rz = blend(r, u_.a, product(z, r), 1);
      r = blend(rz, u_.a, product(z, rz), 1);
    }
    Value last = multiplied(q, x);
    return {last, last, {1, 0}, 1};
  }

  Value fresh(int64_t rows, int64_t cols) {
    return {b_.transient(name_, dtype_, rows * cols, Tier::device), 0, rows, cols};
  }
  Operand operand(const Value& v, Access access) const {
    Operand o = flat(b_.buffer(v.buffer), v.buffer, v.first, v.rows * v.cols, access);
    o.type.shape = Shape{Dim(v.rows), Dim(v.cols)};
    return o;
  }
  void emit(const InstrDef& def, std::initializer_list<Value> in, const Value& out, Attrs attrs) {
    std::vector<Operand> operands;
    for (const Value& v : in) operands.push_back(operand(v, Access::read));
    operands.push_back(operand(out, Access::write));
    b_.emit(make_instr(def, std::move(operands), std::move(attrs)));
  }
  void emit(Op op, std::initializer_list<Value> in, const Value& out, Attrs attrs) {
    emit(instruction(op), in, out, std::move(attrs));
  }
  Value blend(const Value& x, double a, const Value& y, double b) {
    Value out = fresh(x.rows, x.cols);
    emit(Op::blend, {x, y}, out, {{"a", a}, {"b", b}});
    return out;
  }
  Value shifted(const Value& x, double diagonal) {
    Value out = fresh(x.rows, x.cols);
    emit(Op::blend, {x}, out, {{"a", 1.0}, {"diagonal", diagonal}});
    return out;
  }
  // Returns the product of two square matrices.
  Value product(const Value& a, const Value& b) {
    Value out = fresh(a.rows, b.cols);
    emit(instruction("linear_dx"), {a, b}, out, {});
    return out;
  }
  // Returns X X', or X' X if that is smaller.
  Value squared(const Value& x) {
    int64_t side = std::min(x.rows, x.cols);
    Value out = fresh(side, side);
    emit(instruction(wide_ ? "linear" : "linear_dw"), {x, x}, out, {});
    return out;
  }
  // Returns a square matrix times X, or X times the transposed square matrix if squares are X' X.
  Value multiplied(const Value& square, const Value& x) {
    Value out = fresh(x.rows, x.cols);
    if (wide_) {
      emit(instruction("linear_dx"), {square, x}, out, {});
    } else {
      emit(instruction("linear"), {x, square}, out, {});
    }
    return out;
  }

  ProgramBuilder& b_;
  std::string name_;
  const MatrixUpdate& u_;
  DType dtype_;
  bool wide_ = true;
};

// Emits the update of one bucket.
class BucketUpdate {
 public:
  BucketUpdate(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config, BucketId bucket)
      : b_(builder),
        plan_(plan),
        config_(config),
        update_(*optimizer_of(config.optimizer).matrices),
        bucket_(bucket),
        of_(plan.layout.buckets[bucket]),
        state_(plan.buckets[bucket]),
        low_(plan.part_first(bucket)),
        part_(plan.part_numel(bucket)),
        stretches_(stretches_of(plan, config, bucket, low_, part_)) {}

  void emit() {
    const StateRef all = gathered(momentum());
    StateRef step = part_buffer(".step");
    if (!covered()) b_.emit(Op::zero, {flat_operand(b_, step, Access::write)});
    for (const ParamPlace& place : plan_.trained_params(bucket_)) make_steps(place, all, step);
    for (const Stretch& s : stretches_) {
      s.limit(b_.emit(update_.step, {of(step, s, Access::read), scalars(),
                                     of(state_.master.ref, s, Access::update),
                                     of(state_.param.ref, s, s.written())}));
    }
  }

 private:
  Operand scalars() const { return scalars_operand(b_, plan_); }
  Operand of(const StateRef& state, const Stretch& s, Access access) const {
    return flat_operand(b_, state.slice(s.first, s.count), access);
  }
  StateRef part_buffer(const char* name) const {
    return {b_.transient(of_.name + name, DS_DTYPE_F32, part_, Tier::device), 0, part_};
  }
  // Returns whether every element of this rank's part belongs to a trained matrix, so that the
  // steps write the whole part.
  bool covered() const {
    int64_t elements = 0;
    for (const ParamPlace& p : plan_.trained_params(bucket_))
      elements +=
          std::max<int64_t>(0, std::min(p.begin + p.numel, low_ + part_) - std::max(p.begin, low_));
    return elements == part_;
  }

  StateRef momentum() {
    StateRef ahead = part_buffer(".ahead");
    int64_t written = 0;
    for (const Stretch& s : stretches_) written += s.whole() ? s.count : 0;
    if (written < part_) b_.emit(Op::zero, {flat_operand(b_, ahead, Access::write)});
    for (const Stretch& s : stretches_) {
      Operand grad = gradient_of(b_, plan_, s);
      s.limit(b_.emit(update_.momentum, {grad, scalars(), of(state_.state(0), s, Access::update),
                                         of(ahead, s, s.written())}));
    }
    return ahead;
  }

  StateRef gathered(const StateRef& ahead) {
    if (part_ == of_.numel) return ahead;
    StateRef all{b_.transient(of_.name + ".all_ahead", DS_DTYPE_F32, of_.numel, Tier::device), 0,
                 of_.numel};
    emit_gather_of_parts(b_, plan_, bucket_, ahead, all.buffer);
    return all;
  }

  // Emits the steps of those matrices of a parameter that have elements in this rank's part. The
  // factor is sqrt(max(1, rows / cols)), as in Muon.
  void make_steps(const ParamPlace& place, const StateRef& all, const StateRef& step) {
    const auto [rows, cols] = plan_.matrices[place.param];
    const int64_t numel = rows * cols;
    const bool gram = config_.optimizer.ns_method == "gram";
    const DType dtype = gram || plan_.compute != DS_DTYPE_BF16 ? DS_DTYPE_F32 : DS_DTYPE_BF16;
    const double scale =
        std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
    for (int64_t first = place.begin; numel > 0 && first < place.begin + place.numel;
         first += numel) {
      const int64_t begin = std::max(first, low_), end = std::min(first + numel, low_ + part_);
      if (begin >= end) continue;
      MatrixEmitter emitter(b_, of_.name + ".x", update_, dtype);
      const MatrixEmitter::Sum sum = emitter.orthogonal({all.buffer, first, rows, cols}, gram);
      std::vector<Operand> operands;
      for (const MatrixEmitter::Value& v : {sum.first, sum.second}) {
        if (static_cast<int>(operands.size()) < sum.terms)
          operands.push_back(
              flat(b_.buffer(v.buffer), v.buffer, begin - first, end - begin, Access::read));
      }
      operands.push_back(flat_operand(b_, step.slice(begin - low_, end - begin), Access::write));
      Attrs attrs{{"a", scale * sum.factor[0]}};
      if (sum.terms == 2) attrs.set("b", scale * sum.factor[1]);
      b_.emit(Op::blend, std::move(operands), std::move(attrs));
    }
  }

  ProgramBuilder& b_;
  const ZeroPlan& plan_;
  const Config& config_;
  const MatrixUpdate& update_;
  BucketId bucket_;
  const Bucket& of_;
  const BucketState& state_;
  int64_t low_, part_;
  std::vector<Stretch> stretches_;
};

}  // namespace

void emit_matrix_updates(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  for (BucketId b = plan.buckets.last(); b.exists(); --b) {
    if (plan.layout.buckets[b].matrices && plan.trains(b))
      BucketUpdate(builder, plan, config, b).emit();
  }
}

std::string matrix_updates_note(const ZeroPlan& plan) {
  int64_t bytes = 0, matrices = 0;
  for (BucketId b : plan.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    if (!bucket.matrices) continue;
    bytes += (bucket.numel - plan.part_numel(b)) * size_of(DS_DTYPE_F32);
    for (const ParamPlace& p : bucket.params) {
      const auto [rows, cols] = plan.matrices[p.param];
      matrices += rows * cols > 0 ? p.numel / (rows * cols) : 0;
    }
  }
  if (matrices == 0) return "";
  return fmt::format(
      "{} matrices are updated as a whole: a step gathers {} bytes of momentum from other ranks",
      matrices, bytes);
}

}  // namespace ds
