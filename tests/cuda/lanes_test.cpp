// The device's kernels on lanes: every operation of the table against the reference, in 8 orders of threads.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/program/codes.h"
#include "cuda/lane/barriers.h"
#include "cuda/lane/launcher.h"
#include "kernels/cuda/kernel.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

constexpr uint64_t kSeeds = 8;
thread_local uint64_t seed = 0;  // of the launches that follow

// Scratch in front of which and behind which nothing may be written.
class Room {
 public:
  explicit Room(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), data_(bytes_ + 1024, kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(data_.data());
    begin_ = (address + 511) / 256 * 256 - address;
    std::fill_n(data_.begin() + static_cast<ptrdiff_t>(begin_), bytes_, uint8_t{0xff});
  }
  void* data() { return data_.data() + begin_; }
  bool whole() const {
    for (size_t i = 0; i < data_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && data_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kGuard = 0xa5;
  size_t bytes_, begin_;
  std::vector<uint8_t> data_;
};

cuda::Query query_of(const KernelContext& c, std::string_view op, std::vector<TensorView>& in,
                     std::vector<TensorView>& out) {
  in.assign(c.in.begin(), c.in.end());
  out.assign(c.out.begin(), c.out.end());
  for (TensorView& view : in) view.data = nullptr;
  for (TensorView& view : out) view.data = nullptr;
  return {op, in, out, c.attrs};
}

void run_on_lanes(const KernelContext& c, std::string_view op) {
  std::vector<TensorView> in, out;
  std::string refusal;
  std::unique_ptr<cuda::Kernel> kernel = cuda::make_kernel(query_of(c, op, in, out), &refusal);
  ensure(kernel != nullptr, "{}: {}", op, refusal);
  Room room(kernel->scratch_bytes());
  lane::LaneLauncher launcher(seed);
  const RunScalars run{0, c.scalars.param, c.scalars.element};
  cuda::Arguments arguments{c.in, c.out, &c.scalars, c.leaf, run, {}, c.runs, room.data()};
  kernel->run(launcher, arguments);
  ensure(room.whole(), "{}: writes outside of its scratch", op);
}

// KernelFn carries no data, so the operation is a static of its own.
template <int slot>
struct Slot {
  static inline std::string op;
  static void run(const KernelContext& c) { run_on_lanes(c, op); }
};

KernelImpl lane_kernel(const std::string& op) {
  Slot<0>::op = op;
  return {op, "lanes", &Slot<0>::run};
}

// Why the device does not take a case, or "".
std::string refusal_of(const OpCase& c, DType dtype) {
  std::vector<TensorView> in, out;
  std::vector<DType> types = input_types(c, dtype);
  auto view = [](DType t, const std::vector<int64_t>& dims) {
    TensorView v;
    v.dtype = t;
    v.rank = static_cast<int>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) v.dims[i] = dims[i];
    return v;
  };
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(view(types[i], c.in[i].dims()));
  for (const TensorType& type : output_types(c, dtype)) out.push_back(Tensor(type, 1).view());
  std::string reason;
  return cuda::make_kernel({c.op, in, out, c.attrs}, &reason) ? "" : reason;
}

// Whether a loss is refused for its attributes, all of which the reason can name.
bool of_loss(const OpCase& c, const std::string& reason) {
  if (c.op.find("cross_entropy") == std::string::npos || c.attrs.empty()) return false;
  const auto& [name, value] = c.attrs.items().front();
  return reason.starts_with(name + " is ") && reason.find("the device's " + c.op + " takes ") != reason.npos;
}

std::set<std::string> device_operations() {
  std::set<std::string> names;
  for (std::string_view name : cuda::kernel_operations()) names.emplace(name);
  return names;
}

// Operations on more columns than those of tests/support/cases.cpp: rows of several warps, heads of every
// entry.
std::vector<OpCase> wide_op_cases(const KernelRegistry& ref) {
  ThreadTeam team(1);
  std::vector<OpCase> all;
  auto real = [number = uint64_t{40}](std::vector<int64_t> dims) mutable {
    return random_tensor(DS_DTYPE_F64, std::move(dims), ++number);
  };
  // Adds a case; returns its results in f64.
  auto add = [&](const char* op, const Attrs& attrs, std::vector<Tensor> in) {
    all.push_back({op, attrs, std::move(in)});
    return run_case(implementation(ref, op, "ref"), all.back(), DS_DTYPE_F64, team);
  };
  Tensor x = real({3, 300}), dy = real({3, 300}), w = real({300}), b = real({300}), one = real({});
  std::vector<Tensor> norm = add("layer_norm", {{"eps", 1e-5}}, {x, w, b});
  add("layer_norm_dx", {}, {dy, x, w, norm[1], norm[2]});
  norm = add("rms_norm", {{"eps", 1e-5}}, {x, w});
  add("rms_norm_dx", {}, {dy, x, w, norm[1]});
  add("scale_rows_dw", {{"columns", int64_t{300}}, {"column", int64_t{1}}}, {dy, x});
  Tensor tall = real({300, 10}), gradient = real({300, 10});
  norm = add("layer_norm", {{"eps", 1e-5}}, {tall});
  add("layer_norm_dw", {}, {gradient, tall, norm[1], norm[2]});
  add("linear_db", {}, {gradient});
  Tensor logits = real({5, 700}), targets = random_ids(5, 700, 3);
  targets.set(2, -100);
  std::vector<Tensor> loss = add("cross_entropy", {}, {logits, targets});
  add("cross_entropy_dx", {}, {one, logits, targets, loss[1]});
  for (int64_t depth : {96, 160}) {
    Attrs attrs{{"heads", int64_t{2}},
                {"kv_heads", int64_t{1}},
                {"seq", int64_t{70}},
                {"causal", int64_t{depth == 96}}};
    Tensor q = real({90, 2 * depth}), k = real({90, depth}), v = real({90, depth});
    std::vector<Tensor> y = add("attention", attrs, {q, k, v});
    add("attention_dx", attrs, {real({90, 2 * depth}), q, k, v, y[0], y[1]});
  }
  return all;
}

// Operands of sizes that tests/support/cases.cpp has no instruction for: several blocks, tails, slices of
// levels.
Tensor floats(std::vector<int64_t> dims, uint64_t number, double factor = 1.00017) {
  Tensor t = random_tensor(DS_DTYPE_F32, std::move(dims), number);
  for (int64_t e = 0; e < t.numel(); ++e) t.set(e, t.at(e) * factor);
  return t;
}
Tensor poisoned(DType dtype, std::vector<int64_t> dims) {
  Tensor t(dtype, std::move(dims));
  t.poison();
  return t;
}
// A block of scalars, as an output of 256 bytes.
Tensor scalars_block(const StepScalars& scalars) {
  Tensor t(DS_DTYPE_U8, {256});
  std::memcpy(t.bytes().data(), &scalars, sizeof scalars);
  return t;
}

std::vector<InstructionCase> instructions() {
  std::vector<InstructionCase> all;
  StepScalars step;
  step.leaves = 5, step.loss = 2.5, step.loss_scale = 128, step.updates = 3, step.seed = 9;
  step.grad_scale = 0.37;
  step.group = {.lr = 3.1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9};
  for (int64_t count : {1, 255, 257, 70000}) {
    Tensor squares(DS_DTYPE_F64, {count});
    for (int64_t e = 0; e < count; ++e) squares.set(e, std::fmod(0.1 * static_cast<double>(e * e + 1), 7.3));
    std::vector<ElementRun> runs;
    for (int64_t begin = count / 2; begin > 0 && runs.size() < 100; begin -= 3)
      runs.push_back({begin, std::min(begin + 2, count)});
    for (const auto& order : {std::vector<ElementRun>{}, runs}) {
      all.push_back({"sum_norms", {}, {squares}, {Tensor(DS_DTYPE_F64, {1})}, step, order});
      for (double most : {0.0, 1.0, 1e9}) {
        Attrs attrs{{"max_norm", most}, {"ranks", int64_t{3}}};
        all.push_back({"clip", attrs, {squares}, {scalars_block(step)}, step, order});
      }
    }
  }
  Tensor infinite(DS_DTYPE_F64, {1});
  infinite.set(0, std::numeric_limits<double>::infinity());
  for (int64_t unchecked : {0, 1}) {
    Attrs attrs{{"max_norm", 1.0}, {"unchecked", unchecked}};
    all.push_back({"clip", attrs, {infinite}, {scalars_block(step)}, step});
  }
  Tensor losses = floats({15}, 4);
  auto absent = std::bit_cast<float>(kNoLeaf);
  std::memcpy(losses.bytes().data() + 4 * sizeof(float), &absent, sizeof absent);
  all.push_back({"losses", {{"micros", int64_t{3}}}, {losses}, {scalars_block(step)}, step});
  all.push_back({"mean_gradients", {}, {}, {scalars_block(step)}, step});
  for (int64_t mean : {0, 1}) {
    Attrs attrs{{"ranks", int64_t{3}}, {"mean", mean}};
    all.push_back({"momentum", attrs, {floats({300}, 5)}, {floats({300}, 6)}, step});
  }
  // Ids with repetitions, over several blocks of the list; one block of 700 words is not full.
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Tensor table = floats({700, 24}, 7).as(dtype), ids = random_ids(90, 700, 8);
    for (int64_t gone : {0, 1}) {
      StepScalars own = step;
      own.absent = gone;
      all.push_back(
          {"pack_rows", {}, {table, ids}, {poisoned(dtype, {100, 24}), poisoned(DS_DTYPE_I32, {100})}, own});
    }
    for (int64_t ranks : {1, 5, 8}) {
      Tensor rows = floats({ranks * 40, 24}, 9).as(dtype), numbers(DS_DTYPE_I32, {ranks * 40});
      for (int64_t r = 0; r < ranks; ++r) {
        for (int64_t k = 0; k < 40; ++k)
          numbers.set(r * 40 + k, k < 33 ? static_cast<double>(3 * k + r) : 0x7fffffff);
      }
      Attrs attrs{{"ranks", ranks}, {"first", int64_t{50}}};
      if (ranks == 8) attrs.set("levels", std::vector<int64_t>{4, 2});
      all.push_back({"sum_rows", attrs, {rows, numbers}, {poisoned(DS_DTYPE_F32, {2000})}, step});
    }
  }
  // Granules: plain ones, one of zeros, one with a NaN, one with an infinity, one of subnormal numbers.
  Tensor x = floats({6 * kGranule}, 21);
  for (int64_t e = 0; e < kGranule; ++e) {
    x.set(kGranule + e, 0);
    x.set(4 * kGranule + e, x.at(e) * 0x1p-130);
  }
  x.set(2 * kGranule + 7, std::nan(""));
  x.set(3 * kGranule + 9, std::numeric_limits<double>::infinity());
  for (int64_t bits : {8, 4}) {
    Tensor codes = poisoned(DS_DTYPE_U8, {code_bytes(6 * kGranule, bits)});
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16})
      all.push_back({"quantize", {{"bits", bits}}, {x.as(dtype)}, {codes}, step});
    for (int64_t reset : {0, 2, 3}) {
      for (int64_t skip : {0, 1}) {
        StepScalars own = step;
        own.step = 4, own.skip = skip;
        Attrs attrs{{"bits", bits}, {"err_beta", 0.8}, {"reset", reset}};
        all.push_back({"quantize", attrs, {x}, {floats({6 * kGranule}, 22, 1e-2), codes}, own});
      }
    }
    for (int64_t ranks : {1, 3, 7}) {
      Tensor sent(DS_DTYPE_U8, {ranks * code_bytes(2 * kGranule, bits)});
      for (int64_t e = 0; e < sent.numel(); ++e)
        sent.bytes()[static_cast<size_t>(e)] = static_cast<std::byte>((e * 37 + 11) % 120);
      Attrs attrs{{"bits", bits}, {"ranks", ranks}};
      all.push_back({"dequantize_sum", attrs, {sent}, {poisoned(DS_DTYPE_F32, {2 * kGranule})}, step});
      if (ranks != 1) continue;
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_F16})
        all.push_back({"dequantize", {{"bits", bits}}, {sent}, {poisoned(dtype, {2 * kGranule})}, step});
    }
  }
  // Masters and states in bf16, rounded by draws, from an element on that is no multiple of four.
  for (const char* op : {"adamw", "sgd", "lion", "adagrad"}) {
    for (int64_t drawn : {0, 1}) {
      StepScalars own = step;
      own.param = 3, own.element = 1021, own.step = 17;
      Attrs attrs{{"stochastic", drawn}, {"l2", int64_t{0}}, {"nesterov", int64_t{1}}};
      Tensor small = floats({2999}, 11).as(DS_DTYPE_BF16), second = floats({2999}, 12);
      for (int64_t e = 0; e < second.numel(); ++e) second.set(e, std::abs(second.at(e)) * 1e-3);
      std::vector<Tensor> out{small, floats({2999}, 13).as(DS_DTYPE_BF16)};
      if (std::string_view(op) == "adagrad") out[1] = second.as(DS_DTYPE_BF16);
      if (std::string_view(op) == "adamw") out.push_back(second.as(DS_DTYPE_BF16));
      out.push_back(poisoned(DS_DTYPE_F16, {2999}));
      all.push_back({op, attrs, {floats({2999}, 14).as(DS_DTYPE_BF16)}, out, own});
    }
  }
  // Updates that most trainings never reach: b^t of a large t.
  for (int64_t updates : {0, 1, 6, 999, 123456}) {
    StepScalars own = step;
    own.updates = updates;
    own.group.beta2 = 0.9999;
    Tensor second = floats({40}, 15, 1e-3);
    for (int64_t e = 0; e < 40; ++e) second.set(e, std::abs(second.at(e)));
    all.push_back({"adamw",
                   {{"l2", int64_t{1}}},
                   {floats({40}, 16)},
                   {floats({40}, 17), floats({40}, 18), second, poisoned(DS_DTYPE_BF16, {40})},
                   own});
  }
  for (int64_t granules : {1, 129, 300}) {
    for (int64_t granule : {256, 77})
      all.push_back({"granule_norms",
                     {},
                     {floats({granules * granule}, 19)},
                     {Tensor(DS_DTYPE_F64, {granules})},
                     step});
  }
  return all;
}

class Lanes : public testing::Test {
 protected:
  void SetUp() override { register_ref(ref_); }
  void TearDown() override { lane::drop_barrier({}); }

  // Operations: those with one result give the reference's bits, the rest stay within kernels/accuracy.h.
  testing::AssertionResult right(const OpCase& c, DType dtype) {
    KernelImpl impl = lane_kernel(c.op);
    if (find_accuracy(c.op)->one_result) {
      std::vector<Tensor> want = run_case(implementation(ref_, c.op, "ref"), c, dtype, team_);
      if (run_case(impl, c, dtype, team_) == want) return testing::AssertionSuccess();
      return testing::AssertionFailure() << c.label() << " " << dtype_name(dtype) << " seed " << seed;
    }
    Deviation d = deviation(impl, c, dtype, team_);
    if (d.error < kMostUnits) return testing::AssertionSuccess();
    return testing::AssertionFailure() << c.label() << " " << dtype_name(dtype) << " seed " << seed << ": "
                                       << d.error << " units, " << d.where;
  }
  testing::AssertionResult right(const InstructionCase& c) {
    std::vector<Tensor> want = run_case(implementation(ref_, c.op, "ref"), c, team_);
    std::vector<Tensor> got = run_case(lane_kernel(c.op), c, team_);
    if (got == want) return testing::AssertionSuccess();
    for (size_t i = 0; i < want.size(); ++i) {
      if (want[i].dtype() == DS_DTYPE_U8) continue;
      for (int64_t e = 0; e < want[i].numel(); ++e) {
        if (got[i].at(e) != want[i].at(e))
          return testing::AssertionFailure()
                 << c.op << " " << c.attrs.print() << " seed " << seed << ": output " << i << " element " << e
                 << ": got " << got[i].at(e) << ", want " << want[i].at(e);
      }
    }
    return testing::AssertionFailure() << c.op << " " << c.attrs.print() << " seed " << seed;
  }
  KernelRegistry ref_;
  ThreadTeam team_{1};
};

TEST_F(Lanes, OperationsAgreeInEveryOrderOfThreads) {
  const std::set<std::string> ours = device_operations();
  std::set<std::string> seen;
  for (const OpCase& c : op_cases()) {
    if (!ours.contains(c.op)) continue;
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      if (std::string reason = refusal_of(c, dtype); !reason.empty()) {
        bool known = reason.find("f64") != std::string::npos ||
                     reason.find("length of a text") != std::string::npos || of_loss(c, reason);
        EXPECT_TRUE(known) << c.label() << ": " << reason;
        continue;
      }
      for (seed = 0; seed < kSeeds; ++seed) EXPECT_TRUE(right(c, dtype));
    }
    seen.insert(c.op);
  }
  for (const InstructionCase& c : instruction_cases()) {
    if (!ours.contains(c.op)) continue;
    for (seed = 0; seed < kSeeds; ++seed) EXPECT_TRUE(right(c));
    seen.insert(c.op);
  }
  for (const InstructionCase& c : instructions()) seen.insert(c.op);  // InstructionsAgree
  std::set<std::string> unseen;
  std::set_difference(ours.begin(), ours.end(), seen.begin(), seen.end(),
                      std::inserter(unseen, unseen.end()));
  EXPECT_EQ(unseen, std::set<std::string>{}) << "every operation of the device has a case";
}

// The device's losses are plain means: another attribute is refused by its name, and the same as its default
// is not.
TEST_F(Lanes, LossesOfOtherAttributesAreRefused) {
  const Attrs usual{{"label_smoothing", 0.0}, {"z_loss", 0.0}, {"reduction", "mean"}};
  const Attrs other{{"label_smoothing", 0.25}, {"z_loss", 0.5}, {"reduction", "sum"}};
  std::map<std::string, int> refused;
  for (OpCase c : op_cases()) {
    if (c.op.find("cross_entropy") == std::string::npos || !c.attrs.empty()) continue;
    c.attrs = usual;
    EXPECT_EQ(refusal_of(c, DS_DTYPE_F32), "") << c.op;
    for (const auto& [name, value] : other.items()) {
      c.attrs = usual;
      c.attrs.set(name, value);
      const std::string reason = refusal_of(c, DS_DTYPE_F32);
      EXPECT_TRUE(reason.starts_with(name + " is ")) << c.op << ": " << reason;
      ++refused[c.op];
    }
  }
  EXPECT_EQ(refused.size(), 4u);
}

TEST_F(Lanes, InstructionsAgree) {
  for (const InstructionCase& c : instructions()) {
    for (seed = 0; seed < kSeeds; ++seed) EXPECT_TRUE(right(c));
  }
}

// Widths over several blocks, columns that are no multiple of anything, more rows than a chunk or a tile.
TEST_F(Lanes, LargeCasesAgree) {
  const std::set<std::string> ours = device_operations();
  std::vector<OpCase> cases = large_op_cases(), wide = wide_op_cases(ref_);
  cases.insert(cases.end(), wide.begin(), wide.end());
  for (const OpCase& c : cases) {
    if (!ours.contains(c.op)) continue;
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      if (!refusal_of(c, dtype).empty()) continue;
      seed = 1 + std::hash<std::string>()(c.label()) % 1000;
      EXPECT_TRUE(right(c, dtype));
    }
  }
}

// Every __syncthreads of every entry, one at a time: with it left out, some case of the operation goes wrong
// in some order of threads.
TEST_F(Lanes, NoBarrierCanBeLeftOut) {
  struct Use {
    const OpCase* op;
    const InstructionCase* instruction;
  };
  const std::set<std::string> ours = device_operations();
  const std::vector<OpCase> small = op_cases(), large = large_op_cases(), wide = wide_op_cases(ref_);
  const std::vector<InstructionCase> more = instructions();
  std::map<lane::Barrier, std::vector<Use>> uses;
  auto note = [&](Use use) {
    lane::forget_barriers();
    seed = 0;
    if (use.op ? !right(*use.op, DS_DTYPE_F32) : !right(*use.instruction)) ADD_FAILURE();
    for (const lane::Barrier& barrier : lane::met_barriers()) uses[barrier].push_back(use);
  };
  for (const std::vector<OpCase>* cases : {&wide, &large, &small}) {
    for (const OpCase& c : *cases) {
      if (ours.contains(c.op) && refusal_of(c, DS_DTYPE_F32).empty()) note({&c, nullptr});
    }
  }
  for (const InstructionCase& c : more) note({nullptr, &c});
  EXPECT_EQ(uses.size(), 39u) << "barriers of all entries; a new one needs a case here";
  // Whether some case fails in some order of threads.
  auto goes_wrong = [&](const std::vector<Use>& users) {
    for (seed = 1; seed <= kSeeds; ++seed) {
      for (const Use& use : users) {
        try {
          if (use.op ? !right(*use.op, DS_DTYPE_F32) : !right(*use.instruction)) return true;
        } catch (const std::exception&) {
          return true;
        }
      }
    }
    return false;
  };
  for (const auto& [barrier, users] : uses) {
    // In a process of its own: a NaN that is taken for an index may end it, or never end.
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      lane::drop_barrier(barrier);
      _exit(goes_wrong(users) ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const bool caught = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    EXPECT_TRUE(caught) << barrier.entry << " does not need " << barrier.file << ":" << barrier.line;
  }
}

}  // namespace
}  // namespace ds::test
