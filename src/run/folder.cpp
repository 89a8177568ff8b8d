// Creates, locks, cleans and discards run folders so that
// - two processes never train in one folder (lock.h);
// - a run that fails before its first step leaves the folder as it was: only files that were not
//   there before are removed;
// - a run that was killed can be continued, or started again if it had no configuration yet;
// - nothing that another user put there is followed or overwritten (io/owner.h).
#include "run/folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/path_kind.h"
#include "data/tokenizer.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/owner.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuns = "runs";
constexpr const char* kReference = "data/reference.losses";
constexpr int64_t kMostConfig = int64_t{16} << 20;

// The folder of a run's copies of further chat templates.
constexpr const char* kTemplates = "data/tokenizer/additional_chat_templates";

// Checks the owner of a folder, which may be absent, and of its files.
void require_own_files(const std::string& folder) {
  require_own_folder(folder);
  if (!exists(folder)) return;
  for (const std::string& name : list_folder(folder)) require_own_file(folder + "/" + name);
}

// Checks the owner of everything that libds reads, or opens for writing, in a run folder. Files
// that it replaces by renaming need no check.
void require_own_run(const RunFolder& run) {
  // The path of the run folder itself may be a link.
  require_own_folder(run.path + "/.");
  for (const char* name : {"lock", kRunConfig, "metrics.csv", "data/train.tokens",
                           "data/heldout.tokens", kReference}) {
    require_own_file(run.file(name));
  }
  for (const char* name : {"data", "data/tokenizer", "checkpoints", "flight", "model"}) {
    require_own_folder(run.file(name));
  }
  for (const char* name : kTokenizerFiles) require_own_file(run.data() + "/tokenizer/" + name);
  require_own_files(run.file(kTemplates));
  for (const CheckpointName& checkpoint : list_checkpoints(run.checkpoints())) {
    require_own_files(run.checkpoints() + "/" + checkpoint.name);
  }
}

// Removes temporary files that unfinished writes have left in a folder: NAME.*.tmp and NAME.*.part
// for the given names, or for all names if none is given.
template <typename Names = std::span<const std::string_view>>
void remove_unfinished(const std::string& folder, const Names& names = {}) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    fs::path kind = entry->path().extension();
    if (kind != ".tmp" && kind != ".part") continue;
    std::string name = entry->path().filename();
    bool ours = std::ranges::any_of(
        names, [&](const auto& one) { return name.starts_with(std::string(one) + "."); });
    if (ours || std::size(names) == 0) fs::remove(entry->path(), ignored);
  }
}

constexpr std::array<std::string_view, 2> kTokens = {"train.tokens", "heldout.tokens"};

}  // namespace

RunFolder create_run_folder(const std::string& wanted) {
  RunFolder folder;
  if (wanted.empty()) {
    folder.made_runs = !exists(kRuns);
    for (int number = 1; !folder.made; ++number) {
      make_folders(kRuns);
      folder.path = fmt::format("{}/{:03}", kRuns, number);
      folder.made = make_folder(folder.path);
    }
  } else {
    folder.path = wanted;
    folder.made = !exists(wanted);
    make_folders(wanted);
  }
  require_own_run(folder);
  folder.lock = FolderLock(folder.path);
  if (name_exists(folder.file(kRunConfig))) {
    if (const std::string model = model_hint(folder.path); !model.empty())
      raise(DS_ERROR_STATE, "run.dir '{}' must be a folder of its own{}", wanted, model);
    raise(DS_ERROR_STATE, "run.dir '{}' holds a run already: resume it or name another folder",
          wanted);
  }
  // A run that was killed before it wrote its configuration starts again here. The folder may
  // contain files of the user, so only temporary files with names that libds uses are removed.
  remove_unfinished(folder.path, std::array<std::string_view, 1>{kRunConfig});
  remove_unfinished(folder.data(), kTokens);
  remove_unfinished(folder.file("data/tokenizer"), kTokenizerFiles);
  for (const char* place : {"", "data", "data/tokenizer", kTemplates}) {
    if (!exists(folder.file(place))) continue;
    for (const std::string& name : list_folder(folder.file(place)))
      folder.found.push_back(fs::path(place) / name);
  }
  return folder;
}

// Removes only files with names that libds writes, and no file that was in the folder before.
void discard_run_folder(RunFolder& folder) noexcept {
  std::error_code ignored;
  auto remove = [&](const std::string& name) {
    bool users = contains(folder.found, name);
    if (!users) fs::remove(folder.path + "/" + name, ignored);
  };
  for (const char* name : kTokenizerFiles) remove(std::string("data/tokenizer/") + name);
  for (const char* name :
       {kRunConfig, "metrics.csv", "data/train.tokens", "data/heldout.tokens", kReference})
    remove(name);
  for (fs::directory_iterator entry(folder.file(kTemplates), ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    if (entry->path().extension() == ".jinja")
      remove(fs::path(kTemplates) / entry->path().filename());
  }
  // Removing a folder fails if the folder is not empty.
  for (const char* name : {kTemplates, "data/tokenizer", "data"})
    fs::remove(folder.file(name), ignored);
  for (fs::directory_iterator entry(folder.path, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    std::string name = entry->path().filename();
    if (name.starts_with("events.out.tfevents.")) remove(name);
  }
  folder.lock = {};
  if (folder.made) fs::remove(folder.path, ignored);
  if (folder.made_runs) fs::remove(kRuns, ignored);
}

void clean_run_folder(const RunFolder& folder) {
  constexpr std::array<std::string_view, 4> kReplaced = {kRunConfig, "trace.json", "report.html",
                                                         "communication.csv"};
  remove_unfinished(folder.path, kReplaced);
  remove_unfinished(folder.data(), kTokens);
  remove_unfinished(folder.file("data/tokenizer"), kTokenizerFiles);
  for (const char* place : {kTemplates, "model", "flight"}) remove_unfinished(folder.file(place));
  remove_leftovers(folder.checkpoints());
}

// The owners are checked before locking, because the lock is itself a file in the folder.
RunFolder lock_run_folder(const std::string& path) {
  RunFolder folder = open_run_folder(path);
  require_own_run(folder);
  folder.lock = FolderLock(folder.path);
  return folder;
}

RunFolder open_run_folder(const std::string& path) {
  if (!is_run_folder(path)) {
    const std::string hint = path_hint(path, Sought::run);
    raise(DS_ERROR_NOT_FOUND, "'{}' is not a run folder{}", path,
          hint.empty() ? fmt::format(": it has no {}", kRunConfig) : hint);
  }
  return {.path = path};
}

void write_run_config(const RunFolder& folder, const Json& document, Json effective,
                      const Json& text) {
  effective.set("document", document);
  effective.set("text", text);
  // With this file the folder becomes a run folder.
  write_file_atomic(folder.file(kRunConfig), effective.dump(2) + "\n");
}

RunConfigFile read_run_config(const RunFolder& folder) {
  std::string path = folder.file(kRunConfig);
  Json values = read_json(path, kMostConfig);
  const Json* document = values.is_object() ? values.find("document") : nullptr;
  if (!document || !document->is_object()) {
    raise(DS_ERROR_CORRUPT, "{}: the member \"document\", which a resume starts from, is {}{}",
          path, document ? document->kind() : "absent", path_hint(folder.path, Sought::run));
  }
  const Json* text = values.find("text");
  const Json* config = values.find("config");
  const Json* run = config ? config->find("run") : nullptr;
  return {*document, text ? *text : Json(), !run || run->find("keep")};
}

}  // namespace ds
