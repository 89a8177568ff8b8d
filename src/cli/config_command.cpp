// Implements `libds config`. It never trains, so it accepts configurations for any number of ranks,
// on any machine. The library describes refused configurations as well; only the exit code differs.
#include <cstdint>
#include <memory>
#include <string>

#include "cli/commands.h"

namespace ds::cli {
namespace {

struct DescribeArgs {
  ConfigArgs config;
  int32_t ranks = 1;
  bool json = false;
};

// Prints the description. The exit code says whether libds accepts the configuration.
int config(const DescribeArgs& args) {
  const std::string text = config_of(args.config);
  int32_t refused = 0;
  std::string described = text_of([&](char** out_text) {
    return ds_config_describe(text.c_str(), args.ranks, args.json ? DS_FORMAT_JSON : DS_FORMAT_TEXT,
                              &refused, out_text);
  });
  write_out(args.json ? described + "\n" : visible(described));
  return refused > 0 ? kFailed : 0;
}

}  // namespace

void add_config(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("config", "Say what a configuration means and what is refused");
  auto args = std::make_shared<DescribeArgs>();
  command
      ->add_option("file", args->config.file,
                   "Configuration: libds's, DeepSpeed's, or Accelerate's YAML")
      ->required();
  add_config_options(*command, args->config);
  command->add_option("-n", args->ranks, "Ranks of the group")->check(integer_range(1, INT32_MAX));
  command->add_flag("--json", args->json, "Print JSON");
  command->footer("Example: libds config ds_config.json -n 8");
  command->callback([args, &code] { code = config(*args); });
}

}  // namespace ds::cli
