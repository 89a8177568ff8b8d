// Implements `libds verify`. A model folder with golden numbers is verified on the ranks of the
// launcher. A run, a folder of checkpoints or a checkpoint is verified by comparing the hashes in
// its manifests, in this process alone.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Returns a string member of the flat JSON object that ds_checkpoint_info() returns. Quotes and
// backslashes have their own form; control characters keep their escapes.
std::string member(const std::string& json, const std::string& key) {
  // The library prints members as "key": "value", so a text search finds a member without a JSON
  // parser.
  std::string head = quoted(key) + ": \"", value;
  size_t begin = json.find(head);
  if (begin == std::string::npos) throw Failure("the checkpoint's information has no " + key);
  for (size_t i = begin + head.size(); i < json.size() && json[i] != '"'; ++i) {
    const bool escaped = json.compare(i, 2, R"(\")") == 0 || json.compare(i, 2, R"(\\)") == 0;
    if (escaped) ++i;
    value += json[i];
  }
  return value;
}

// Returns "HASH  PATH" of the newest checkpoint in a folder, or of the folder itself if it is a
// checkpoint. The library also compares all hashes of the manifest.
std::string checked_hash(const std::string& folder) {
  std::string info =
      text_of([&](char** out_text) { return ds_checkpoint_info(folder.c_str(), out_text); });
  return fmt::format("{}  {}\n", member(info, "payload_hash"), member(info, "path"));
}

// Returns the paths, sorted by name, of all committed checkpoints: `folder` itself, or those in it,
// or those in its checkpoints/.
std::vector<std::string> checkpoints_at(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "manifest.json", error)) return {folder.string()};
  for (const fs::path& place : {folder, folder / "checkpoints"}) {
    std::vector<std::string> found;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end;
         entry.increment(error)) {
      if (fs::exists(entry->path() / "manifest.json", error))
        found.push_back(entry->path().string());
    }
    std::ranges::sort(found);
    if (!found.empty()) return found;
  }
  return {};
}

// Prints a line for each checkpoint; throws Failure if one is damaged.
void check_checkpoints(const std::vector<std::string>& paths) {
  std::string first;
  size_t damaged = 0;
  for (const std::string& path : paths) {
    try {
      write_out(checked_hash(path));
    } catch (const Failure& failure) {
      // If the manifest is gone, a run in progress has removed the checkpoint meanwhile.
      if (!fs::exists(fs::path(path) / "manifest.json")) continue;
      if (damaged++ == 0) first = failure.what();
      write_out(fmt::format("damaged  {}: {}\n", path, failure.what()));
    }
  }
  if (damaged == 0) return;
  throw Failure(fmt::format("{} of {} checkpoint{} damaged: {}", damaged, paths.size(),
                            paths.size() == 1 ? " is" : "s are", first));
}

struct VerifyArgs {
  std::string model, checkpoint, dtype = "both", tier = "device", device = "cpu", nvme_path = ".";
  int32_t stage = 0;
  std::vector<std::string> kinds;
  bool json = false;
};

// Returns the options for ds_run_verify() as JSON.
std::string verify_options(const VerifyArgs& args) {
  std::string kinds;
  for (const std::string& kind : args.kinds) kinds += (kinds.empty() ? "" : ", ") + quoted(kind);
  return fmt::format(
      R"({{"stage": {}, "tier": {}, "device": {}, "dtype": {}, "nvme_path": {}, "kinds": [{}]}})",
      args.stage, quoted(args.tier), quoted(args.device), quoted(args.dtype),
      quoted(args.nvme_path), kinds);
}

// Verifies and returns the exit code, which is 1 if a tolerance is exceeded.
int verify(const VerifyArgs& args) {
  // A folder with checkpoints is verified by their hashes; any other folder is verified as a model.
  std::vector<std::string> checkpoints = checkpoints_at(args.model);
  if (!checkpoints.empty()) return check_checkpoints(checkpoints), 0;
  Comm comm = join();
  int32_t failed = 0;
  std::string options = verify_options(args);
  std::string text = text_of([&](char** out_text) {
    return ds_run_verify(comm.get(), args.model.c_str(), options.c_str(),
                         args.json ? DS_FORMAT_JSON : DS_FORMAT_TEXT, &failed, out_text);
  });
  if (ds_comm_rank(comm.get()) <= 0) write_out(text);
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check a model against recorded numbers, or checkpoints against their hashes");
  auto args = std::make_shared<VerifyArgs>();
  command->add_option("model", args->model,
                      "Model folder with golden.json and golden.safetensors, or a GGUF file beside "
                      "them; or a run, a folder of checkpoints or one of them: check all hashes");
  command->add_option("--stage", args->stage, "ZeRO stage")->check(integer_range(0, 3));
  command->add_option("--dtype", args->dtype, "Which kinds: f32, bf16 or both")
      ->check(CLI::IsMember({"f32", "bf16", "both"}));
  command->add_option("--tier", args->tier, "Where states are: device, cpu or nvme")
      ->check(CLI::IsMember({"device", "cpu", "nvme"}));
  command->add_option("--device", args->device, "The device of the engine: cpu or cuda:N")
      ->check(utf8_text());
  command->add_option("--kinds", args->kinds, "Only these comparisons, for example logits,grad")
      ->delimiter(',');
  command->add_option("--nvme-path", args->nvme_path, "Folder of the scratch file of --tier nvme")
      ->check(utf8_text());
  command->add_flag("--json", args->json, "Print JSON");
  command->add_option(
      "--hash", args->checkpoint,
      "Checkpoint, folder of them, or run: check the newest one, print its payload hash");
  command->footer(
      "Examples:\n"
      "  libds verify MODEL_DIR --stage 3\n"
      "  libds verify runs/001");
  command->callback([args, &code] {
    if (args->model.empty() == args->checkpoint.empty()) {
      throw CLI::RequiredError("verify: a model folder or --hash");
    }
    if (args->model.empty()) return write_out(checked_hash(args->checkpoint));
    code = verify(*args);
  });
}

}  // namespace ds::cli
