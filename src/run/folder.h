#pragma once
#include <string>

#include "core/base/json.h"

namespace ds {

// A run folder: config.json (every value and its origin, and the document they come from), metrics.csv,
// trace.json, report.html, TensorBoard events, data/ (token files), checkpoints/.
struct RunFolder {
  std::string path;
  std::string file(const char* name) const { return path + "/" + name; }
  std::string data() const { return file("data"); }
  std::string checkpoints() const { return file("checkpoints"); }
};

// Makes `wanted`, or the next free runs/NNN when it is "". DS_ERROR_STATE when `wanted` holds a run already.
RunFolder create_run_folder(const std::string& wanted);

// Removes what a run that never began left in a folder that create_run_folder made: empty folders only.
void discard_run_folder(const RunFolder& folder);

// The folder of an earlier run; DS_ERROR_NOT_FOUND naming the file that makes it one.
RunFolder open_run_folder(const std::string& path);

void write_run_config(const RunFolder& folder, const Json& document, Json effective);
// The document.
Json read_run_config(const RunFolder& folder);

}  // namespace ds
