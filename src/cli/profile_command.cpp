// Implements `libds profile`. The model comes from a configuration or from a Hugging Face folder.
// If --micro-batch, --seq or --dtype is not given, the library's default applies.
#include <fmt/core.h>

#include <cstdint>

#include "cli/commands.h"

namespace ds::cli {
namespace {

struct ProfileArgs {
  ConfigArgs config;
  std::string model, dtype;
  // 0: the option was not given.
  int64_t micro_batch = 0, sequence = 0;
  int32_t threads = 0, steps = 3;
  bool by_instruction = false, json = false;
};

// Returns the options for ds_run_profile() as JSON.
std::string options_of(const ProfileArgs& args) {
  std::string out = fmt::format(R"({{"threads": {}, "steps": {}, "by": {})", args.threads,
                                args.steps, quoted(args.by_instruction ? "instruction" : "op"));
  if (args.micro_batch > 0) out += fmt::format(R"(, "micro_batch": {})", args.micro_batch);
  if (args.sequence > 0) out += fmt::format(R"(, "sequence": {})", args.sequence);
  if (!args.dtype.empty()) out += fmt::format(R"(, "dtype": {})", quoted(args.dtype));
  return out + "}";
}

// Profiles on all ranks; rank 0 prints.
void profile(const ProfileArgs& args) {
  std::string config = config_of(args.config), options = options_of(args);
  Comm comm = join();
  std::string text = text_of([&](char** out_text) {
    return ds_run_profile(comm.get(), args.config.file.empty() ? nullptr : config.c_str(),
                          args.model.empty() ? nullptr : args.model.c_str(), options.c_str(),
                          args.json ? DS_FORMAT_JSON : DS_FORMAT_TEXT, out_text);
  });
  if (ds_comm_rank(comm.get()) <= 0) write_out(text);
}

}  // namespace

void add_profile(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("profile", "Say where the time of a training step goes");
  auto args = std::make_shared<ProfileArgs>();
  command->add_option("--config", args->config.file, "JSON configuration");
  add_config_options(*command, args->config, false);
  command->add_option("--model", args->model,
                      "Hugging Face folder or GGUF file, in place of the configuration's model");
  command->add_option("--micro-batch", args->micro_batch, "Sequences of a micro-batch")
      ->check(integer_range(1, INT32_MAX))
      ->default_str("");
  command->add_option("--seq", args->sequence, "Tokens of a sequence")
      ->check(integer_range(1, INT32_MAX))
      ->default_str("");
  command->add_option("--dtype", args->dtype, "Compute type")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--threads", args->threads, "Compute threads of a rank; 0: cores / ranks")
      ->check(integer_range(0, 1024));
  command->add_option("--steps", args->steps, "Measured steps")->check(integer_range(1, 1000));
  command->add_flag("--by-instr", args->by_instruction, "A line for each instruction");
  command->add_flag("--json", args->json, "Print JSON");
  command->footer("Example: libds profile --config examples/train.json --steps 5");
  command->callback([args] {
    if (args->config.file.empty() && args->model.empty())
      throw CLI::RequiredError("profile: --config or --model");
    if (args->config.file.empty() && !args->config.set.empty())
      throw CLI::RequiredError("profile: --config, which --set changes");
    profile(*args);
  });
}

}  // namespace ds::cli
