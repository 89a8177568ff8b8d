// Registers the keys of a run's reports. Most have the names that DeepSpeed uses. Unlike in
// DeepSpeed, TensorBoard and CSV files are on by default; they are written to the run folder.
#include "monitor/keys.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/collective_names.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

// Reads the steps between lines. DeepSpeed configurations express "never" by Infinity, as Python
// writes it, or by a number of steps that no run reaches.
int64_t read_steps_per_print(const std::string& path, const Json& given) {
  const bool never = given.is_infinity() ? !given.is_negative_infinity()
                                         : given.is_number() && given.number() > kMost;
  return never ? kNeverPrint : read_value<int64_t>(path, given, positive);
}

// Reads the name of a folder below output_path. It must stay inside: it must not be an absolute
// path or have a component "..".
std::string read_folder_inside(const std::string& path, const Json& given) {
  std::string name = read_value<std::string>(path, given);
  std::string_view rest = name;
  bool inside = !name.starts_with("/") && name.find('\0') == name.npos;
  while (inside && !rest.empty()) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    inside = rest.substr(0, slash) != "..";
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (inside) return name;
  refuse(path, "must name a folder below output_path, without \"..\" and not absolute, got {}",
         Json(name).dump());
}

struct MonitorDocs {
  const char *enabled, *output_path, *job_name;
};

// Adds the keys of one monitor. All monitors have the same struct but different documentation.
void add_monitor(KeyList& keys, const std::string& section, MonitorConfig MonitorKeys::*monitor,
                 const MonitorDocs& docs) {
  KeyRows rows(keys, section + ".",
               [monitor](auto& c) -> auto& { return c.template get<MonitorKeys>().*monitor; });
  rows.add("enabled", &MonitorConfig::enabled, docs.enabled);
  rows.add("output_path", &MonitorConfig::output_path, docs.output_path);
  rows.row("job_name", &MonitorConfig::job_name, read_folder_inside, write_value<std::string>,
           KeyKind::text, docs.job_name);
}

void add_comms_logger(KeyList& keys) {
  KeyRows rows(keys, "comms_logger.",
               [](auto& c) -> auto& { return c.template get<MonitorKeys>().comms_logger; });
  rows.add("enabled", &CommsLoggerConfig::enabled,
           "collectives are timed by operation and size ([communication.md](communication.md)); "
           "`libds train` ends with the table and leaves communication.csv in the run folder");
  rows.add("prof_all", &CommsLoggerConfig::all,
           "all operations are timed; false: only those of `prof_ops`");
  rows.add("prof_ops", &CommsLoggerConfig::operations,
           "the operations to time: `all_reduce`, `all_gather`, ...; DeepSpeed's names, such as "
           "`all_gather_into_tensor`, `all_to_all_single` and `irecv`, are read as ours")
      // logged_operations() refuses unknown names.
      .then([](Config& c) { logged_operations(c.get<MonitorKeys>().comms_logger.operations); });
}

void add_flops_profiler(KeyList& keys) {
  KeyRows rows(keys, "flops_profiler.",
               [](auto& c) -> auto& { return c.template get<MonitorKeys>().flops_profiler; });
  using F = FlopsProfilerConfig;
  rows.add("enabled", &F::enabled,
           "a report of one step by module: parameters, MACs and operations of a forward pass as "
           "DeepSpeed counts them, latency, rates ([profile.md](profile.md#by-module))");
  rows.only(&F::enabled);
  rows.add("profile_step", &F::profile_step, "the step that is reported", positive);
  rows.add("module_depth", &F::module_depth,
           "lists of the largest modules go down to this depth; -1: to the deepest",
           Limits{.low = -1, .high = kMost});
  rows.add("top_modules", &F::top_modules, "the number of modules in each list", positive);
  rows.add("detailed", &F::detailed, "the report includes the tree of all modules");
  rows.add("output_file", &F::output_file,
           "a file for the report, which otherwise goes to the run's output or to the log");
  rows.add("recompute_fwd_factor", &F::recompute_fwd_factor,
           "the number of forward passes that recomputation adds to the operations of a step",
           Limits{.low = 0, .high = 100});
}

}  // namespace

void monitor_keys(KeyList& keys) {
  KeyRows rows(keys, "", of_section<MonitorKeys>);
  rows.row("steps_per_print", &MonitorKeys::steps_per_print, read_steps_per_print,
           [](int64_t steps) { return steps == kNeverPrint ? Json::infinity() : Json(steps); },
           KeyKind::number,
           "steps between the lines that a run without a terminal prints; with `Infinity`, or a "
           "number above 2147483647, it prints only the first and the last step",
           {.low = 1});
  add_monitor(
      keys, "tensorboard", &MonitorKeys::tensorboard,
      {"write event files into the run folder. A resumed run begins a file with a START event, at "
       "which TensorBoard drops the steps that were made after the checkpoint: each step is shown "
       "once",
       "folder of the jobs: event files go into `output_path`/`job_name` instead of the run folder",
       "with `output_path`: the folder of this job inside it, a relative path without `..`"});
  add_monitor(
      keys, "csv_monitor", &MonitorKeys::csv_monitor,
      {"write metrics.csv into the run folder: a line for each step that updated the model, and "
       "for each evaluation",
       "write DeepSpeed's files, too: `output_path`/`job_name`/Train_Samples_train_loss.csv, "
       "..._lr.csv, ..._grad_norm.csv, with a loss scale ..._loss_scale.csv, and "
       "Eval_Samples_eval_loss.csv. Each line has the number of samples and the value",
       "with `output_path`: the folder of this job inside it, a relative path without `..`"});
  add_monitor(
      keys, "jsonl_monitor", &MonitorKeys::jsonl_monitor,
      {"write metrics.jsonl, which has one object, on a line of its own, for each step and each "
       "evaluation. A step that updated nothing has `\"skipped\": true` and no times; its loss is "
       "also in DeepSpeed's files and in TensorBoard's",
       "folder of the jobs: metrics.jsonl goes into `output_path`/`job_name` instead of the run "
       "folder",
       "with `output_path`: the folder of this job inside it, a relative path without `..`"});
  add_comms_logger(keys);
  rows.add("wall_clock_breakdown", &MonitorKeys::wall_clock_breakdown,
           "every `steps_per_print` steps rank 0 prints the mean times of these steps: forward, "
           "backward, update, communication, and forward and backward by module "
           "([profile.md](profile.md#by-module))");
  add_flops_profiler(keys);
}

}  // namespace ds
