// Tests the device's kernels on lanes: compares every op and instruction with the reference, in 8
// orders of threads.
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
#include "cuda/device_cases.h"
#include "cuda/lane/barriers.h"
#include "cuda/lane/launcher.h"
#include "kernels/cuda/kernel.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

constexpr uint64_t kSeeds = 8;
// The seed of the next launches.
thread_local uint64_t seed = 0;

// Scratch memory between guards, which must not be overwritten.
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

// A kernel that runs an op on lanes. The name of the op is a static variable of each slot, because
// a KernelFn has no context.
template <int slot>
struct Slot {
  static inline std::string op;
  static void run(const KernelContext& c) { run_on_lanes(c, op); }
};

KernelImpl lane_kernel(const std::string& op) {
  Slot<0>::op = op;
  return {op, "lanes", &Slot<0>::run};
}

// Returns why the device refuses a case, or "".
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

std::set<std::string> device_operations() {
  std::set<std::string> names;
  for (std::string_view name : cuda::kernel_operations()) names.emplace(name);
  return names;
}

class Lanes : public testing::Test {
 protected:
  void SetUp() override { register_ref(ref_); }
  void TearDown() override { lane::drop_barrier({}); }

  // Checks an op case: if the op's result is unique, the bits must be the reference's; otherwise
  // the error must be within kernels/accuracy.h.
  testing::AssertionResult right(const OpCase& c, DType dtype) {
    KernelImpl impl = lane_kernel(c.op);
    if (find_accuracy(c.op)->one_result) {
      std::vector<Tensor> want = run_case(implementation(ref_, c.op, "ref"), c, dtype, team_);
      if (run_case(impl, c, dtype, team_) == want) return testing::AssertionSuccess();
      return testing::AssertionFailure()
             << c.label() << " " << dtype_name(dtype) << " seed " << seed;
    }
    Deviation d = deviation(impl, c, dtype, team_);
    if (d.error < kMostUnits) return testing::AssertionSuccess();
    return testing::AssertionFailure() << c.label() << " " << dtype_name(dtype) << " seed " << seed
                                       << ": " << d.error << " units, " << d.where;
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
                 << c.op << " " << c.attrs.print() << " seed " << seed << ": output " << i
                 << " element " << e << ": got " << got[i].at(e) << ", want " << want[i].at(e);
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
        EXPECT_NE(reason.find("f64"), std::string::npos) << c.label() << ": " << reason;
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
  for (const InstructionCase& c : device_instruction_cases())
    // InstructionsAgreeWithTheReference tests these operations.
    seen.insert(c.op);
  std::set<std::string> unseen;
  std::set_difference(ours.begin(), ours.end(), seen.begin(), seen.end(),
                      std::inserter(unseen, unseen.end()));
  EXPECT_EQ(unseen, std::set<std::string>{}) << "every operation of the device has a case";
}

TEST_F(Lanes, InstructionsAgreeWithTheReference) {
  for (const InstructionCase& c : device_instruction_cases()) {
    for (seed = 0; seed < kSeeds; ++seed) EXPECT_TRUE(right(c));
  }
}

// Tests widths over several blocks, columns without a convenient divisor, and more rows than a
// chunk or a tile.
TEST_F(Lanes, LargeCasesAgreeWithTheReference) {
  const std::set<std::string> ours = device_operations();
  std::vector<OpCase> cases = large_op_cases(), wide = wide_op_cases();
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

TEST_F(Lanes, AttentionsDrawnAtRandomAgree) {
  for (uint64_t number = 1; number <= 24; ++number) {
    const DType dtype = number % 2 == 0 ? DS_DTYPE_BF16 : DS_DTYPE_F16;
    seed = number;
    for (const OpCase& c : draw_attention(number))
      EXPECT_TRUE(right(c, dtype)) << "number " << number;
  }
}

TEST_F(Lanes, AttentionOfASequenceDependsOnNoOtherSequence) {
  seed = 3;
  const auto run = [&](const OpCase& c, DType dtype) {
    return run_case(lane_kernel(c.op), c, dtype, team_);
  };
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32}) {
    for (bool causal : {true, false}) EXPECT_EQ(own_bits_of_sequences(run, dtype, causal), "");
    EXPECT_EQ(bounds_of_nan(run, dtype), "") << dtype_name(dtype);
  }
}

TEST_F(Lanes, ARowDependsOnNoOtherRow) {
  seed = 4;
  const auto run = [&](const OpCase& c, DType dtype) {
    return run_case(lane_kernel(c.op), c, dtype, team_);
  };
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32})
    EXPECT_EQ(own_bits_of_rows(run, dtype), "");
}

TEST_F(Lanes, AHeadThatKeepsItsLogitsEqualsLinearThenCrossEntropy) {
  seed = 5;
  const auto run = [&](const OpCase& c, DType dtype) {
    return run_case(lane_kernel(c.op), c, dtype, team_);
  };
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32})
    EXPECT_EQ(kept_head(run, dtype, 0), "");
}

// Even with millions of rows, launches must respect the limits of a grid's dimensions.
TEST_F(Lanes, AGridSupportsAnyNumberOfRows) {
  class Limits final : public cuda::Launcher {
   public:
    void launch(const cuda::Launch& l) override {
      EXPECT_LE(l.grid.y, 65535u) << l.entry;
      EXPECT_LE(l.grid.z, 65535u) << l.entry;
      ++launches;
    }
    int launches = 0;
  } limits;
  const auto of = [](const std::vector<int64_t>& dims) {
    TensorView v;
    v.dtype = DS_DTYPE_F32;
    v.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), std::begin(v.dims));
    return v;
  };
  const TensorView rows = of({20'000'000, 4}), vector = of({4}), square = of({4, 4});
  struct Case {
    const char* op;
    std::vector<TensorView> in, out;
  };
  for (const Case& c :
       {Case{"linear_db", {rows}, {vector}}, Case{"linear", {rows, square}, {rows}},
        Case{"linear_dw", {rows, rows}, {square}}, Case{"softmax_dx", {rows, rows}, {rows}}}) {
    std::string refusal;
    const Attrs none;
    const auto kernel = cuda::make_kernel({c.op, c.in, c.out, none}, &refusal);
    ASSERT_NE(kernel, nullptr) << refusal;
    const int before = limits.launches;
    kernel->run(limits, {c.in, c.out});
    EXPECT_GT(limits.launches, before) << c.op;
  }
}

// Drops each __syncthreads of each entry in turn: then some case of the op must fail in some order
// of threads.
TEST_F(Lanes, NoBarrierIsRedundant) {
  struct Use {
    const OpCase* op;
    const InstructionCase* instruction;
    DType dtype;
  };
  const std::set<std::string> ours = device_operations();
  const std::vector<OpCase> small = op_cases(), large = large_op_cases(), wide = wide_op_cases();
  const std::vector<InstructionCase> more = device_instruction_cases();
  std::map<lane::Barrier, std::vector<Use>> uses;
  auto holds = [&](const Use& use) {
    return use.op ? right(*use.op, use.dtype) : right(*use.instruction);
  };
  auto note = [&](Use use) {
    lane::forget_barriers();
    seed = 0;
    EXPECT_TRUE(holds(use));
    for (const lane::Barrier& barrier : lane::met_barriers()) uses[barrier].push_back(use);
  };
  for (const std::vector<OpCase>* cases : {&wide, &large, &small}) {
    for (const OpCase& c : *cases) {
      if (!ours.contains(c.op) || !refusal_of(c, DS_DTYPE_F32).empty()) continue;
      note({&c, nullptr, DS_DTYPE_F32});
      // 16-bit operands have separate entries.
      if (c.op.starts_with("attention"))
        note({&c, nullptr, DS_DTYPE_BF16}), note({&c, nullptr, DS_DTYPE_F16});
    }
  }
  for (const InstructionCase& c : more) note({nullptr, &c, DS_DTYPE_F32});
  EXPECT_EQ(uses.size(), 90u) << "barriers of all entries; a new one needs a case here";
  // Returns whether some case fails in some order of threads.
  auto goes_wrong = [&](const std::vector<Use>& users) {
    for (seed = 1; seed <= kSeeds; ++seed) {
      for (const Use& use : users) {
        try {
          if (!holds(use)) return true;
        } catch (const std::exception&) {
          return true;
        }
      }
    }
    return false;
  };
  for (const auto& [barrier, users] : uses) {
    // Runs in a separate process: a NaN that is used as an index may crash it or make it loop.
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
    EXPECT_TRUE(caught) << barrier.entry << " does not need " << barrier.file << ":"
                        << barrier.line;
  }
}

}  // namespace
}  // namespace ds::test
