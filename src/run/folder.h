#pragma once
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_paths.h"
#include "core/base/json.h"
#include "run/lock.h"

namespace ds {

// A run folder. It holds config.json (every value and its origin, and the document that they come
// from), metrics.csv, trace.json, report.html, TensorBoard events, data/ (token files, tokenizer),
// checkpoints/, model/ (weights of a finished run that began from a model folder), flight/ (records
// of ranks whose group failed), and, while a process trains in it, the file lock.
struct RunFolder {
  std::string path;
  // The lock of the folder, which rank 0 holds.
  FolderLock lock = {};
  // Whether create_run_folder() created the folder.
  bool made = false;
  // Whether create_run_folder() also created runs/, the folder of runs without a name.
  bool made_runs = false;
  // Names that create_run_folder() found in the folder. These files belong to the user.
  std::vector<std::string> found = {};
  std::string file(const char* name) const { return path + "/" + name; }
  std::string data() const { return run_data_folder(path); }
  std::string checkpoints() const { return file("checkpoints"); }
};

// Creates and locks `wanted` or, if that is "", the next free runs/NNN. Throws DS_ERROR_STATE if
// `wanted` already holds a run or another process is starting one in it, and DS_ERROR_IO if
// anything in it that a run reads or opens for writing belongs to another user (io/owner.h).
RunFolder create_run_folder(const std::string& wanted);

// Removes the files of a run that made no step from a folder that create_run_folder() returned, so
// that the folder can be used again. Other files stay. Never throws.
void discard_run_folder(RunFolder& folder) noexcept;

// Removes what a killed process has left in a run folder: temporary files and unfinished
// checkpoints. Complete checkpoints stay; an old one is removed only after a newer one has been
// committed. The caller must hold the lock.
void clean_run_folder(const RunFolder& folder);

// Opens the folder of an earlier run for reading. If it is not a run folder, throws
// DS_ERROR_NOT_FOUND naming the missing file.
RunFolder open_run_folder(const std::string& path);
// Opens and locks the folder of an earlier run to continue the run. Throws DS_ERROR_IO if anything
// in the folder that a run reads or opens for writing belongs to another user.
RunFolder lock_run_folder(const std::string& path);

// Writes config.json. `text` is the record of the text (RunData::record()).
void write_run_config(const RunFolder& folder, const Json& document, Json effective,
                      const Json& text);
// The parts of config.json that a resume needs.
struct RunConfigFile {
  Json document;
  // The record of the text; null if an earlier version wrote the file.
  Json text;
  // False if the run was begun by a version without run.keep, which removed no checkpoints.
  bool keeps = true;
};
// Reads config.json. Throws DS_ERROR_CORRUPT naming the file if it has no document.
RunConfigFile read_run_config(const RunFolder& folder);

}  // namespace ds
