// Implements `libds generate`. On a terminal, the text is printed token by token as the library
// generates it. Otherwise it is printed at the end, so that after a failure a pipe does not contain
// half of it.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "launch/watch.h"

namespace ds::cli {
namespace {

struct GenerateArgs {
  std::string model, prompt, dtype, list, device = "cpu", use, base;
  // NAME=DIR of each adapter.
  std::vector<std::string> adapters;
  // The token ids in `list`.
  std::vector<int32_t> ids;
  int32_t tokens = 256, threads = 0, stage = -1;
  int64_t top_k = 0, seed = 0;
  double temperature = 0.8;
  bool ignore_eos = false;
};

// Returns the options for ds_run_generate() as JSON.
std::string options_of(const GenerateArgs& args) {
  std::string text =
      fmt::format(R"({{"tokens": {}, "temperature": {}, "top_k": {}, "seed": {}, "threads": {})",
                  args.tokens, args.temperature, args.top_k, args.seed, args.threads);
  std::string ids;
  for (int32_t id : args.ids) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
  if (!ids.empty()) text += ", \"ids\": [" + ids + "]";
  if (!args.dtype.empty()) text += ", \"dtype\": " + quoted(args.dtype);
  text += ", \"device\": " + quoted(args.device);
  if (args.stage >= 0) text += fmt::format(", \"stage\": {}", args.stage);
  std::string adapters;
  for (const std::string& adapter : args.adapters)
    adapters += (adapters.empty() ? "" : ", ") + quoted(adapter);
  if (!adapters.empty()) text += ", \"adapters\": [" + adapters + "]";
  if (!args.base.empty()) text += ", \"base\": " + quoted(args.base);
  if (!args.use.empty()) text += ", \"adapter\": " + quoted(args.use);
  if (args.ignore_eos) text += ", \"ignore_eos\": true";
  return text + "}";
}

// The text so far. If `live` is set, it is also printed as it arrives.
struct Output {
  bool live = false;
  std::string text;
  // The error of a failed write, stored here because exceptions must not leave the callback.
  std::string failure;
};

void put(Output& output, const std::string& part) {
  output.text += part;
  if (!output.live) return;
  try {
    write_out(visible(part));
  } catch (const Failure& failure) {
    output.failure = failure.what();
  }
}

// Ends the text if it cannot be printed.
extern "C" ds_status take_part(const char* part, void* user_data) {
  Output& output = *static_cast<Output*>(user_data);
  put(output, part);
  return output.failure.empty() ? DS_OK : DS_ERROR_USER;
}

// Generates on all ranks of the job together; rank 0 prints.
void generate(const GenerateArgs& args) {
  watch_launcher();
  Comm comm = join();
  bool first = ds_comm_rank(comm.get()) <= 0;
  Output output{first && isatty(STDOUT_FILENO) == 1, {}, {}};
  // The library returns only the continuation, so the prompt is printed first.
  put(output, args.prompt);
  text_of([&](char** out_text) {
    ds_status status = ds_run_generate(comm.get(), args.model.c_str(), args.prompt.c_str(),
                                       options_of(args).c_str(), take_part, &output, out_text);
    if (!output.failure.empty()) throw Failure(output.failure);
    return status;
  });
  if (first) write_out((output.live ? "" : output.text) + "\n");
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a run or a model");
  auto args = std::make_shared<GenerateArgs>();
  command
      ->add_option("model", args->model,
                   "Run folder, checkpoint, folder of a Hugging Face model, or GGUF file")
      ->required();
  CLI::Option* prompt = command->add_option("--prompt", args->prompt, "Text to continue");
  CLI::Option* ids = command
                         ->add_option("--ids", args->list,
                                      "Token numbers instead, for example 1,2,3; prints numbers")
                         ->excludes(prompt);
  command->add_option("--tokens", args->tokens, "Tokens to add")->check(integer_range(1, 1 << 20));
  command->add_option("--temperature", args->temperature, "0: always the most probable token")
      ->check(number_range(0, 1e6));
  command->add_option("--top-k", args->top_k, "Draw among this many; 0: all")
      ->check(integer_range(0, INT32_MAX));
  command->add_option("--seed", args->seed, "Seed of the draws")
      ->check(integer_range(0, INT64_MAX));
  command
      ->add_option("--dtype", args->dtype,
                   "f32, bf16 or f16; else a run's own, f32 for a model folder")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--threads", args->threads, "Compute threads of a rank; 0: cores / ranks")
      ->check(integer_range(0, 1024));
  command->add_option("--stage", args->stage, "ZeRO stage: 3 shards the parameters over the ranks")
      ->default_str("a run's own")
      ->check(integer_range(0, 3));
  command->add_option("--device", args->device, "The device of the engine: cpu or cuda:N")
      ->check(utf8_text());
  command
      ->add_option("--adapter", args->adapters,
                   "NAME=DIR: an adapter by PEFT or libds on a model folder; may be repeated")
      ->allow_extra_args(false)
      ->check(utf8_text());
  command
      ->add_option("--use", args->use,
                   "The adapter to continue with, by name; base: the model without adapters")
      ->check(utf8_text());
  command
      ->add_option("--base", args->base,
                   "The model folder of a run with an adapter, if it has moved")
      ->check(utf8_text());
  command->add_flag("--ignore-eos", args->ignore_eos, "Continue after the model's end of text");
  command->footer(
      "Examples:\n"
      "  libds generate runs/001 --prompt \"The \" --tokens 200\n"
      "  libds generate MODEL_DIR --ids 1,2,3 --temperature 0");
  command->callback([args, prompt, ids] {
    if (ids->count() > 0) args->ids = token_list("ids", args->list);
    if (prompt->count() == 0 && args->ids.empty())
      throw CLI::RequiredError("generate: --prompt or --ids");
    generate(*args);
  });
}

}  // namespace ds::cli
