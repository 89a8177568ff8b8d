#pragma once
#include <string>

namespace ds {

// Where things lie in a run folder (docs/reference/files.md), for those who read one. What makes
// and changes it is run/folder.h.
inline constexpr const char* kRunConfig = "config.json";
inline std::string run_data_folder(const std::string& run) { return run + "/data"; }

// Whether there is an earlier run.
bool is_run_folder(const std::string& path);

// A run as named by a user: its folder, or one of its checkpoints RUN/checkpoints/NAME.
struct RunName {
  std::string folder;
  std::string checkpoint;  // "": the newest one
};
RunName parse_run_name(const std::string& name);

// What a run reads its tokenizer from: the copy in `folder`/tokenizer, of a run's data/, or
// `name` itself where there is none. DS_ERROR_NOT_FOUND for a learned one, which is only there.
std::string run_tokenizer(const std::string& folder, const std::string& name);

}  // namespace ds
