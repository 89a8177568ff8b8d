#pragma once
#include <string>

namespace ds {

// The kind of file or folder that a reader expects at a path.
enum class Sought { config, model, weights, tokenizer, checkpoint, run, data };

// Returns the end of a message that refuses `path`. It says what the path is instead and what to
// do, such as "; it is an adapter of PEFT: ...". Returns "" if nothing is known. Reads the file
// system and throws nothing but std::bad_alloc.
std::string path_hint(const std::string& path, Sought sought);

// Returns the hint for a folder that holds a model or an adapter, whose text files are not data to
// train on, or "" for any other folder.
std::string model_hint(const std::string& folder);

// Returns a hint for a file that could not be opened, whatever was expected there: for example that
// the path is an address or a dangling symbolic link, or that a parent folder is a file.
std::string open_hint(const std::string& path);

// Returns a hint for a file or folder that is to be created: that its path is an address, or begins
// with "~", which only a shell replaces. Returns "" for any other path, and for one whose first
// component exists.
std::string made_hint(const std::string& path);

}  // namespace ds
