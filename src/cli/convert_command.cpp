#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cli/commands.h"

namespace ds::cli {
namespace {

// Values of the command line; "" or 0 means that the option was not given.
struct ConvertArgs {
  std::string from, target, form, tag, like, type;
  int64_t file_bytes = 0;
  bool step_tensor = false;
};

// Converts, and prints the description that the library returns. Options are passed only if they
// were given, so that the library applies its defaults.
int convert(const ConvertArgs& args) {
  std::string options = fmt::format(R"({{"step_tensor": {})", args.step_tensor);
  if (!args.form.empty()) options += ", \"to\": " + quoted(args.form);
  if (!args.type.empty()) options += ", \"type\": " + quoted(args.type);
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
      "Converts a checkpoint of DeepSpeed or libds, a model, an adapter or a GGUF file; nothing "
      "that pickles name is run");
  command
      ->add_option(
          "FROM", args->from,
          "folder that DeepSpeed or libds saved, folder of a model or adapter, or GGUF file")
      ->required();
  command->add_option("TO", args->target, "folder or GGUF file to write")->required();
  command
      ->add_option(
          "--to", args->form,
          "libds (usual): one more checkpoint below TO; universal: for DeepSpeed's load_universal; "
          "fp32: model.safetensors, with second names and buffers; model (usual for a GGUF file): "
          "a folder; gguf (usual if TO ends with .gguf): a file for llama.cpp")
      ->check(CLI::IsMember({"libds", "universal", "fp32", "model", "gguf"}));
  command->add_option("--tag", args->tag, "tag of a checkpoint of libds")->check(utf8_text());
  command->add_option("--like", args->like,
                      "with fp32: model folder that gives names, types and tokenizer; with gguf: "
                      "the model of a checkpoint, or the base of an adapter");
  command
      ->add_option("--type", args->type,
                   "with model or gguf: type of matrices (by default that of FROM, or bf16)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  command
      ->add_option("--file-bytes", args->file_bytes,
                   "with fp32: the largest file of several tensors, in bytes (default 5000000000)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--step-tensor", args->step_tensor,
                    "with universal: for torch's optimizers, which count steps in a tensor");
  command->footer(
      "Examples: libds convert deepspeed_run converted && libds verify converted\n"
      "          libds convert model.gguf MODEL_DIR\n"
      "          libds convert MODEL_DIR model.gguf --type q8_0\n"
      "          libds convert RUN/model adapter.gguf --like model.gguf");
  command->callback([args, &code] { code = convert(*args); });
}

}  // namespace ds::cli
