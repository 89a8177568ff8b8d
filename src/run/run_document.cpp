#include "run/run_document.h"

#include <string_view>

#include "checkpoint/agree.h"
#include "checkpoint/run_paths.h"
#include "core/base/error.h"
#include "core/config/parse_config.h"
#include "core/config/refuse.h"
#include "core/config/values.h"
#include "run/folder.h"
#include "run/setup.h"

namespace ds {
namespace {

std::string member_text(const Json& document, std::string_view name) {
  const Json* member = document.find(name);
  return member ? member->dump() : "nothing";
}

// Returns the document of the run in `folder`. A run that was begun by a version without run.keep
// keeps all checkpoints, unless the new configuration sets run.keep.
Json earlier_document(const std::string& folder) {
  RunConfigFile file = read_run_config(open_run_folder(folder));
  Json all = Json::parse(R"({"run": {"keep": 0}})");
  if (!file.keeps) merge_patch(all, file.document), file.document = all;
  return file.document;
}

// Returns the communicator that a document names, or "" if it names none.
std::string communicator_of(const Json& document) {
  const Json* url = document.is_object() ? document.find("communicator") : nullptr;
  return url && !url->is_null() ? read_nonempty("communicator", *url) : "";
}

// Returns whether the folder holds a run that was begun with this value of run.resume.
bool is_begun_as(const std::string& folder, const std::string& name) {
  if (!is_run_folder(folder)) return false;
  const Json document = read_run_config(open_run_folder(folder)).document;
  const Json* run = document.find("run");
  const Json* resume = run && run->is_object() ? run->find("resume") : nullptr;
  return resume && resume->is_string() && resume->string() == name;
}

}  // namespace

Json run_document(const Json& config, Communicator& comm, const std::string& resume) {
  if (resume.empty()) {
    if (config.is_null())
      raise(DS_ERROR_INVALID_ARGUMENT, "config must be given without resume, got none");
    return with_absolute_folders(config);
  }
  std::string folder = parse_run_name(resume).folder;
  std::string text = on_root(comm, "run config", [&] { return earlier_document(folder).dump(); });
  Json document = Json::parse(text, folder + "/config.json"), old = document;
  if (!config.is_null()) merge_patch(document, config);
  if (member_text(document, "data") != member_text(old, "data")) {
    refuse("data", "a resumed run keeps its text; it has {}, but the new configuration has {}",
           member_text(old, "data"), member_text(document, "data"));
  }
  return document;
}

Config parse_run_document(const Json& document, int world, const std::string& resume) {
  try {
    return parse_config(document, world);
  } catch (const Error& error) {
    if (resume.empty()) throw;
    raise(error.status(), "{}/config.json with the changes that were given now: {}",
          parse_run_name(resume).folder, error.what());
  }
}

std::string run_communicator(const Json& config, const std::string& resume) {
  std::string url = communicator_of(config);
  if (url.empty() && !resume.empty()) {
    RunFolder folder{.path = parse_run_name(resume).folder};
    if (is_run_folder(folder.path)) url = communicator_of(read_run_config(folder).document);
  }
  return url.empty() ? "env" : url;
}

// Returns the folder of the run that run.resume continues, or "" if there is none.
std::string run_to_resume(const RunKeys& keys, Communicator& comm) {
  if (keys.resume.empty()) return "";
  const std::string& folder = keys.dir;
  if (folder.empty())
    raise(DS_ERROR_CONFIG, "{} needs run.dir, which is not given", KeyName("run.resume"));
  return on_root(comm, "run.resume",
                 [&] { return is_begun_as(folder, keys.resume) ? folder : std::string(); });
}

}  // namespace ds
