#pragma once
#include <string>

namespace ds {

// Paths in a run folder (docs/reference/files.md), for code that only reads it. run/folder.h
// creates the folder and changes it.
inline constexpr const char* kRunConfig = "config.json";
inline std::string run_data_folder(const std::string& run) { return run + "/data"; }

// Returns whether `path` has a config.json, as the folder of an earlier run does, and is not the
// folder of a model, which has one, too.
bool is_run_folder(const std::string& path);

// A run as a user names it: by its folder, or by one of its checkpoints, RUN/checkpoints/NAME.
struct RunName {
  std::string folder;
  // Path of the checkpoint; "" means the newest one.
  std::string checkpoint;
};
// Splits RUN or RUN/checkpoints/NAME. Does not check that the run exists.
RunName parse_run_name(const std::string& name);

// Returns the path or name that a run loads its tokenizer from. `folder` is the run's data folder,
// and `name` the tokenizer that its configuration names. The result is the copy `folder`/tokenizer
// if it exists and `name` is not "bytes", otherwise `name`. Throws DS_ERROR_NOT_FOUND if the run
// learned its tokenizer and the copy, the only place that stores it, is missing.
std::string run_tokenizer(const std::string& folder, const std::string& name);

}  // namespace ds
