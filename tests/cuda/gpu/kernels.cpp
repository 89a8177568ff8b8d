// Compares every op and instruction of the device with the reference, checks products by its
// library, and checks that repetitions have equal bits.
#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "cuda/device_cases.h"
#include "cuda/gpu/check.h"
#include "cuda/gpu/runner.h"
#include "kernels/accuracy.h"
#include "kernels/cuda/kernel.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

ThreadTeam& team() {
  static ThreadTeam team(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)));
  return team;
}

const KernelRegistry& reference() {
  static const KernelRegistry registry = [] {
    KernelRegistry made;
    register_ref(made);
    return made;
  }();
  return registry;
}

// Returns whether the error means that the device has no kernel for these types or shapes.
bool refused(const Error& error) { return error.status() == DS_ERROR_UNSUPPORTED; }

std::string first_difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (want[i].dtype() == DS_DTYPE_U8) return fmt::format("output {} (codes or scalars)", i);
    for (int64_t e = 0; e < want[i].numel(); ++e) {
      if (got[i].at(e) != want[i].at(e))
        return fmt::format("output {} element {}: got {:.9g}, want {:.9g}", i, e, got[i].at(e),
                           want[i].at(e));
    }
    return fmt::format("output {}: another NaN or zero", i);
  }
  return "";
}

void check_case(Session& session, Report& report, const OpCase& c, DType dtype, int64_t* refusals) {
  const std::string label = fmt::format("{} {}", c.label(), dtype_name(dtype));
  report.attempt(label, [&] {
    try {
      KernelImpl impl = device_kernel(session, c.op);
      if (find_accuracy(c.op)->one_result) {
        std::vector<Tensor> want = run_case(implementation(reference(), c.op, "ref"), c, dtype,
                                            team()),
                            got = run_case(impl, c, dtype, team());
        std::string where = first_difference(got, want);
        return report.equal(where.empty(), label + ": " + where);
      }
      Deviation d = deviation(impl, c, dtype, team());
      report.compare(d.error / kMostUnits, label + ": " + d.where);
    } catch (const Error& error) {
      if (!refused(error)) throw;
      ++*refusals;
    }
  });
}

void check_case(Session& session, Report& report, const InstructionCase& c) {
  const std::string label = fmt::format("{} {}", c.op, c.attrs.print());
  report.attempt(label, [&] {
    std::vector<Tensor> want = run_case(implementation(reference(), c.op, "ref"), c, team()),
                        got = run_case(device_kernel(session, c.op), c, team());
    std::string where = first_difference(got, want);
    report.equal(where.empty(), label + ": " + where);
  });
}

// All op and instruction cases; a device in software omits the large ones.
struct Cases {
  std::vector<OpCase> ops;
  std::vector<InstructionCase> instructions;
};

const Cases& all_cases(bool small) {
  static const Cases all = [&] {
    Cases made{op_cases(), instruction_cases()};
    if (small) return made;
    for (auto more : {wide_op_cases(), large_op_cases()})
      made.ops.insert(made.ops.end(), more.begin(), more.end());
    std::vector<InstructionCase> more = device_instruction_cases();
    made.instructions.insert(made.instructions.end(), more.begin(), more.end());
    return made;
  }();
  return all;
}

void conformance(Session& session, Report& report, const std::string& op) {
  int64_t refusals = 0;
  for (const OpCase& c : all_cases(session.small()).ops) {
    if (c.op != op) continue;
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16})
      check_case(session, report, c, dtype, &refusals);
  }
  for (const InstructionCase& c : all_cases(session.small()).instructions) {
    if (c.op == op) check_case(session, report, c);
  }
  report.figure("refused", static_cast<double>(refusals));
  if (report.cases() == 0) report.note("no case of these types is one that the device takes");
}

// Checks matrix products by the library: sizes of models, odd sizes, and rows that are not aligned.
void products(Session& session, Report& report, DType dtype) {
  struct Size {
    int64_t n, k, m;
  };
  std::vector<Size> sizes{{5, 7, 3}, {64, 64, 64}, {33, 130, 257}, {1, 768, 50}};
  if (!session.small())
    sizes.insert(sizes.end(),
                 {{130, 768, 520}, {129, 1000, 253}, {136, 3072, 264}, {2048, 64, 96}});
  uint64_t seed = 900;
  int64_t refusals = 0;
  for (const Size& s : sizes) {
    Tensor x = random_tensor(DS_DTYPE_F64, {s.n, s.k}, ++seed),
           w = random_tensor(DS_DTYPE_F64, {s.m, s.k}, ++seed),
           dy = random_tensor(DS_DTYPE_F64, {s.n, s.m}, ++seed),
           b = random_tensor(DS_DTYPE_F64, {s.m}, ++seed);
    check_case(session, report, {"linear", {}, {x, w}}, dtype, &refusals);
    check_case(session, report, {"linear", {}, {x, w, b}}, dtype, &refusals);
    check_case(session, report, {"linear_dx", {}, {dy, w}}, dtype, &refusals);
    check_case(session, report, {"linear_dw", {}, {dy, x}}, dtype, &refusals);
  }
  report.equal(refusals == 0, fmt::format("{} products were refused", refusals));
}

// Checks that repetitions of an op have equal bits while another queue is busy.
void again(Session& session, Report& report, const std::string& op) {
  const int repeats = session.small() ? 3 : 20;
  std::vector<OpCase> cases = session.small() ? op_cases() : wide_op_cases();
  if (!session.small()) {
    for (const OpCase& c : large_op_cases()) cases.push_back(c);
  }
  int used = 0;
  for (const OpCase& c : cases) {
    if (c.op != op || used == 3) continue;
    bool taken = true;
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      const std::string label = fmt::format("{} {}", c.label(), dtype_name(dtype));
      report.attempt(label, [&] {
        std::vector<Tensor> first;
        try {
          first = run_case(device_kernel(session, op), c, dtype, team());
        } catch (const Error& error) {
          if (!refused(error)) throw;
          taken = false;
          return;
        }
        for (int i = 0; i < repeats; ++i) {
          std::vector<Tensor> got =
              run_case(device_kernel_under_load(session, op), c, dtype, team());
          std::string where = first_difference(got, first);
          report.equal(where.empty(), fmt::format("{}, repetition {}: {}", label, i, where));
        }
      });
    }
    if (taken) ++used;
  }
}

// Checks attention with random cases. With tensor cores, attention has more code paths than the
// fixed cases cover.
void attention(Session& session, Report& report) {
  int64_t refusals = 0;
  for (uint64_t number = 1; number <= (session.small() ? 2 : 60); ++number) {
    for (const OpCase& c : draw_attention(number))
      check_case(session, report, c, number % 2 == 0 ? DS_DTYPE_BF16 : DS_DTYPE_F16, &refusals);
  }
  report.equal(refusals == 0, fmt::format("{} attentions were refused", refusals));
}
void sequences(Session& session, Report& report) {
  const RunCase run = [&](const OpCase& c, DType dtype) {
    return run_case(device_kernel(session, c.op), c, dtype, team());
  };
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32}) {
    for (bool causal : {true, false}) {
      report.attempt("sequences", [&] {
        const std::string differs = own_bits_of_sequences(run, dtype, causal);
        report.equal(differs.empty(), differs);
      });
    }
    report.attempt("sequences", [&] {
      const std::string differs = bounds_of_nan(run, dtype);
      report.equal(differs.empty(), differs);
    });
  }
}

void rows(Session& session, Report& report) {
  const RunCase run = [&](const OpCase& c, DType dtype) {
    return run_case(device_kernel(session, c.op), c, dtype, team());
  };
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32}) {
    report.attempt("rows", [&] {
      const std::string differs = own_bits_of_rows(run, dtype);
      report.equal(differs.empty(), differs);
    });
  }
}

// Checks a head that keeps its logits. They are rounded to 16 bits, sometimes to another neighbour,
// because another product may use another order of addition.
void head(Session& session, Report& report) {
  const RunCase run = [&](const OpCase& c, DType dtype) {
    return run_case(device_kernel(session, c.op), c, dtype, team());
  };
  for (auto [dtype, tolerance] : {std::pair{DS_DTYPE_BF16, 0x1p-5}, {DS_DTYPE_F16, 0x1p-8}}) {
    report.attempt("head", [&] {
      const std::string differs = kept_head(run, dtype, tolerance);
      report.equal(differs.empty(), differs);
    });
  }
}

// Returns the device's ops and instructions that have cases and whose results must be equal
// (`exact`), or only close.
std::vector<std::string> operations(bool exact) {
  std::set<std::string> with_cases;
  for (const OpCase& c : op_cases()) with_cases.insert(c.op);
  for (const InstructionCase& c : instruction_cases()) with_cases.insert(c.op);
  for (const InstructionCase& c : device_instruction_cases()) with_cases.insert(c.op);
  std::vector<std::string> out;
  for (std::string_view name : cuda::kernel_operations()) {
    const Accuracy* accuracy = find_accuracy(name);
    ensure(accuracy != nullptr, "kernels/accuracy has no row of '{}'", name);
    if (accuracy->one_result == exact && with_cases.contains(std::string(name)))
      out.emplace_back(name);
  }
  return out;
}

}  // namespace

void add_kernel_checks(std::vector<Check>& checks, bool) {
  for (bool exact : {true, false}) {
    for (const std::string& op : operations(exact)) {
      checks.push_back(
          {"A", exact ? "exact" : "near", op,
           exact ? "bits with those of the reference" : "values with the f64 reference",
           [op](Session& session, Report& report) { conformance(session, report, op); }});
    }
  }
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    checks.push_back(
        {"A", "products", std::string(dtype_name(dtype)), "products with the f64 reference",
         [dtype](Session& session, Report& report) { products(session, report, dtype); }});
  }
  checks.push_back({"A", "products", "head with kept logits",
                    "losses with those of linear and cross_entropy", head});
  checks.push_back({"A", "attention", "drawn at random",
                    "values of 16-bit operands with the f64 reference", attention});
  checks.push_back({"A", "attention", "sequences",
                    "bits of a sequence with those of it alone; rows with one key", sequences});
  checks.push_back(
      {"A", "near", "rows", "bits of a row with those of it alone; NaN of a row", rows});
  for (const char* op :
       {"linear", "linear_dx", "linear_dw", "linear_db", "attention", "attention_dx", "layer_norm",
        "layer_norm_dx", "layer_norm_dw", "rms_norm", "cross_entropy", "linear_cross_entropy",
        "linear_cross_entropy_dx", "embedding_dw"}) {
    checks.push_back({"A", "again", op, "bits of repetitions beside a busy queue with the first",
                      [op](Session& session, Report& report) { again(session, report, op); }});
  }
}

}  // namespace ds::test
