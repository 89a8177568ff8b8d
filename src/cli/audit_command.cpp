// Implements `libds audit`. The ranks are those of the launcher, or this process alone. With -n,
// they are threads of this process, which join a group whose URL is unique to the process. Rank 0
// prints.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace ds::cli {
namespace {

struct AuditArgs {
  ConfigArgs config;
  // Number of ranks as threads of this process; 0: the launcher's ranks.
  int32_t ranks = 0;
  int32_t steps = 2, top = 20, threads = 0;
  bool json = false;
};

struct Audited {
  std::string text;
  int32_t failed = 0;
};

// Audits on the ranks of a group. Every rank returns the same text.
Audited audit_on(const Comm& comm, const std::string& config, const AuditArgs& args) {
  std::string options = fmt::format(R"({{"steps": {}, "top": {}, "threads": {}}})", args.steps,
                                    args.top, args.threads);
  Audited out;
  out.text = text_of([&](char** out_text) {
    return ds_run_audit(comm.get(), config.c_str(), options.c_str(),
                        args.json ? DS_FORMAT_JSON : DS_FORMAT_TEXT, &out.failed, out_text);
  });
  return out;
}

// Audits on ranks that are threads of this process. Throws the error of the lowest failed rank.
Audited audit_threads(const std::string& config, const AuditArgs& args) {
  // Ranks within a process find each other by this URL. The process id distinguishes audits in
  // different processes.
  std::string url = fmt::format("threads://audit-{}", getpid());
  std::vector<std::exception_ptr> errors(static_cast<size_t>(args.ranks));
  std::vector<std::thread> threads;
  Audited found;
  for (int32_t rank = 0; rank < args.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Audited own = audit_on(join_as(url, rank, args.ranks), config, args);
        if (rank == 0) found = std::move(own);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return found;
}

// Returns the exit code, which is 1 if an instruction exceeds its error bound or its bits differ.
int audit(const AuditArgs& args) {
  std::string config = config_of(args.config);
  if (args.ranks > 1) {
    Audited found = audit_threads(config, args);
    write_out(found.text);
    return found.failed == 0 ? 0 : kFailed;
  }
  Comm comm = join(args.ranks == 1 ? "self" : "env");
  Audited found = audit_on(comm, config, args);
  if (ds_comm_rank(comm.get()) <= 0) write_out(found.text);
  return found.failed == 0 ? 0 : kFailed;
}

}  // namespace

void add_audit(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("audit", "Run each instruction of a step again in double and compare");
  auto args = std::make_shared<AuditArgs>();
  command->add_option("--config", args->config.file, "JSON configuration")->required();
  add_config_options(*command, args->config);
  command
      ->add_option("-n", args->ranks,
                   "Ranks, as threads of this process; without it, the launcher's")
      ->check(integer_range(1, 512))
      ->default_str("");
  command->add_option("--steps", args->steps, "Steps to train; the last one is audited")
      ->check(integer_range(1, 1000000));
  command
      ->add_option("--top", args->top,
                   "Rows to print, the largest error beside its bound first; 0: all")
      ->check(integer_range(0, 1000000));
  command->add_option("--threads", args->threads, "Compute threads of a rank; 0: cores / ranks")
      ->check(integer_range(0, 1024));
  command->add_flag("--json", args->json, "Print JSON with all rows");
  command->footer(
      "Examples:\n"
      "  libds audit --config examples/train.json -n 2 --top 10\n"
      "  libds launch -n 2 libds audit --config examples/train.json");
  command->callback([args, &code] { code = audit(*args); });
}

}  // namespace ds::cli
