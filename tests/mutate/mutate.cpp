// ./run mutate: injects seeded faults into compiled steps. The verifier and the checker of
// certificates must both refuse a step with a dropped wait. One of them or a run must catch every
// other fault. Prints a line for each kind of fault and exits with 1 if one is missed. With
// `--quick`, only every tenth dropped wait is tried in a run. With `--separate`, only waits are
// dropped, on the separate device, and TSan must report each missing wait; use it in a build with
// TSan (tools/sanitize.sh run tsan mutate). DS_MUTATE_REPORTS=1 shows TSan's reports.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "../../tools/certificate/check.h"
#include "compile/certificate.h"
#include "compile/pipeline.h"
#include "core/base/error.h"
#include "mutate/faults.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

// Number of seeds of the separate device.
constexpr int kJitters = 3;

Point offloaded() {
  Point p;
  p.stage = 3;
  p.tier = Tier::nvme;
  p.groups = true;
  return p;
}

// Returns a point with quantized weights and gradients.
Point coded() {
  Point p = offloaded();
  p.tier = Tier::host;
  p.quantized_weights = true;
  p.gradient_bits = 4;
  p.err_beta = 0.8;
  return p;
}

// Returns a point whose embedding has a sparse gradient, stored as rows.
Point in_rows() {
  Point p = offloaded();
  p.stage = 2;
  p.tier = Tier::host;
  p.vocab = 400;
  p.tied = false;
  p.sparse = true;
  return p;
}

// Returns a point with shard groups of two ranks.
Point grouped() {
  Point p = offloaded();
  p.tier = Tier::device;
  p.world = 4;
  p.mics = 2;
  p.leaves = 8;
  return p;
}

// Returns what caught a changed step: the verifier, an error, or different bits under in-order or
// chaos execution; returns "" if nothing did.
std::string caught_by(const Point& point, const std::function<void(Program&)>& change,
                      const std::string& reference, int steps, int seeds) {
  for (int seed = 0; seed <= seeds; ++seed) {
    Point p = point;
    if (seed > 0) p.chaos = static_cast<uint64_t>(seed);
    try {
      if (train_threads(p, steps, change).hash != reference)
        return seed == 0 ? "bits" : "bits under chaos";
    } catch (const Error& e) {
      return e.status() == DS_ERROR_COMM ? "comm" : "error";
    }
  }
  return "";
}

// Returns what reveals a changed step on the separate device: different bits, an error, a crash, or
// a race that TSan reports (by a special exit status); returns "" if nothing does. Each attempt
// runs in a new process.
std::string caught_on_separate(const Point& point, const std::function<void(Program&)>& change,
                               const std::string& reference, int steps, int seeds) {
  // Exit status of TSan, unless TSAN_OPTIONS sets another.
  constexpr int kTsan = 66;
  for (int seed = 1; seed <= seeds; ++seed) {
    Point p = point;
    p.separate = static_cast<uint64_t>(seed);
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      if (!std::getenv("DS_MUTATE_REPORTS")) std::freopen("/dev/null", "w", stderr);
      try {
        _exit(train_threads(p, steps, change).hash == reference ? 0 : 1);
      } catch (const Error&) {
        _exit(2);
      }
    }
    int status = 0;
    ensure(child > 0 && waitpid(child, &status, 0) == child, "no process for seed {}", seed);
    if (!WIFEXITED(status)) return "fault";
    if (WEXITSTATUS(status) == kTsan) return "race";
    if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status) == 1 ? "bits" : "error";
  }
  return "";
}

bool verifier_refuses(const std::vector<Program>& ranks) {
  for (const Program& program : ranks) {
    try {
      verify(program, {});
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

// Returns whether the checker refuses the certificate of these programs, one for each rank.
bool certificate_refuses(const std::vector<Program>& ranks) {
  std::vector<std::vector<const Program*>> given;
  for (const Program& program : ranks) given.push_back({&program});
  return !::certificate::check(certificate(given)).empty();
}

// Returns the steps of all ranks, each changed by `change`.
std::vector<Program> changed_steps(const Point& p, const std::function<void(Program&)>& change) {
  std::vector<Program> steps;
  for (int r = 0; r < p.world; ++r) {
    steps.push_back(compile_plan(graph_of(p), config_of(p), r, p.world, Machine{}).step());
    change(steps.back());
  }
  return steps;
}

// Returns text such as "17 (all_gather h.1.full @4096)".
std::string named(const Program& p, InstrId i) {
  const Instr& in = p.instrs[i];
  const Buffer& b = p.buffers[in.operands.back().buffer];
  return fmt::format("{} ({} {} @{})", i, in.def->name, b.name, b.offset);
}

// Returns the compiled step of rank 0.
Program step_of(const Point& p) {
  Program step;
  train_threads(p, 1, [&](Program& program) {
    if (program.rank == 0) step = program;
  });
  return step;
}

// Number of waits, by class of hazard and by what caught their absence.
using Finds = std::map<std::string, std::map<std::string, int>>;

void print_finds(const Finds& finds) {
  for (const auto& [name, by] : finds) {
    fmt::print("  {:<45}", name);
    for (const auto& [what, count] : by) fmt::print(" {} {}", what, count);
    fmt::print("\n");
  }
}

std::string text_of(const Program& step, std::pair<size_t, size_t> at) {
  const Wait& wait = step.instrs[at.first].waits[at.second];
  return fmt::format("{} without its wait for {}{}", named(step, InstrId(at.first)),
                     named(step, wait.instr), wait.run_before ? " of the run before" : "");
}

std::string class_of(const Program& step, std::pair<size_t, size_t> at) {
  return hazard_of(step, InstrId(at.first), step.instrs[at.first].waits[at.second]);
}

int dropped_waits(bool quick) {
  Point p = offloaded();
  Program step = step_of(p);
  int total = 0, refused = 0, certified = 0, chaos = 0, tried = 0;
  Finds finds;
  std::vector<Program> steps = changed_steps(p, [](Program&) {});
  std::string reference = train_threads(p, 2).hash;
  std::vector<std::pair<size_t, size_t>> waits = waits_of(step);
  for (size_t k = 0; k < waits.size(); ++k) {
    ++total;
    std::map<std::string, int>& by = finds[class_of(step, waits[k])];
    ++by["waits"];
    Program broken = step;
    drop_wait(broken, waits[k]);
    bool verifier = verifier_refuses({broken});
    std::vector<Program> ranks = steps;
    if (waits_of(ranks[0]) == waits) drop_wait(ranks[0], waits[k]);
    bool certificate = certificate_refuses(ranks);
    refused += verifier, by["verifier"] += verifier;
    certified += certificate, by["certificate"] += certificate;
    if (quick && k % 10 != 0) continue;
    ++tried;
    auto drop = [&](Program& program) { drop_wait(program, waits[k]); };
    bool in_chaos = !caught_by(p, drop, reference, 2, 8).empty();
    chaos += in_chaos, by["chaos"] += in_chaos;
    if (!in_chaos) fmt::print("not seen under chaos: {}\n", text_of(step, waits[k]));
  }
  fmt::print(
      "dropped waits: {} of {} refused by the verifier, {} by the certificate's checker; of {} "
      "tried without them, {} caught within 8 chaos seeds\n",
      refused, total, certified, tried, chaos);
  print_finds(finds);
  return 2 * total - refused - certified;
}

// Drops waits on the separate device, in a build with TSan, which reports a missing wait as a race
// whatever the timing.
int dropped_waits_on_separate(bool quick) {
  // TSan does not see the memory accesses of libraries.
  setenv("DS_KERNELS", "ref", 1);
  Point p = offloaded();
  Program step = step_of(p);
  std::string reference = train_threads(p, 2).hash;
  std::string right = caught_on_separate(
      p, [](Program&) {}, reference, 2, kJitters);
  if (!right.empty()) fmt::print("with all its waits: {}\n", right);
  int tried = 0, seen = 0, races = 0;
  Finds finds;
  std::vector<std::pair<size_t, size_t>> waits = waits_of(step);
  for (size_t k = 0; k < waits.size(); k += quick ? 10 : 1) {
    auto drop = [&](Program& program) { drop_wait(program, waits[k]); };
    std::string found = caught_on_separate(p, drop, reference, 2, kJitters);
    std::map<std::string, int>& by = finds[class_of(step, waits[k])];
    ++by["waits"], ++by[found.empty() ? "nothing" : found], ++tried;
    seen += !found.empty(), races += found == "race";
    if (found.empty()) fmt::print("not seen on separate: {}\n", text_of(step, waits[k]));
  }
  fmt::print("dropped waits on the separate device: {} of {} seen, {} of them as a race\n", seen,
             tried, races);
  print_finds(finds);
  return tried - races + !right.empty();
}

// Drops all waits of one class of hazards at once, as if a pass did not know the class.
int dropped_classes(const Point& point) {
  std::vector<Program> steps = changed_steps(point, [](Program&) {});
  std::map<std::string, int> classes;
  for (const Program& p : steps) {
    for (InstrId i : p.instrs.ids()) {
      for (const Wait& wait : p.instrs[i].waits) ++classes[hazard_of(p, i, wait)];
    }
  }
  int missed = 0;
  for (const auto& [name, count] : classes) {
    std::vector<Program> broken = steps;
    for (Program& p : broken) {
      for (InstrId i : p.instrs.ids())
        std::erase_if(p.instrs[i].waits,
                      [&](const Wait& wait) { return hazard_of(p, i, wait) == name; });
    }
    bool verifier = verifier_refuses(broken), certificate = certificate_refuses(broken);
    missed += !verifier || !certificate;
    fmt::print("{:<50} {}{}\n", fmt::format("{} waits: {}", count, name),
               verifier ? "verifier " : "", certificate ? "certificate" : "");
  }
  fmt::print("classes of hazards: {} of {} refused by both\n",
             classes.size() - static_cast<size_t>(missed), classes.size());
  return missed + (classes.size() < 3);
}

int other_faults(const Point& point, const std::vector<Fault>& faults, int fewest) {
  constexpr int kSteps = 4;
  std::string reference = train_threads(point, kSteps).hash;
  int missed = 0, kinds = 0;
  for (const Fault& fault : faults) {
    bool applied = false;
    auto change = [&](Program& program) {
      bool done = fault.apply(program);
      applied = applied || done;
    };
    std::vector<Program> steps = changed_steps(point, change);
    bool verifier = verifier_refuses(steps), certificate = certificate_refuses(steps);
    std::string run = verifier || certificate ? "" : caught_by(point, change, reference, kSteps, 2);
    if (!applied) continue;
    ++kinds;
    bool caught = verifier || certificate || !run.empty();
    missed += !caught;
    fmt::print("{:<50} {}{}{}\n", fault.name, verifier ? "verifier " : "",
               certificate ? "certificate" : "", caught ? run : "MISSED");
  }
  fmt::print("other faults: {} of {} kinds caught\n", kinds - missed, kinds);
  return missed + (kinds < fewest);
}

}  // namespace
}  // namespace ds::test

int main(int argc, char** argv) {
  bool quick = false, separate = false;
  for (int i = 1; i < argc; ++i) {
    quick = quick || std::strcmp(argv[i], "--quick") == 0;
    separate = separate || std::strcmp(argv[i], "--separate") == 0;
  }
  if (separate) return ds::test::dropped_waits_on_separate(quick) == 0 ? 0 : 1;
  int missed = ds::test::dropped_waits(quick);
  missed += ds::test::dropped_classes(ds::test::offloaded());
  missed += ds::test::other_faults(ds::test::grouped(), ds::test::group_faults(), 6);
  missed += ds::test::other_faults(ds::test::offloaded(), ds::test::faults(), 10);
  missed += ds::test::other_faults(ds::test::coded(), ds::test::code_faults(), 6);
  missed += ds::test::other_faults(ds::test::in_rows(), ds::test::row_faults(), 4);
  return missed == 0 ? 0 : 1;
}
