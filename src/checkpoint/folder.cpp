// Parses the names of checkpoints, finds complete checkpoints, and removes leftovers and old ones.
#include "checkpoint/folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/state_files.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/path_kind.h"
#include "io/file.h"
#include "io/owner.h"

namespace ds {
namespace {

// Upper bound of a commit number, far enough below 2^63 that adding 1 for each save cannot
// overflow.
constexpr int64_t kMostCommits = int64_t{1} << 62;

bool parse_number(std::string_view text, int64_t* out) {
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return code == std::errc{} && end == text.data() + text.size();
}

constexpr size_t kMostTag = 32;

bool is_tag(std::string_view tag) {
  auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !tag.empty() && tag.size() <= kMostTag && std::ranges::all_of(tag, allowed);
}

// Accepts exactly the names that checkpoint_name() returns, so that a folder with a similar name is
// never removed.
bool parse_name(const std::string& name, CheckpointName* out) {
  constexpr std::string_view prefix = "step-";
  // The end of the part before the tag.
  size_t dot = std::min(name.find('.'), name.size());
  std::string_view text = std::string_view(name).substr(0, dot);
  size_t dash = text.rfind('-');
  if (!text.starts_with(prefix) || dash < prefix.size()) return false;
  out->name = name;
  out->tag = dot < name.size() ? name.substr(dot + 1) : "";
  if (dot < name.size() && !is_tag(out->tag)) return false;
  return parse_number(text.substr(prefix.size(), dash - prefix.size()), &out->step) &&
         out->step >= 0 && parse_number(text.substr(dash + 1), &out->commit) && out->commit > 0 &&
         out->commit <= kMostCommits && name == checkpoint_name(out->step, out->commit, out->tag);
}

std::string manifest_of(const std::string& path) { return path + "/" + std::string(kManifestName); }

// Returns whether the folder has a manifest. If that cannot be determined, returns true: such a
// checkpoint counts as damaged, not as a leftover to remove.
bool committed(const std::string& path) { return !is_absent(manifest_of(path)); }

// Returns why the checkpoint is not complete, or nullopt if it is. Checks the manifest and the
// sizes of all files, but not their content.
std::optional<Error> find_fault(const std::string& path) {
  try {
    Manifest m = read_manifest(path);
    for (size_t k = 0; k < m.kinds.size(); ++k) check_state_file(m, path, k);
    check_rank_files(m, path, false);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

std::string checkpoint_name(int64_t step, int64_t commit, const std::string& tag) {
  return fmt::format("step-{:08}-{}{}{}", step, commit, tag.empty() ? "" : ".", tag);
}

std::string tag_of_checkpoint(const std::string& path) {
  CheckpointName name;
  return parse_name(std::filesystem::path(path).filename(), &name) ? name.tag : "";
}

void require_tag(const std::string& tag) {
  require(is_tag(tag), "tag must be 1 to {} of A-Z a-z 0-9 . _ -, got '{}'", kMostTag, tag);
}

std::vector<CheckpointName> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointName> out;
  std::error_code ignored;
  if (is_absent(folder) || std::filesystem::is_regular_file(folder, ignored)) return out;
  for (const std::string& name : list_folder(folder)) {
    CheckpointName parsed;
    if (parse_name(name, &parsed)) out.push_back(std::move(parsed));
  }
  std::ranges::sort(out, [](const auto& a, const auto& b) { return a.commit < b.commit; });
  return out;
}

std::string latest_checkpoint(const std::string& folder, const std::string& before,
                              const std::string& tag, std::optional<Error>* newest_fault) {
  std::vector<CheckpointName> all = list_checkpoints(folder);
  CheckpointName end;
  if (parse_name(std::filesystem::path(before).filename(), &end)) {
    std::erase_if(all, [&](const CheckpointName& one) { return one.commit >= end.commit; });
  }
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (!tag.empty() && it->tag != tag) continue;
    std::string path = folder + "/" + it->name;
    // A folder without a manifest is left by an interrupted save.
    if (!committed(path)) continue;
    std::optional<Error> fault = find_fault(path);
    if (!fault) return path;
    log_line(LogLevel::warning, fmt::format("checkpoint '{}' is skipped: {}", path, fault->what()));
    if (newest_fault && !*newest_fault) newest_fault->emplace(*fault);
  }
  return "";
}

// If every checkpoint is damaged, throws the error of the newest one: "not found" would tell the
// caller that it may start training from scratch.
std::string find_checkpoint(const std::string& folder, const std::string& tag) {
  if (committed(folder)) {
    if (tag.empty() || tag_of_checkpoint(folder) == tag) return folder;
    raise(DS_ERROR_NOT_FOUND, "checkpoint '{}' must have tag '{}', got '{}'", folder, tag,
          tag_of_checkpoint(folder));
  }
  std::optional<Error> fault;
  std::string path = latest_checkpoint(folder, "", tag, &fault);
  if (path.empty()) path = latest_checkpoint(folder + "/checkpoints", "", tag, &fault);
  if (!path.empty()) return path;
  if (fault) throw *fault;
  const std::string hint = path_hint(folder, Sought::checkpoint);
  if (tag.empty())
    raise(DS_ERROR_NOT_FOUND, "no complete checkpoint at or below '{}'{}", folder, hint);
  raise(DS_ERROR_NOT_FOUND, "no complete checkpoint with tag '{}' at or below '{}'{}", tag, folder,
        hint);
}

std::string find_older_checkpoint(const std::string& folder, const std::string& damaged,
                                  const std::string& tag) {
  // The caller named exactly this checkpoint, so no other one may replace it.
  if (committed(folder)) return "";
  std::string path = latest_checkpoint(folder, damaged, tag);
  return path.empty() ? latest_checkpoint(folder + "/checkpoints", damaged, tag) : path;
}

// Removes the manifest first, because a half-removed folder must not count as a checkpoint.
// Failures are logged, not thrown, since files that stay harm no other checkpoint.
void remove_checkpoint(const std::string& path) {
  try {
    require_own_folder(path);
    if (std::filesystem::remove(manifest_of(path))) sync_folder(path);
    std::filesystem::remove_all(path);
  } catch (const std::exception& error) {
    log_line(LogLevel::warning, fmt::format("cannot remove '{}': {}", path, error.what()));
  }
}

int64_t remove_leftovers(const std::string& folder) {
  std::vector<CheckpointName> all = list_checkpoints(folder);
  for (const CheckpointName& one : all) {
    std::string path = folder + "/" + one.name;
    if (!committed(path)) remove_checkpoint(path);
  }
  return all.empty() ? 0 : all.back().commit;
}

void remove_older_checkpoints(const std::string& folder, const Keep& keep) {
  if (keep.newest == 0) return;
  std::vector<CheckpointName> all;
  try {
    all = list_checkpoints(folder);
  } catch (const std::exception& error) {
    // The save that called this function was already committed, so it must not fail now.
    log_line(LogLevel::warning, fmt::format("old checkpoints are kept: {}", error.what()));
  }
  std::string spared = std::filesystem::path(keep.also).filename();
  auto old = static_cast<int64_t>(all.size()) - keep.newest;
  // Tags whose newest complete checkpoint has been found.
  std::set<std::string> kept;
  // Checkpoints to remove, newest first. The loop below removes the oldest first, so that an
  // interrupted removal leaves the newer ones.
  std::vector<std::string> leaves;
  for (auto i = static_cast<int64_t>(all.size()); i-- > 0 && old > 0;) {
    const CheckpointName& one = all[static_cast<size_t>(i)];
    std::string path = folder + "/" + one.name;
    bool newest = !one.tag.empty() && !kept.contains(one.tag) && !find_fault(path);
    if (newest) kept.insert(one.tag);
    if (i < old && !newest && one.name != spared) leaves.push_back(path);
  }
  for (auto path = leaves.rbegin(); path != leaves.rend(); ++path) remove_checkpoint(*path);
}

bool has_checkpoints(const std::string& folder) {
  std::vector<CheckpointName> all = list_checkpoints(folder);
  return std::ranges::any_of(all, [&](const auto& c) { return committed(folder + "/" + c.name); });
}

}  // namespace ds
