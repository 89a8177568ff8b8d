#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cli/commands.h"

namespace ds::cli {
namespace {

// Values of the command line; "" or 0 means that the option was not given.
struct ConvertArgs {
  std::string from, target, form = "libds", tag, like;
  int64_t file_bytes = 0;
  bool step_tensor = false;
};

// Converts, and prints the description that the library returns. --tag, --like and --file-bytes are
// passed only if they were given, so that the library applies its defaults.
int convert(const ConvertArgs& args) {
  std::string options =
      fmt::format(R"({{"to": {}, "step_tensor": {})", quoted(args.form), args.step_tensor);
  if (!args.tag.empty()) options += ", \"tag\": " + quoted(args.tag);
  if (!args.like.empty()) options += ", \"like\": " + quoted(args.like);
  if (args.file_bytes > 0) options += fmt::format(", \"file_bytes\": {}", args.file_bytes);
  options += "}";
  write_out(text_of([&](char** out_text) {
              return ds_checkpoint_convert(args.from.c_str(), args.target.c_str(), options.c_str(),
                                           out_text);
            }) +
            "\n");
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, int& code) {
  auto args = std::make_shared<ConvertArgs>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "Converts a checkpoint of DeepSpeed or libds; nothing that its pickles name is run");
  command->add_option("FROM", args->from, "folder that DeepSpeed or libds saved")->required();
  command->add_option("TO", args->target, "folder to write")->required();
  command
      ->add_option(
          "--to", args->form,
          "libds: one more checkpoint below TO; universal: for DeepSpeed's load_universal; fp32: "
          "model.safetensors, with second names and buffers")
      ->check(CLI::IsMember({"libds", "universal", "fp32"}));
  command->add_option("--tag", args->tag, "tag of a checkpoint of libds")->check(utf8_text());
  command->add_option("--like", args->like,
                      "with fp32: model folder that gives names, types and tokenizer");
  command
      ->add_option("--file-bytes", args->file_bytes,
                   "with fp32: the largest file of several tensors, in bytes (default 5000000000)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--step-tensor", args->step_tensor,
                    "with universal: for torch's optimizers, which count steps in a tensor");
  command->footer("Example: libds convert deepspeed_run converted && libds verify converted");
  command->callback([args, &code] { code = convert(*args); });
}

}  // namespace ds::cli
