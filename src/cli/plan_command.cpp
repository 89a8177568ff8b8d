// Implements `libds plan`. It prints tables, a program, a picture or a certificate of compiled
// plans, and needs neither the ranks nor the memory of the run. The exit code says whether the plan
// fits this machine.
#include <fmt/core.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "core/base/path_kind.h"

namespace ds::cli {
namespace {

struct PlanDeleter {
  void operator()(ds_plan* plan) const { ds_plan_destroy(plan); }
};

using PlanHandle = std::unique_ptr<ds_plan, PlanDeleter>;

struct PlanArgs {
  ConfigArgs config;
  std::string svg, certificate;
  int32_t rank = 0, ranks = 1;
  bool print = false, json = false;
};

PlanHandle make_plan(const std::string& config, int32_t rank, int32_t ranks) {
  ds_plan* made = nullptr;
  check(ds_plan_create(config.c_str(), nullptr, rank, ranks, &made));
  return PlanHandle(made);
}

// Writes the text to a file, or to standard output if the path is "-".
void write_to(const std::string& path, const std::string& text) {
  if (path == "-") return write_out(text);
  if (const std::string hint = made_hint(path); !hint.empty())
    throw Failure(fmt::format("'{}' cannot be created{}", path, hint));
  std::FILE* file = std::fopen(path.c_str(), "we");
  // fclose() writes buffered data, so its result must be checked as well.
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  const int error = errno;
  if (!written)
    throw Failure(fmt::format("'{}': {}{}", path, std::strerror(error), open_hint(path)));
}

// Returns the configuration with another stage. Below stage 3, offload_param is removed, because
// only stage 3 can offload parameters.
std::string at_stage(const std::string& config, int stage) {
  std::string patch = fmt::format(R"({{"zero_optimization": {{"stage": {}{}}}}})", stage,
                                  stage < 3 ? R"(, "offload_param": null)" : "");
  return merged(config, patch);
}

// Draws the plans at ZeRO stages 0 to 3 side by side. If other keys of the configuration rule out a
// stage, it is omitted with a warning.
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
  // All stages were refused, so the last reason is reported.
  if (given.empty()) throw Failure(refused);
  std::string svg = text_of(
      [&](char** out_text) { return ds_plan_picture(given.data(), given.size(), out_text); });
  write_to(args.svg, svg);
}

// Writes the certificate. It compiles the plans of all ranks, since the certificate is about all
// their programs together.
void certify(const PlanArgs& args, const std::string& config) {
  std::vector<PlanHandle> plans;
  std::vector<const ds_plan*> given;
  for (int32_t rank = 0; rank < args.ranks; ++rank) {
    plans.push_back(make_plan(config, rank, args.ranks));
    given.push_back(plans.back().get());
  }
  write_to(args.certificate, text_of([&](char** out_text) {
             return ds_plan_certificate(given.data(), given.size(), out_text);
           }));
}

// Exit code if the plan does not fit this machine or memory_budget.
constexpr int kDoesNotFit = 3;

std::string report_of(const ds_plan* plan, ds_format format) {
  return text_of([&](char** out_text) { return ds_plan_report(plan, format, out_text); });
}

// Returns the exit code for a report, which begins with "fits" or "does not fit".
int code_of(std::string_view report) { return report.starts_with("fits") ? 0 : kDoesNotFit; }

// Returns the exit code, and warns on standard error if the plan does not fit: a program, a picture
// or a certificate does not show memory.
int warned(const ds_plan* plan) {
  const std::string report = report_of(plan, DS_FORMAT_TEXT);
  const int code = code_of(report);
  if (code != 0)
    std::fprintf(stderr, "libds: warning: %s\n", report.substr(0, report.find('\n')).c_str());
  return code;
}

// Writes what the options request, and returns the exit code.
int plan(const PlanArgs& args) {
  std::string config = config_of(args.config);
  if (!args.svg.empty()) draw(args, config);
  if (!args.certificate.empty()) certify(args, config);
  PlanHandle plan = make_plan(config, args.rank, args.ranks);
  if (args.print)
    write_out(text_of([&](char** out_text) { return ds_plan_print(plan.get(), out_text); }));
  if (args.print || !args.svg.empty() || !args.certificate.empty()) return warned(plan.get());
  const std::string report = report_of(plan.get(), DS_FORMAT_TEXT);
  write_out(args.json ? report_of(plan.get(), DS_FORMAT_JSON) : report);
  return code_of(report);
}

}  // namespace

void add_plan(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("plan", "Compile a configuration without running it");
  auto args = std::make_shared<PlanArgs>();
  command->add_option("--config", args->config.file, "JSON configuration")->required();
  add_config_options(*command, args->config);
  command->add_option("-n", args->ranks, "Ranks of the group")->check(integer_range(1, INT32_MAX));
  CLI::Option* rank = command->add_option("--rank", args->rank, "Rank to compile for")
                          ->check(integer_range(0, INT32_MAX));
  CLI::Option* print =
      command->add_flag("--print", args->print, "The step program instead of the tables");
  command->add_flag("--json", args->json, "The tables as JSON")->excludes(print);
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
  command->callback([args, &code] { code = plan(*args); });
}

}  // namespace ds::cli
