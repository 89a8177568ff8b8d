#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

struct PlanDeleter {
  void operator()(ds_plan* plan) const { ds_plan_destroy(plan); }
};

using PlanHandle = std::unique_ptr<ds_plan, PlanDeleter>;

struct PlanArgs {
  std::string config, svg, certificate;
  int32_t rank = 0, ranks = 1;
  bool print = false;
};

PlanHandle make_plan(const std::string& config, int32_t rank, int32_t ranks) {
  ds_plan* made = nullptr;
  check(ds_plan_create(config.c_str(), nullptr, rank, ranks, &made));
  return PlanHandle(made);
}

// Into a file, or for "-" to standard output.
void write_to(const std::string& path, const std::string& text) {
  if (path == "-") return write_out(text);
  std::FILE* file = std::fopen(path.c_str(), "we");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (!written) throw Failure(fmt::format("'{}': {}", path, std::strerror(errno)));
}

// The configuration at another stage; parameters can be offloaded at stage 3 only.
std::string at_stage(const std::string& config, int stage) {
  std::string patch = fmt::format(R"({{"zero_optimization": {{"stage": {}{}}}}})", stage,
                                  stage < 3 ? R"(, "offload_param": null)" : "");
  return text_of([&](char* buffer, size_t size, size_t* out) {
    return ds_config_merge(config.c_str(), patch.c_str(), buffer, size, out);
  });
}

// The configuration at ZeRO 0 to 3 side by side; a stage that its other keys rule out is left out by name.
void draw(const PlanArgs& args, const std::string& config) {
  std::vector<PlanHandle> plans;
  std::vector<const ds_plan*> given;
  std::string refused;
  for (int stage = 0; stage <= 3; ++stage) {
    try {
      plans.push_back(make_plan(at_stage(config, stage), args.rank, args.ranks));
      given.push_back(plans.back().get());
    } catch (const Failure& failure) {
      refused = fmt::format("stage {}: {}", stage, failure.what());
      std::fprintf(stderr, "libds: warning: left out: %s\n", refused.c_str());
    }
  }
  if (given.empty()) throw Failure(refused);
  std::string svg = text_of([&](char* buffer, size_t size, size_t* out) {
    return ds_plan_picture(given.data(), given.size(), buffer, size, out);
  });
  write_to(args.svg, svg);
}

void certify(const PlanArgs& args, const std::string& config) {
  std::vector<PlanHandle> plans;
  std::vector<const ds_plan*> given;
  for (int32_t rank = 0; rank < args.ranks; ++rank) {
    plans.push_back(make_plan(config, rank, args.ranks));
    given.push_back(plans.back().get());
  }
  write_to(args.certificate, text_of([&](char* buffer, size_t size, size_t* out) {
             return ds_plan_certificate(given.data(), given.size(), buffer, size, out);
           }));
}

void plan(const PlanArgs& args) {
  std::string config = read_text(args.config);
  if (!args.svg.empty()) return draw(args, config);
  if (!args.certificate.empty()) return certify(args, config);
  PlanHandle plan = make_plan(config, args.rank, args.ranks);
  auto call = args.print ? ds_plan_print : ds_plan_report;
  std::string text =
      text_of([&](char* buffer, size_t size, size_t* out) { return call(plan.get(), buffer, size, out); });
  write_out(text);
}

// Whether scratch files with O_DIRECT work on a folder's file system.
std::string direct_io(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) return std::string("no: ") + std::strerror(errno);
  ::close(fd);
  return "yes";
}

void env(const std::string& folder) {
  std::string report = text_of(ds_env_report);
  while (!report.empty() && report.back() == '\n') report.pop_back();
  write_out(fmt::format("{}\nO_DIRECT in '{}': {}\n", report, folder, direct_io(folder)));
}

// The member of a flat JSON object of strings and numbers that ds_checkpoint_info writes.
std::string member(const std::string& json, const std::string& key) {
  std::string head = quoted(key) + ": \"";
  size_t begin = json.find(head);
  if (begin == std::string::npos) throw Failure("the checkpoint's information has no " + key);
  begin += head.size();
  return json.substr(begin, json.find('"', begin) - begin);
}

// "HASH  PATH" of the newest checkpoint of a folder, or of the one that it is. The library checks all hashes
// of the manifest on the way.
std::string checked_hash(const std::string& folder) {
  std::string info = text_of([&](char* buffer, size_t size, size_t* out) {
    return ds_checkpoint_info(folder.c_str(), buffer, size, out);
  });
  return fmt::format("{}  {}\n", member(info, "payload_hash"), member(info, "path"));
}

// The committed checkpoints that `folder` is or holds, itself or in checkpoints/, by name.
std::vector<std::string> checkpoints_at(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "manifest.json", error)) return {folder.string()};
  for (const fs::path& place : {folder, folder / "checkpoints"}) {
    std::vector<std::string> found;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error)) {
      if (fs::exists(entry->path() / "manifest.json", error)) found.push_back(entry->path().string());
    }
    std::sort(found.begin(), found.end());
    if (!found.empty()) return found;
  }
  return {};
}

// A line for each; fails when one is damaged.
void check_checkpoints(const std::vector<std::string>& paths) {
  std::string first;
  size_t damaged = 0;
  for (const std::string& path : paths) {
    try {
      write_out(checked_hash(path));
    } catch (const Failure& failure) {
      if (!fs::exists(fs::path(path) / "manifest.json")) continue;  // a run in progress has removed it
      if (damaged++ == 0) first = failure.what();
      write_out(fmt::format("damaged  {}: {}\n", path, failure.what()));
    }
  }
  if (damaged == 0) return;
  throw Failure(fmt::format("{} of {} checkpoint{} damaged: {}", damaged, paths.size(),
                            paths.size() == 1 ? " is" : "s are", first));
}

struct VerifyArgs {
  std::string model, checkpoint, dtype = "both", tier = "device", nvme_path = ".";
  int32_t stage = 0;
  std::vector<std::string> kinds;
  bool json = false;
};

// The options of ds_run_verify.
std::string verify_options(const VerifyArgs& args) {
  std::string kinds;
  for (const std::string& kind : args.kinds) kinds += (kinds.empty() ? "" : ", ") + quoted(kind);
  return fmt::format(
      R"({{"stage": {}, "tier": {}, "dtype": {}, "nvme_path": {}, "kinds": [{}], "format": {}}})", args.stage,
      quoted(args.tier), quoted(args.dtype), quoted(args.nvme_path), kinds,
      quoted(args.json ? "json" : "text"));
}

// Exit code 1 when a tolerance is passed.
int verify(const VerifyArgs& args) {
  std::vector<std::string> checkpoints = checkpoints_at(args.model);
  if (!checkpoints.empty()) return check_checkpoints(checkpoints), 0;
  Comm comm = join();
  int32_t failed = 0;
  std::string options = verify_options(args);
  std::string text = report_of([&](char* buffer, size_t size, size_t* out) {
    return ds_run_verify(comm.get(), args.model.c_str(), options.c_str(), &failed, buffer, size, out);
  });
  if (ds_comm_rank(comm.get()) <= 0) write_out(text);
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_plan(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("plan", "Compile a configuration without running it");
  auto args = std::make_shared<PlanArgs>();
  command->add_option("--config", args->config, "JSON configuration")->required();
  command->add_option("-n", args->ranks, "Ranks of the group")->check(integer_range(1, INT32_MAX));
  CLI::Option* rank =
      command->add_option("--rank", args->rank, "Rank to compile for")->check(integer_range(0, INT32_MAX));
  CLI::Option* print = command->add_flag("--print", args->print, "The step program instead of the tables");
  CLI::Option* svg =
      command
          ->add_option("--svg", args->svg,
                       "Picture of ZeRO 0 to 3 side by side into this file; - for standard output")
          ->excludes(print);
  command
      ->add_option("--certificate", args->certificate,
                   "Certificate of the programs of all ranks into this file; - for standard output")
      ->excludes(print)
      ->excludes(svg)
      ->excludes(rank);
  command->footer(
      "Examples:\n"
      "  libds plan --config examples/train.json -n 2\n"
      "  libds plan --config examples/train.json -n 2 --svg plan.svg");
  command->callback([args] { plan(*args); });
}

void add_env(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("env", "Say what libds finds on this machine");
  auto folder = std::make_shared<std::string>(".");
  command->add_option("folder", *folder, "Where offload to files would go");
  command->footer("Example: libds env /mnt/nvme");
  command->callback([folder] { env(*folder); });
}

void add_verify(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check a model against recorded numbers, or checkpoints against their hashes");
  auto args = std::make_shared<VerifyArgs>();
  command->add_option(
      "model", args->model,
      "Model folder with golden.json and golden.safetensors; or a run, a folder of checkpoints or one "
      "of them: check all hashes");
  command->add_option("--stage", args->stage, "ZeRO stage")->check(integer_range(0, 3));
  command->add_option("--dtype", args->dtype, "Which kinds: f32, bf16 or both")
      ->check(CLI::IsMember({"f32", "bf16", "both"}));
  command->add_option("--tier", args->tier, "Where states are: device, cpu or nvme")
      ->check(CLI::IsMember({"device", "cpu", "nvme"}));
  command->add_option("--kinds", args->kinds, "Only these comparisons, for example logits,grad")
      ->delimiter(',');
  command->add_option("--nvme-path", args->nvme_path, "Folder of the scratch file of --tier nvme")
      ->check(utf8_text());
  command->add_flag("--json", args->json, "Print JSON");
  command->add_option("--hash", args->checkpoint,
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
