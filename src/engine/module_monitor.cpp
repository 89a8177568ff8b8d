// Problem. DeepSpeed's users read times and operations by module; a step in libds is a sequence of
// instructions. The accounting of `libds profile` adds up the times of traced steps by instruction
// (exec/step_times.h). An instruction knows the node of the graph that it computes, and names of
// nodes are paths of modules (core/graph/module_cost.h). So a module's time is the sum over the
// instructions below its path; collectives, copies and the update belong to no module. Cost: the
// spans of a step are copied and added up, which takes microseconds per instruction.
#include "engine/module_monitor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/path_kind.h"
#include "io/file.h"
#include "monitor/keys.h"

namespace ds {
namespace {

// If a breakdown had more lines than this, the deepest modules are left out, a whole depth at a
// time. Depths 0 and 1 always stay.
constexpr size_t kMostLines = 60;

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

// Returns a text like "7.66 M" with a prefix for powers of ten, as DeepSpeed does.
std::string scaled(double value) {
  const std::pair<double, const char*> units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [unit, name] : units) {
    if (value >= unit) return fmt::format("{:.2f} {}", value / unit, name);
  }
  return fmt::format("{:.0f}", value);
}

// Returns "" if the file can probably be written, else the reason.
std::string why_not_writable(const std::string& file) {
  if (std::filesystem::is_directory(file)) return "it is a folder";
  if (std::string hint = made_hint(file); !hint.empty()) return hint.substr(2);
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  return access(folder.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
}

std::string name_of(const Module& module) { return module.path.empty() ? "(model)" : module.path; }

std::string last_component(const Module& module) {
  return module.path.empty() ? "(model)" : module.path.substr(module.path.rfind('.') + 1);
}

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::string per_second(double flops, double seconds) {
  return seconds > 0 ? scaled(flops / seconds) + "FLOPS" : "-";
}

int deepest(const StepBreakdown& b) {
  int depth = 0;
  for (const ModuleTimes& m : b.modules) depth = std::max(depth, m.module.depth);
  return depth;
}

// Returns the modules of one depth with the largest values, as "NAME 1.2 K, ...".
template <typename Value, typename Text>
std::string longest(const StepBreakdown& b, int depth, int64_t count, Value value, Text text) {
  std::vector<const ModuleTimes*> found;
  for (const ModuleTimes& m : b.modules) {
    if (m.module.depth == depth) found.push_back(&m);
  }
  std::stable_sort(found.begin(), found.end(), [&](const ModuleTimes* x, const ModuleTimes* y) {
    return value(*x) > value(*y);
  });
  if (std::ssize(found) > count) found.resize(static_cast<size_t>(count));
  std::string out;
  for (const ModuleTimes* m : found)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name_of(m->module), text(value(*m)));
  return out;
}

}  // namespace

StepBreakdown step_breakdown(const StepTimes& times, const Graph& compiled, const Graph& forward,
                             int64_t n) {
  StepBreakdown out;
  std::map<std::string, size_t, std::less<>> place;
  for (Module& module : modules_of(forward, n)) {
    place.emplace(module.path, out.modules.size());
    out.modules.push_back({std::move(module)});
  }
  const double steps = std::max(1, times.steps());
  double busy = 0;
  for (InstrId id : times.program().instrs.ids()) {
    const Instr& instr = times.program().instrs[id];
    const double seconds = times.seconds(id.index()) / steps;
    busy += seconds;
    const Phase phase = times.program().phase(instr);
    if (instr.queue == Queue::comm || instr.queue == Queue::copy) {
      out.communication += seconds;
      continue;
    }
    const bool ahead = phase == Phase::forward,
               back = phase == Phase::backward || phase == Phase::backward_last;
    (ahead ? out.forward : back ? out.backward : out.step) += seconds;
    if (!instr.node.exists() || !(ahead || back)) continue;
    // Adds the time to the module of this path, if the model has it, and to all modules above it.
    std::string path = module_of(compiled, instr.node);
    for (;;) {
      if (auto at = place.find(path); at != place.end())
        (ahead ? out.modules[at->second].forward : out.modules[at->second].backward) += seconds;
      if (path.empty()) break;
      const size_t dot = path.rfind('.');
      path.resize(dot == path.npos ? 0 : dot);
    }
  }
  out.total = times.total() / steps;
  // The difference can be negative, because the queues of a device overlap.
  out.between = std::max(out.total - busy, 0.0);
  return out;
}

std::string breakdown_text(const StepBreakdown& b, int64_t step, int steps) {
  std::string out = fmt::format(
      "wall_clock_breakdown after step {}, mean of {} steps on rank 0, ms: step {}; computing "
      "forward {}, backward {}, update {}; communication and copies {}, between instructions {}\n",
      step, steps, milliseconds(b.total), milliseconds(b.forward), milliseconds(b.backward),
      milliseconds(b.step), milliseconds(b.communication), milliseconds(b.between));
  int depth = deepest(b);
  auto lines = [&] {
    return std::count_if(b.modules.begin(), b.modules.end(),
                         [&](const ModuleTimes& m) { return m.module.depth <= depth; });
  };
  while (depth > 1 && lines() > static_cast<std::ptrdiff_t>(kMostLines)) --depth;
  size_t width = 6;
  for (const ModuleTimes& m : b.modules) {
    if (m.module.depth <= depth)
      width = std::max(width,
                       last_component(m.module).size() + 2 * static_cast<size_t>(m.module.depth));
  }
  out += fmt::format("{:<{}} {:>11} {:>11} {:>9}\n", "module", width, "forward", "backward",
                     "of step");
  for (const ModuleTimes& m : b.modules) {
    if (m.module.depth > depth) continue;
    const std::string name =
        std::string(2 * static_cast<size_t>(m.module.depth), ' ') + last_component(m.module);
    out += fmt::format("{:<{}} {:>11} {:>11} {:>9}\n", name, width, milliseconds(m.forward),
                       milliseconds(m.backward), share(m.forward + m.backward, b.total));
  }
  return out;
}

std::string flops_text(const StepBreakdown& b, const FlopsProfilerConfig& config,
                       const FlopsContext& context) {
  const ModuleTimes& model = b.modules.at(0);
  const auto micros = static_cast<double>(context.accumulation);
  const double forward = b.forward / micros, backward = b.backward / micros;
  const ModuleCost& cost = model.module.cost;
  // DeepSpeed's formula: the backward pass counts as two forward passes, and recomputation as
  // recompute_fwd_factor of one.
  const double training = cost.flops * (3 + config.recompute_fwd_factor);
  std::string out =
      fmt::format("flops profiler at step {} on rank 0; a pass is one micro-step\n", context.step);
  auto row = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<58}{}\n", name, value);
  };
  row("ranks", std::to_string(context.ranks));
  row("micro-batch of a rank, samples", std::to_string(context.micro_batch));
  row("parameters", scaled(static_cast<double>(model.module.params)));
  row("forward MACs", scaled(cost.macs) + "MACs");
  row("forward operations", scaled(cost.flops));
  row("forward and backward operations, backward as 2 forward", scaled(training));
  row("forward latency", milliseconds(forward) + " ms");
  row("backward latency", milliseconds(backward) + " ms");
  row("update latency", milliseconds(b.step) + " ms");
  row("step latency, with communication", milliseconds(b.total) + " ms");
  row("forward rate of a rank", per_second(cost.flops, forward));
  row("forward and backward rate of a rank", per_second(training, forward + backward));
  row("rate of a rank in the whole step", per_second(training * micros, b.total));
  const auto samples =
      static_cast<double>(context.micro_batch * context.accumulation * context.ranks);
  row("samples per second", b.total > 0 ? fmt::format("{:.2f}", samples / b.total) : "-");
  const int depth = config.module_depth < 0 ? deepest(b) : static_cast<int>(config.module_depth);
  out += "largest modules of each depth\n";
  for (int d = 0; d <= std::min(depth, deepest(b)); ++d) {
    auto list = [&](const char* measure, auto value, auto text) {
      out += fmt::format("  depth {} {:<11} {}\n", d, measure,
                         longest(b, d, config.top_modules, value, text));
    };
    list(
        "parameters", [](const ModuleTimes& m) { return static_cast<double>(m.module.params); },
        scaled);
    list(
        "MACs", [](const ModuleTimes& m) { return m.module.cost.macs; }, scaled);
    list(
        "latency", [&](const ModuleTimes& m) { return m.forward / micros; },
        [](double seconds) { return milliseconds(seconds) + " ms"; });
  }
  if (!config.detailed) return out;
  out += "modules: parameters, share; MACs, share; forward latency, share; forward rate\n";
  for (const ModuleTimes& m : b.modules) {
    const Module& module = m.module;
    out += fmt::format(
        "{}{}: {}, {}; {}MACs, {}; {} ms, {}; {}\n",
        std::string(2 * static_cast<size_t>(module.depth), ' '), last_component(module),
        scaled(static_cast<double>(module.params)),
        share(static_cast<double>(module.params), static_cast<double>(model.module.params)),
        scaled(module.cost.macs), share(module.cost.macs, cost.macs),
        milliseconds(m.forward / micros), share(m.forward, b.forward),
        per_second(module.cost.flops, m.forward / micros));
  }
  return out;
}

ModuleMonitor::ModuleMonitor(const MonitorKeys& keys, const FlopsContext& context, int rank,
                             Trace& trace, bool clears, Tell tell)
    : keys_(keys),
      context_(context),
      rank_(rank),
      trace_(trace),
      clears_(clears),
      tell_(std::move(tell)) {
  const FlopsProfilerConfig& flops = keys.flops_profiler;
  const std::string& file = flops.output_file;
  if (rank != 0 || !flops.enabled || file.empty()) return;
  const std::string obstacle = why_not_writable(file);
  if (obstacle.empty()) {
    report_ = file;
  } else {
    log_line(
        LogLevel::warning,
        fmt::format("flops_profiler.output_file: '{}' cannot be written ({}); the report is logged",
                    file, obstacle));
  }
}

void ModuleMonitor::begin() {
  if (ended_) return;
  if (clears_) trace_.take();
  // Spans from here on belong to the step.
  mark_ = trace_.count();
  begin_ns_ = now_ns();
}

void ModuleMonitor::end(const Program& program, int64_t step, const Graph& compiled,
                        const Graph& forward, int64_t n) {
  if (ended_) return;
  try {
    add(program, step, compiled, forward, n);
  } catch (const Error& error) {
    ended_ = true;
    if (rank_ == 0)
      log_line(LogLevel::warning, fmt::format("no more reports by module: {}", error.what()));
  }
}

void ModuleMonitor::forget() { times_.reset(); }

void ModuleMonitor::add(const Program& program, int64_t step, const Graph& compiled,
                        const Graph& forward, int64_t n) {
  const int64_t end_ns = now_ns();
  const std::vector<Trace::Span> spans = trace_.from(mark_);
  if (!times_ || &times_->program() != &program) times_.emplace(program);
  times_->add(spans, begin_ns_, end_ns);
  const FlopsProfilerConfig& flops = keys_.flops_profiler;
  if (flops.enabled && step == flops.profile_step) {
    // The profile covers only this step, while times_ covers all steps since the last breakdown.
    StepTimes one(program);
    one.add(spans, begin_ns_, end_ns);
    context_.step = step;
    const std::string text = flops_text(step_breakdown(one, compiled, forward, n), flops, context_);
    report_.empty() ? tell(text) : write_file_atomic(report_, text);
  }
  if (keys_.wall_clock_breakdown && keys_.steps_per_print != kNeverPrint &&
      step % keys_.steps_per_print == 0) {
    tell(breakdown_text(step_breakdown(*times_, compiled, forward, n), step, times_->steps()));
    times_.reset();
  }
}

void ModuleMonitor::tell(const std::string& text) const {
  if (rank_ != 0) return;
  if (tell_) return tell_(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    log_line(LogLevel::info, std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace ds
