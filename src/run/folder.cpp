#include "run/folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kRuns = "runs";

// mkdir that tells "another was faster" apart, so that two runs started together get different numbers.
bool claim(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST || errno == ENOENT) return false;  // the second: a failed run has removed runs/
  raise(DS_ERROR_IO, "run folder '{}' cannot be made: {}", path, std::strerror(errno));
}

}  // namespace

RunFolder create_run_folder(const std::string& wanted) {
  RunFolder folder;
  if (wanted.empty()) {
    folder.made_runs = !exists(kRuns);
    for (int number = 1; !folder.made; ++number) {
      make_folders(kRuns);
      folder.path = fmt::format("{}/{:03}", kRuns, number);
      folder.made = claim(folder.path);
    }
  } else {
    folder.path = wanted;
    folder.made = !exists(wanted);
    make_folders(wanted);
  }
  folder.lock = FolderLock(folder.path);
  if (exists(folder.file(kConfig))) {
    raise(DS_ERROR_STATE, "run.dir '{}' holds a run already: resume it or name another folder", wanted);
  }
  return folder;
}

void discard_run_folder(RunFolder& folder) noexcept {
  std::error_code ignored;
  auto remove = [&](const std::string& name) { fs::remove(fs::path(folder.path) / name, ignored); };
  for (const char* name : kTokenizerFiles) remove(std::string("data/tokenizer/") + name);
  for (const char* name :
       {kConfig, "metrics.csv", "data/train.tokens", "data/heldout.tokens", "data/tokenizer", "data"}) {
    remove(name);
  }
  for (fs::directory_iterator entry(folder.path, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (entry->path().filename().native().starts_with("events.out.tfevents.")) {
      fs::remove(entry->path(), ignored);
    }
  }
  folder.lock = {};
  if (folder.made) fs::remove(folder.path, ignored);  // only when it is empty
  if (folder.made_runs) fs::remove(kRuns, ignored);
}

bool is_run_folder(const std::string& path) { return name_exists(path + "/" + kConfig); }

RunFolder open_run_folder(const std::string& path) {
  if (!is_run_folder(path)) {
    raise(DS_ERROR_NOT_FOUND, "'{}' is no run folder: it has no {}", path, kConfig);
  }
  return {.path = path};
}

void write_run_config(const RunFolder& folder, const Json& document, Json effective) {
  effective.set("document", document);
  write_file_atomic(folder.file(kConfig), effective.dump(2) + "\n");
}

Json read_run_config(const RunFolder& folder) {
  std::string path = folder.file(kConfig);
  Json values = Json::parse(read_file(path), path);
  const Json* document = values.is_object() ? values.find("document") : nullptr;
  if (!document || !document->is_object()) {
    raise(DS_ERROR_CORRUPT, "{}: the member \"document\", which a resume starts from, is {}", path,
          document ? document->kind() : "absent");
  }
  return *document;
}

RunName parse_run_name(const std::string& name) {
  fs::path path(name);
  if (!path.has_filename()) path = path.parent_path();  // RUN/
  bool inside = path.parent_path().filename() == "checkpoints" && !exists((path / kConfig).string());
  if (!inside) return {name, ""};
  std::string folder = path.parent_path().parent_path().string();
  return {folder.empty() ? "." : folder, path.string()};
}

}  // namespace ds
