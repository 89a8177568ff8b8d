// The main program: sets up standard descriptors and signals, parses the command line, and prints
// one line on stderr for every error.
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
#include "core/base/contains.h"
#include "launch/blame.h"

namespace {

using ds::cli::kFailed, ds::cli::kUsage;

// Returns "rank 3: " if `libds launch` or another launcher started several ranks, otherwise "".
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

// Returns an error message if the first word is not a command, otherwise "".
std::string wrong_command(const CLI::App& app, const char* word) {
  if (word == nullptr || word[0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (ds::contains(names, word)) return "";
  std::string near = ds::cli::nearest(word, names);
  return std::string("'") + word + "' is not a command" +
         (near.empty() ? "" : "; did you mean " + near + "?");
}

// Returns the words after the program's name, in the reverse order that CLI11 expects. Leaves out
// the "--" that ends the options of a command which runs another command: after it, CLI11 would
// pass the remaining words to the parser of the entire line.
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
  std::ranges::reverse(words);
  return words;
}

// Returns, for example, "0.1.0 (c9d3587)": the version, and the commit if it is known.
std::string version_text() {
  std::string commit = ds::cli::kCommit;
  return ds_version() + (commit.empty() ? "" : " (" + commit + ")");
}

// Rewrites "libds" and "libds help" as "libds --help", and "libds help plan" as "libds plan
// --help". Returns the words after "libds" in reverse order, as CLI11 parses them, or nothing for
// any other command line.
std::vector<std::string> asked_for_help(int argc, char** argv) {
  if (argc > 3 || (argc > 1 && std::string_view(argv[1]) != "help")) return {};
  std::vector<std::string> words{"--help"};
  if (argc == 3) words.emplace_back(argv[2]);
  return words;
}

// Opens /dev/null for each standard descriptor that is closed. Otherwise the next opened files
// would get these numbers, and text meant for the terminal would be written to them.
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
  // The help shows the value that each variable has when its option is added.
  app.option_defaults()->always_capture_default();
  ds::cli::format_help(app);
  app.footer(
      "libds help COMMAND shows the options of a command, with defaults and an example.\n"
      "Start with: libds train --config examples/train.json --data FOLDER");
  for (auto* add : {ds::cli::add_train, ds::cli::add_generate, ds::cli::add_tokenize,
                    ds::cli::add_plan, ds::cli::add_env, ds::cli::add_config, ds::cli::add_launch,
                    ds::cli::add_verify, ds::cli::add_profile, ds::cli::add_audit,
                    ds::cli::add_convert, ds::cli::add_merge, ds::cli::add_unmerge})
    add(app, code);
  for (CLI::App* command : app.get_subcommands({})) ds::cli::refuse_empty(*command);
  // The agent is added last, so that it accepts empty text: launch writes its options, not a user.
  ds::cli::add_agent(app, code);
  std::vector<std::string> help = asked_for_help(argc, argv);
  // CLI11 would report an unknown command as an extra argument, so the first word is checked here.
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
  } catch (const ds::cli::Failure& error) {
    failed(error.what());
    // A launcher must not restart a job whose input is wrong.
    const bool may_restart = std::getenv("DS_RESTART") != nullptr;
    return may_restart && error.refuses() ? ds::kRefusedCode : kFailed;
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  return code;
}
