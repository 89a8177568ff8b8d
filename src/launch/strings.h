#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

inline constexpr std::string_view kBlanks = " \t\r\f\v";

// Without blanks at either end.
std::string_view trimmed(std::string_view text);

// The parts between separators, one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator);

// The words between blanks.
std::vector<std::string> words_of(std::string_view text);

// A file's content; nothing when there is no such file. Throws "WHAT 'PATH': ..." when it cannot be
// read.
std::optional<std::string> read_small_file(const std::string& path, std::string_view role);

// Writes all of it, unless the descriptor takes no more.
void write_all(int fd, std::string_view text);

// A word of a POSIX shell.
std::string shell_word(const std::string& text);

}  // namespace ds
