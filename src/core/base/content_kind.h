#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// The content that a reader expects in a file.
enum class Wanted { json, text, safetensors, torch, tokens, sentencepiece, gguf };

// The number of leading bytes that suffice to recognize content.
inline constexpr size_t kContentHead = 1024;

// Explains content that a reader could not parse: returns what it is instead and what to do, for
// example "a Git LFS pointer, which stands for a file of 257 MiB: get that by ...". Returns "" if
// the content has the wanted format or is not something that people often mistake for another
// format. `head` is the first kContentHead bytes of the file, or all of a shorter one.
std::string content_kind(std::string_view head, Wanted wanted);

// Returns a message about the text or JSON that the Hugging Face hub sends when it refuses a file,
// or "" for other content.
std::string hub_answer(std::string_view head);

// Returns a message about a Git LFS pointer, or "" for other content. A pointer is a valid text
// file and would otherwise be read as one.
std::string git_lfs_pointer(std::string_view head);

}  // namespace ds
