#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ds.h"

namespace ds::cli {

// An error of a ds_ call, or of the command itself; main prints it as one line, which names the rank where
// there are several, and returns 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Exit codes of every command; `train` and `launch` also return kStoppedCode (launch/blame.h).
inline constexpr int kFailed = 1, kUsage = 2;

// A write into a closed pipe or beyond the largest file size that is allowed fails instead of ending the
// command. The handlers do nothing: unlike an ignored signal, a handler is not inherited by what the command
// starts. A signal that was ignored already stays so.
void survive_failed_writes();

// Writes a command's result to standard output; throws Failure when that fails.
void write_out(const std::string& text);

// Refuses an option's text that is not UTF-8, which JSON needs.
CLI::Validator utf8_text();

// Throws the last error of this thread unless status is DS_OK.
void check(ds_status status);

// The text that a ds_ call hands out by the convention "Strings" of ds.h.
std::string text_of(const std::function<ds_status(char* buffer, size_t buffer_size, size_t* out_size)>& call);

// The same of a call that does its work every time it is called: once, into 4 MiB.
std::string report_of(
    const std::function<ds_status(char* buffer, size_t buffer_size, size_t* out_size)>& call);

// A file's content; throws Failure naming path and errno text.
std::string read_text(const std::string& path);

// Refuses an option's text unless it is an integer, or a number, within the closed range.
CLI::Validator integer_range(int64_t low, int64_t high);
CLI::Validator number_range(double low, double high);

// The token numbers of "1,2,3". Throws CLI::ValidationError naming `option` and the element that is no number
// from 0 to 2147483647 in decimal digits.
std::vector<int32_t> token_list(const std::string& option, const std::string& text);

// The name that `word` was meant to be: at most two letters are wrong, missing or too many; "" when there is
// none.
std::string nearest(const std::string& word, const std::vector<std::string>& names);

// UTF-8 text for a terminal, which obeys control characters: all but line breaks and tabs become \xNN.
std::string visible(const std::string& text);

// A JSON string literal.
std::string quoted(const std::string& text);

struct CommDeleter {
  void operator()(ds_comm* comm) const { ds_comm_destroy(comm); }
};
using Comm = std::unique_ptr<ds_comm, CommDeleter>;

// Joins a group: that which `libds launch` or another launcher put into the environment.
Comm join(const std::string& url = "env");

// One subcommand each: declares options, sets the callback, which writes the exit code.
void add_train(CLI::App& app, int& code);
void add_generate(CLI::App& app, int& code);
void add_plan(CLI::App& app, int& code);
void add_env(CLI::App& app, int& code);
void add_launch(CLI::App& app, int& code);
void add_agent(CLI::App& app, int& code);
void add_verify(CLI::App& app, int& code);
void add_profile(CLI::App& app, int& code);

}  // namespace ds::cli
