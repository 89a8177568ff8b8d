#include "run/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr const char* kConfig = "config.json";

// mkdir that tells "was there already" apart, so that two runs started together get different numbers.
bool claim(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) return false;
  raise(DS_ERROR_IO, "run folder '{}' cannot be made: {}", path, std::strerror(errno));
}

}  // namespace

RunFolder create_run_folder(const std::string& wanted) {
  if (!wanted.empty()) {
    if (exists(wanted + "/" + kConfig)) {
      raise(DS_ERROR_STATE, "run.dir '{}' holds a run already: resume it or name another folder", wanted);
    }
    make_folders(wanted);
    return {wanted};
  }
  make_folders("runs");
  for (int number = 1;; ++number) {
    std::string path = fmt::format("runs/{:03}", number);
    if (claim(path)) return {path};
  }
}

void discard_run_folder(const RunFolder& folder) {
  rmdir(folder.data().c_str());
  rmdir(folder.path.c_str());
}

RunFolder open_run_folder(const std::string& path) {
  if (!exists(path + "/" + kConfig)) {
    raise(DS_ERROR_NOT_FOUND, "'{}' is no run folder: it has no {}", path, kConfig);
  }
  return {path};
}

void write_run_config(const RunFolder& folder, const Json& document, Json effective) {
  effective.set("document", document);
  write_file_atomic(folder.file(kConfig), effective.dump(2) + "\n");
}

Json read_run_config(const RunFolder& folder) {
  std::string path = folder.file(kConfig);
  return Json::parse(read_file(path), path).at("document");
}

}  // namespace ds
