// Implements `libds train`. The process runs one rank. Options are applied to the configuration
// file as a patch. Signals set a flag that ends the run after the current step. Under `libds launch
// --restarts`, each start of the job continues the same run.
#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "launch/job.h"
#include "launch/watch.h"

namespace ds::cli {
namespace {

volatile int32_t stop_requested = 0;
std::atomic_flag signalled = ATOMIC_FLAG_INIT;

// Sets the flag that the run checks between steps or, at the second signal, ends the process by
// this signal once the handler has returned. Two threads may get two signals at the same time.
extern "C" void request_stop(int number) {
  if (signalled.test_and_set()) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  stop_requested = 1;
}

// The first SIGINT or SIGTERM requests the run to save and end; the second signal of either kind
// kills the process, as it does under the launcher.
void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct TrainArgs {
  ConfigArgs config;
  std::string dir, resume, base;
  std::vector<std::string> data;
  int64_t steps = -1;
  bool quiet = false;
};

// Returns the command line as a patch of the configuration.
std::string patch_of(const TrainArgs& args) {
  std::string run, data;
  if (!args.dir.empty()) run += "\"dir\":" + quoted(args.dir);
  if (args.steps >= 0) run += fmt::format("{}\"steps\":{}", run.empty() ? "" : ",", args.steps);
  for (const std::string& path : args.data) data += (data.empty() ? "" : ",") + quoted(path);
  std::string patch = "{\"run\":{" + run + "}";
  if (!data.empty()) patch += ",\"data\":{\"paths\":[" + data + "]}";
  if (!args.base.empty()) patch += ",\"model\":{\"folder\":" + quoted(args.base) + "}";
  return patch + "}";
}

// Returns the configuration of a run that `libds launch --restarts` may start again: every start of
// the job has the same run folder and continues the run in it.
std::string restartable(const std::string& config) {
  const char* name = std::getenv("DS_RUN");
  if (std::getenv("DS_RESTART") == nullptr || name == nullptr) return config;
  // The folder's name is only a default, so `config` is merged over it; run.resume is merged over
  // `config`.
  std::string own =
      merged("{\"run\":{\"dir\":" + quoted(std::string("runs/") + name) + "}}", config);
  return merged(own, "{\"run\":{\"resume\":" + quoted(name) + "}}");
}

// Throws if --resume names a checkpoint under `libds launch --restarts`, since a restart continues
// from the newest checkpoint.
void refuse_checkpoint(const std::string& resume) {
  const std::filesystem::path path(resume);
  if (std::getenv("DS_RESTART") == nullptr || path.parent_path().filename() != "checkpoints")
    return;
  throw CLI::ValidationError(
      "train",
      fmt::format("--resume must name a run folder under libds launch --restarts, got '{}': a "
                  "restart goes on with the newest checkpoint",
                  resume));
}

// Trains and returns the exit code.
int train(const TrainArgs& args) {
  std::string config = merged(config_of(args.config), patch_of(args));
  if (args.resume.empty()) config = restartable(config);
  const char* resume = args.resume.empty() ? nullptr : args.resume.c_str();
  // If its launcher has ended, nobody can stop this rank any more, so it then ends by itself.
  watch_launcher();
  Comm comm = join(text_of(
      [&](char** out_text) { return ds_run_communicator(config.c_str(), resume, out_text); }));
  // Signals are caught only from here on: before the group has joined, a signal should simply end
  // the command.
  catch_signals();
  ds_status status = ds_run_train(comm.get(), config.c_str(), resume, args.quiet ? 1 : 0, nullptr,
                                  nullptr, &stop_requested, nullptr);
  // The run has already reported that it was stopped.
  if (status == DS_ERROR_USER) return kStoppedCode;
  check(status);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("train", "Train a model on text and write a run folder");
  auto args = std::make_shared<TrainArgs>();
  command->add_option("--config", args->config.file,
                      "JSON configuration (docs/reference/config.md)");
  add_config_options(*command, args->config);
  command->add_option("--data", args->data, "Files or folders of text, instead of data.paths")
      ->check(utf8_text());
  command->add_option("--dir", args->dir, "Run folder, instead of run.dir; default runs/NNN")
      ->check(utf8_text());
  command->add_option("--steps", args->steps, "Optimizer steps, instead of run.steps")
      ->default_str("")
      ->check(integer_range(0, INT32_MAX));
  command->add_option("--resume", args->resume,
                      "Run folder to go on with, or a checkpoint RUN/checkpoints/NAME");
  CLI::Option* resume = command->get_option("--resume");
  command
      ->add_option("--base", args->base,
                   "With --resume: the model folder of a run with an adapter, if it has moved")
      ->needs(resume)
      ->check(utf8_text());
  command->add_flag("--quiet", args->quiet, "Plain lines instead of a progress bar");
  command->footer(
      "Examples:\n"
      "  libds train --config examples/train.json --data FOLDER\n"
      "  libds train --config ds_config.json --model MODEL_DIR --data FOLDER --set run.steps=50\n"
      "  libds launch -n 2 libds train --config examples/train.json --data FOLDER\n"
      "  libds train --resume runs/001\n"
      "Exit codes: 0 finished, 1 failed, 2 wrong usage, 75 stopped and saved.");
  command->callback([args, &code] {
    if (args->config.file.empty() && args->resume.empty()) {
      throw CLI::RequiredError("train: --config or --resume");
    }
    const bool moved = !args->dir.empty() || !args->data.empty() || !args->config.model.empty();
    if (!args->resume.empty() && moved) {
      throw CLI::ValidationError(
          "train",
          "--resume keeps the run's folder, model and data: leave out --dir, --model, --data");
    }
    refuse_checkpoint(args->resume);
    code = train(*args);
  });
}

}  // namespace ds::cli
