#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// What a reader looks for in a file.
enum class Wanted { json, text, safetensors, torch, tokens, sentencepiece };

// As many bytes of the beginning tell what content is.
inline constexpr size_t kContentHead = 1024;

// For content that a reader could not parse: what it is instead, and what to do, as "a Git LFS
// pointer, which stands for a file of 257 MiB: get that by `git lfs pull`"; "" when it is nothing
// that people take for another file. `head` is its beginning, of kContentHead bytes or all of it.
std::string content_kind(std::string_view head, Wanted wanted);

// The same for a Git LFS pointer alone, which is text.
std::string git_lfs_pointer(std::string_view head);

}  // namespace ds
