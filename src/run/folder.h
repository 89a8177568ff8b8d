#pragma once
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_paths.h"
#include "core/base/json.h"
#include "run/lock.h"

namespace ds {

// A run folder: config.json (every value and its origin, and the document they come from),
// metrics.csv, trace.json, report.html, TensorBoard events, data/ (token files, tokenizer),
// checkpoints/, flight/ (of ranks whose group broke), and while a process trains in it, lock.
struct RunFolder {
  std::string path;
  FolderLock lock = {};    // of rank 0
  bool made = false;       // by create_run_folder: the folder was not there before
  bool made_runs = false;  // nor was runs/, the folder of those without a name
  std::vector<std::string> found =
      {};  // names that create_run_folder found there: they are a user's
  std::string file(const char* name) const { return path + "/" + name; }
  std::string data() const { return run_data_folder(path); }
  std::string checkpoints() const { return file("checkpoints"); }
};

// Makes and locks `wanted`, or the next free runs/NNN when it is "". DS_ERROR_STATE when `wanted`
// holds a run already or another process is making one there; DS_ERROR_IO when something in it is
// not this user's own (io/owner.h).
RunFolder create_run_folder(const std::string& wanted);

// Removes what a run that made no step left in a folder that create_run_folder gave, so that it may
// be given again. Other files stay. Never throws.
void discard_run_folder(RunFolder& folder) noexcept;

// Removes what a process that was killed in a run folder has left: files that were to replace
// others, and halves of checkpoints. Whole checkpoints stay: older ones go behind the commit of a
// newer one only. The caller holds the lock.
void clean_run_folder(const RunFolder& folder);

// The folder of an earlier run, to read; DS_ERROR_NOT_FOUND naming the file that makes it one.
RunFolder open_run_folder(const std::string& path);
// The same to go on with: locked, and refused like create_run_folder's when something in it is not
// our own.
RunFolder lock_run_folder(const std::string& path);

// text: RunData::record().
void write_run_config(const RunFolder& folder, const Json& document, Json effective,
                      const Json& text);
struct RunConfigFile {
  Json document;
  Json text;          // null: a run of an earlier version
  bool keeps = true;  // false: a run of a version without run.keep, which removed no checkpoint
};
// DS_ERROR_CORRUPT naming the file when it has no document.
RunConfigFile read_run_config(const RunFolder& folder);

}  // namespace ds
