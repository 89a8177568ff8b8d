// Implements `libds tokenize`. Options are applied to the configuration file as a patch, so a token
// file can be written with the configuration that will be used for training.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace ds::cli {
namespace {

struct TokenizeArgs {
  ConfigArgs config;
  std::string out, format, tokenizer, chat_template, loss_on;
  std::vector<std::string> data;
};

// Returns the command line as a patch of the configuration.
std::string patch_of(const TokenizeArgs& args) {
  std::string paths, data;
  for (const std::string& path : args.data) paths += (paths.empty() ? "" : ",") + quoted(path);
  if (!paths.empty()) data = "\"paths\":[" + paths + "]";
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty())
      data += fmt::format("{}\"{}\":{}", data.empty() ? "" : ",", name, quoted(value));
  };
  add("format", args.format);
  add("tokenizer", args.tokenizer);
  add("chat_template", args.chat_template);
  add("loss_on", args.loss_on);
  return "{\"data\":{" + data + "}}";
}

void tokenize(const TokenizeArgs& args) {
  std::string config = merged(config_of(args.config), patch_of(args));
  // A configuration must have a batch size, even though tokenizing does not use it.
  if (args.config.file.empty()) config = merged(config, "{\"train_batch_size\":1}");
  write_out(text_of([&](char** out_text) {
              return ds_run_tokenize(config.c_str(), args.out.c_str(), nullptr, out_text);
            }) +
            "\n");
}

}  // namespace

void add_tokenize(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("tokenize", "Write text or jsonl as a token file");
  auto args = std::make_shared<TokenizeArgs>();
  command->add_option("--out", args->out, "Token file to write, NAME.tokens")
      ->required()
      ->check(utf8_text());
  command->add_option("--config", args->config.file,
                      "JSON configuration; only its `data` and `model.folder` are used");
  add_config_options(*command, args->config, false);
  command->add_option("--data", args->data, "Files or folders, instead of data.paths")
      ->check(utf8_text());
  command->add_option("--format", args->format, "text or jsonl, instead of data.format")
      ->check(utf8_text());
  command
      ->add_option("--tokenizer", args->tokenizer,
                   "Tokenizer's file or folder, instead of data.tokenizer")
      ->check(utf8_text());
  command->add_option("--chat-template", args->chat_template, "Instead of data.chat_template")
      ->check(utf8_text());
  command->add_option("--loss-on", args->loss_on, "answers or all, instead of data.loss_on")
      ->check(utf8_text());
  command->footer(
      "Examples:\n"
      "  libds tokenize --data TEXT_DIR --tokenizer MODEL_DIR --out text.tokens\n"
      "  libds tokenize --data chats.jsonl --format jsonl --tokenizer MODEL_DIR --out "
      "chats.tokens\n"
      "Train on it with data.format \"tokens\" and the same tokenizer.");
  command->callback([args] { tokenize(*args); });
}

}  // namespace ds::cli
