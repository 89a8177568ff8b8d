#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace {

using ds::cli::kFailed, ds::cli::kUsage;

// "rank 3: " where `libds launch` or another launcher started several; else "".
std::string place() {
  const char* size = std::getenv("WORLD_SIZE");
  const char* rank = std::getenv("RANK");
  bool several = size != nullptr && rank != nullptr && std::string_view(size) != "1";
  return several ? std::string("rank ") + rank + ": " : "";
}

int failed(const std::string& message) {
  std::fprintf(stderr, "libds: %s%s\n", place().c_str(), message.c_str());
  return kFailed;
}

// What is wrong with the first word, which must be a command, or "".
std::string wrong_command(const CLI::App& app, const char* word) {
  if (word == nullptr || word[0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  std::string near = ds::cli::nearest(word, names);
  return std::string("'") + word + "' is no command" +
         (near.empty() ? "" : "; did you mean " + near + "?");
}

// The words after the program's name, in reverse, as CLI11 takes them; without the "--" that ends
// the options of a command which runs another: CLI11 would hand what follows to the parser of the
// whole line.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const CLI::App* command = nullptr;
  for (const CLI::App* one : app.get_subcommands({})) {
    if (!words.empty() && one->get_name() == words[0]) command = one;
  }
  if (command != nullptr && command->get_prefix_command()) {
    size_t at = 1;
    while (at < words.size() && words[at].size() > 1 && words[at][0] == '-' && words[at] != "--") {
      const CLI::Option* option = command->get_option_no_throw(words[at]);
      at += option != nullptr && option->get_items_expected_min() > 0 ? 2 : 1;
    }
    if (at < words.size() && words[at] == "--")
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// "0.1.0 (c9d3587)": the commit that was built, as far as the build knew it.
std::string version_text() {
  std::string commit = ds::cli::kCommit;
  return ds_version() + (commit.empty() ? "" : " (" + commit + ")");
}

// "libds" and "libds help" are "libds --help"; "libds help plan" is "libds plan --help".
std::vector<std::string> asked_for_help(int argc, char** argv) {
  if (argc > 3 || (argc > 1 && std::string_view(argv[1]) != "help")) return {};
  std::vector<std::string> words{"--help"};
  if (argc == 3) words.emplace_back(argv[2]);
  return words;
}

// A program may be started with standard descriptors closed. The next files opened would get their
// numbers, and text meant for the terminal would go into them.
void open_standard() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard();
  ds::cli::survive_failed_writes();
  int code = 0;
  CLI::App app("libds trains large models: ZeRO, offload and more behind one C header", "libds");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  ds::cli::format_help(app);
  app.footer(
      "libds help COMMAND shows the options of a command, with defaults and an example.\n"
      "Start with: libds train --config examples/train.json --data FOLDER");
  ds::cli::add_train(app, code);
  ds::cli::add_generate(app, code);
  ds::cli::add_tokenize(app, code);
  ds::cli::add_plan(app, code);
  ds::cli::add_env(app, code);
  ds::cli::add_config(app, code);
  ds::cli::add_launch(app, code);
  ds::cli::add_agent(app, code);
  ds::cli::add_verify(app, code);
  ds::cli::add_profile(app, code);
  ds::cli::add_audit(app, code);
  ds::cli::add_convert(app, code);
  std::vector<std::string> help = asked_for_help(argc, argv);
  const char* word = help.empty() ? argv[1] : argc == 3 ? argv[2] : nullptr;
  if (std::string complaint = wrong_command(app, word); !complaint.empty()) {
    failed(complaint);
    return kUsage;
  }
  try {
    app.parse(help.empty() ? words_of(app, argc, argv) : help);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::Error& error) {
    failed(error.what());
    return kUsage;
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  return code;
}
