#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

inline constexpr std::string_view kBlanks = " \t\r\f\v";

// Returns the text without blanks at either end.
std::string_view trimmed(std::string_view text);

// Returns the parts between separators; there is one more part than separators.
std::vector<std::string_view> split(std::string_view text, char separator);

// Returns the words of a text, which are separated by spaces.
std::vector<std::string> words_of(std::string_view text);

// Returns the content of a file of at most 16 MiB, or nullopt if the file does not exist. Throws
// std::system_error or std::runtime_error, "ROLE 'PATH': ...", if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path, std::string_view role);

// Writes the whole text, but gives up at the first error.
void write_all(int fd, std::string_view text);

// Returns the text quoted as one word of a POSIX shell.
std::string shell_word(const std::string& text);

}  // namespace ds
