// Code that the commands share: texts passed to the library and returned from it, validators of
// options, and groups of ranks. All calls go through ds.h, so a command can do nothing that a user
// of the library cannot.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "core/base/path_kind.h"

namespace ds::cli {

// A handler that does nothing: the write that raised the signal returns with an error.
extern "C" void ignore_signal(int) {}

void survive_failed_writes() {
  for (int number : {SIGPIPE, SIGXFSZ}) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = ignore_signal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

void write_out(const std::string& text) {
  bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !whole)
    throw Failure(fmt::format("standard output: {}", std::strerror(errno)));
}

// Lets the library check the text, by parsing it as JSON.
CLI::Validator utf8_text() {
  auto check = [](const std::string& text) {
    char* merged = nullptr;
    std::string json = "{\"text\":" + quoted(text) + "}";
    ds_status status = ds_config_merge(json.c_str(), "{}", &merged);
    ds_text_destroy(merged);
    if (status == DS_OK) return std::string();
    std::string shown;
    for (char c : text) {
      auto byte = static_cast<unsigned char>(c);
      shown += byte < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    }
    return fmt::format("must be UTF-8, got '{}'", shown);
  };
  return CLI::Validator(check, "");
}

// The exempt options accept text that may be empty, or lists without elements.
void refuse_empty(CLI::App& command) {
  const auto no_text = [](const std::string& text) {
    return text.empty() ? "must not be empty (is a variable of the shell unset?)" : std::string();
  };
  for (CLI::Option* option : command.get_options()) {
    const char* const free[] = {"--prompt", "--ids", "--include", "--exclude", "--launcher-args"};
    auto is_it = [&](const char* name) { return option->check_name(name); };
    if (option->get_items_expected_max() > 0 && std::ranges::none_of(free, is_it))
      option->check(CLI::Validator(no_text, ""));
  }
}

void check(ds_status status) {
  if (status != DS_OK) throw Failure(ds_last_error_message(), status);
}

std::string text_of(const std::function<ds_status(char**)>& call) {
  char* made = nullptr;
  check(call(&made));
  std::unique_ptr<char, decltype(&ds_text_destroy)> text(made, ds_text_destroy);
  return text.get();
}

// Without this, text of a model or file could move the cursor or change colors.
std::string visible(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    // The characters U+0080 to U+009F are encoded as C2 80 to C2 9F.
    bool two =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    if (two) byte = static_cast<unsigned char>(text[++i]);
    out += two || control ? fmt::format("\\x{:02x}", byte) : std::string(1, text[i]);
  }
  return out;
}

// Reads a text file of bounded size. The file may be a pipe (--config <(make_config)): a pipe
// without a writer reads as empty, and one that never ends is refused at the size limit.
static std::string read_text(const std::string& path) {
  constexpr size_t kMost = size_t{16} << 20;
  // O_NONBLOCK keeps open() from waiting for the writer of a named pipe; poll() waits instead.
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  std::string text;
  char part[4096];
  ssize_t got = fd < 0 ? -1 : 1;
  while (got != 0 && text.size() <= kMost && fd >= 0) {
    got = read(fd, part, sizeof part);
    if (got > 0) text.append(part, static_cast<size_t>(got));
    if (got >= 0) continue;
    if (errno != EAGAIN && errno != EINTR) break;
    pollfd more{fd, POLLIN, 0};
    poll(&more, 1, -1);
  }
  // Saves errno, which close() may change.
  int error = errno;
  if (fd >= 0) close(fd);
  auto refuse = [&](const std::string& reason) {
    throw Failure(fmt::format("'{}': {}{}", path, reason, path_hint(path, Sought::config)));
  };
  if (got < 0) refuse(std::strerror(error));
  if (text.size() > kMost) refuse(fmt::format("has more than {} bytes", kMost));
  if (text.find('\0') != std::string::npos) refuse("is not a text: it has a byte 0");
  return text;
}

std::string merged(const std::string& config, const std::string& patch) {
  return text_of(
      [&](char** out_text) { return ds_config_merge(config.c_str(), patch.c_str(), out_text); });
}

// Reads a configuration in any form that the library knows. The library's messages call the text
// "config"; the name of the file replaces that.
static std::string read_config(const std::string& path) {
  const std::string text = read_text(path);
  try {
    return merged(text, "{}");
  } catch (const Failure& failure) {
    const std::string message = failure.what();
    const std::string source = "config: ";
    throw Failure(fmt::format(
        "'{}': {}", path, message.rfind(source, 0) == 0 ? message.substr(source.size()) : message));
  }
}

// Returns an assignment such as "zero_optimization.stage=3" as a merge patch. A value that is not
// JSON is taken as a string.
static std::string patch_of_set(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const bool whole = equals != std::string::npos && !key.empty() && key.front() != '.' &&
                     key.back() != '.' && key.find("..") == std::string::npos;
  if (!whole) throw CLI::ValidationError("set", fmt::format("must be KEY=VALUE, got \"{}\"", text));
  const std::string value = text.substr(equals + 1);
  char* made = nullptr;
  const bool json = ds_config_merge("{}", value.c_str(), &made) == DS_OK;
  ds_text_destroy(made);
  // Builds the patch from the last part of the key to the first, so that each part wraps the patch
  // for the parts after it.
  std::string patch = json ? value : quoted(value);
  for (size_t end = key.size(), dot = key.rfind('.');; end = dot, dot = key.rfind('.', end - 1)) {
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    patch = fmt::format("{{{}:{}}}", quoted(key.substr(begin, end - begin)), patch);
    if (begin == 0) return patch;
  }
}

void add_config_options(CLI::App& command, ConfigArgs& args, bool model) {
  if (model) {
    command
        .add_option("--model", args.model,
                    "Hugging Face folder or GGUF file, in place of the configuration's model")
        ->check(utf8_text());
  }
  command
      .add_option("--set", args.set,
                  "KEY=VALUE over the configuration, as run.steps=50; may be given several times")
      ->allow_extra_args(false)
      ->check(utf8_text());
}

// Applies the file, --model, and then each --set in the given order; later values take precedence.
std::string config_of(const ConfigArgs& args) {
  std::string config = args.file.empty() ? "{}" : read_config(args.file);
  // The keys of a built-in model would contradict a model folder, so they are removed.
  if (!args.model.empty()) {
    config =
        merged(config,
               "{\"model\":{\"folder\":" + quoted(args.model) +
                   ",\"family\":null,\"layers\":null,\"hidden\":null,\"heads\":null,\"vocab\":null,"
                   "\"positions\":null}}");
  }
  for (const std::string& one : args.set) config = merged(config, patch_of_set(one));
  return config;
}

// `kind` is used in messages, as in "must be an integer".
template <typename Number>
static CLI::Validator range(std::string_view kind, Number low, Number high) {
  auto check = [=](const std::string& text) {
    Number value = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool whole = code == std::errc{} && end == text.data() + text.size();
    if (whole && value >= low && value <= high) return std::string();
    return fmt::format("must be {} from {} to {}, got {}", kind, low, high, text);
  };
  // An upper limit this large is not shown.
  bool open = static_cast<double>(high) >= INT32_MAX;
  return CLI::Validator(
      check, open ? fmt::format("at least {}", low) : fmt::format("{} to {}", low, high));
}

CLI::Validator integer_range(int64_t low, int64_t high) { return range("an integer", low, high); }
CLI::Validator number_range(double low, double high) { return range("a number", low, high); }

// An empty element, including one after a final comma, is refused because it is not a number.
std::vector<int32_t> token_list(const std::string& option, const std::string& text) {
  std::vector<int32_t> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    uint32_t value = 0;
    auto [last, code] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (code != std::errc{} || last != text.data() + end || value > INT32_MAX) {
      throw CLI::ValidationError(
          option, fmt::format("number {} must be an integer from 0 to {}, got \"{}\"",
                              tokens.size() + 1, INT32_MAX, text.substr(begin, end - begin)));
    }
    tokens.push_back(static_cast<int32_t>(value));
    begin = end + 1;
  }
  return tokens;
}

// Returns the Levenshtein distance, computed row by row.
static size_t typing_errors(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      size_t replaced = corner + (a[i] == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, corner + 1});
    }
  }
  return row.back();
}

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  // Names at a distance of 3 or more do not count as similar.
  size_t least = 3;
  for (const std::string& name : names) {
    size_t errors = typing_errors(word, name);
    if (errors < least) {
      least = errors;
      best = name;
    }
  }
  return best;
}

// Bytes from 0x80 on are left unchanged; the library refuses text that is not UTF-8.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// With options NULL, the environment determines rank and size.
Comm join(const std::string& url) {
  ds_comm* comm = nullptr;
  check(ds_comm_create(url.c_str(), nullptr, &comm));
  return Comm(comm);
}

Comm join_as(const std::string& url, int32_t rank, int32_t ranks) {
  ds_comm_options options;
  check(ds_comm_options_init(&options, sizeof options));
  options.rank = rank;
  options.size = ranks;
  ds_comm* comm = nullptr;
  check(ds_comm_create(url.c_str(), &options, &comm));
  return Comm(comm);
}

}  // namespace ds::cli
