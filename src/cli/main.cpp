#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/commands.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;

bool first_rank() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::string_view(rank) == "0";
}

int failed(const char* message) {
  std::fprintf(stderr, "libds: %s\n", message);
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  int code = 0;
  CLI::App app("libds trains large models: ZeRO, offload and more behind one C header", "libds");
  app.set_version_flag("--version", ds_version());
  app.require_subcommand(1);
  ds::cli::add_train(app, code);
  ds::cli::add_generate(app, code);
  ds::cli::add_plan(app, code);
  ds::cli::add_env(app, code);
  ds::cli::add_launch(app, code);
  ds::cli::add_verify(app, code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::Error& error) {
    failed(error.what());
    return kUsage;
  } catch (const ds::cli::Failure& failure) {
    return failure.everywhere && !first_rank() ? kFailed : failed(failure.what());
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  return code;
}
