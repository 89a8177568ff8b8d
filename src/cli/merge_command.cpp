#include <fmt/core.h>

#include <memory>
#include <string>
#include <string_view>

#include "cli/commands.h"

namespace ds::cli {
namespace {

struct MergeArgs {
  std::string adapter, target, base;
};

// Writes the model and prints the description that the library returns. `form` is "merged" or
// "unmerged".
int merge(const MergeArgs& args, const char* form) {
  std::string options = fmt::format(R"({{"to": "{}")", form);
  if (!args.base.empty()) options += ", \"like\": " + quoted(args.base);
  options += "}";
  write_out(text_of([&](char** out_text) {
              return ds_checkpoint_convert(args.adapter.c_str(), args.target.c_str(),
                                           options.c_str(), out_text);
            }) +
            "\n");
  return 0;
}

void add(CLI::App& app, int& code, const char* name, const char* form, const char* description) {
  auto args = std::make_shared<MergeArgs>();
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("ADAPTER", args->adapter, "folder of an adapter, by libds or PEFT")
      ->required();
  command
      ->add_option("TO", args->target,
                   "folder to write, which must be empty or not exist; or X.gguf")
      ->required();
  if (form == std::string_view("merged")) {
    command->add_option("--base", args->base,
                        "model folder or GGUF file (default: the base that adapter_config.json "
                        "names)");
    command->footer("Example: libds merge tuned/model merged");
  } else {
    command
        ->add_option("--base", args->base,
                     "model folder or GGUF file that the adapter was merged into")
        ->required();
    command->footer("Example: libds unmerge tuned/model unmerged --base merged");
  }
  command->callback([args, form, &code] { code = merge(*args, form); });
}

}  // namespace

void add_merge(CLI::App& app, int& code) {
  add(app, code, "merge", "merged",
      "Writes a model folder whose weights have an adapter added to them");
}

void add_unmerge(CLI::App& app, int& code) {
  add(app, code, "unmerge", "unmerged",
      "Takes an adapter out of the weights of a merged model folder (--base)");
}

}  // namespace ds::cli
