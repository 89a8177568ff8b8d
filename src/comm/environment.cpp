#include "comm/environment.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace ds {
namespace {

class Environment {
 public:
  explicit Environment(const Lookup& variable) : variable_(variable) {}

  // A variable without text is one that is not set.
  bool has(const char* name) const { return !text(name).empty(); }
  std::string_view text(const char* name) const {
    const char* value = variable_(name);
    return value ? std::string_view(value) : std::string_view();
  }
  std::string_view needed(const char* name) const {
    if (!has(name)) {
      raise(DS_ERROR_INVALID_ARGUMENT, "comm url 'env' needs {} in the environment, got none",
            name);
    }
    return text(name);
  }
  int number(const char* name) const {
    std::string_view word = needed(name);
    int value = 0;
    auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
    require(code == std::errc() && end == word.data() + word.size(),
            "{} must be an integer, got '{}'", name, word);
    return value;
  }
  // Whether `size` says that there are several ranks.
  bool several(const char* size) const { return has(size) && text(size) != "1"; }

 private:
  const Lookup& variable_;
};

// A launcher that numbers processes of its own starts a multiple of them at most, as torchrun does
// below srun. Where WORLD_SIZE is none, it was left in the environment, and each process would
// train alone.
void check_started(const Environment& env) {
  if (env.has("DS_COMM_URL") || env.has("TORCHELASTIC_RUN_ID"))
    return;  // these set WORLD_SIZE themselves
  struct Launcher {
    const char *size, *name;
  };
  constexpr Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_SIZE", "mpirun"}, {"PMI_SIZE", "mpirun"}, {"SLURM_STEP_NUM_TASKS", "srun"}};
  const int world = env.number("WORLD_SIZE");
  for (const auto& [size, name] : kLaunchers) {
    if (!env.several(size)) continue;
    const int started = env.number(size);
    if (started > 0 && world % started == 0) continue;
    raise(DS_ERROR_INVALID_ARGUMENT,
          "WORLD_SIZE is {}, but {} started {} processes ({}): unset WORLD_SIZE and RANK to train "
          "on all of "
          "them, "
          "or unset {} to train in each",
          world, name, started, size, size);
  }
}

// Names over shared memory have 80 characters at most.
std::string_view shortened(std::string_view id) { return id.substr(0, 40); }

// Over several hosts ranks meet at the master's port; the next one where torchrun's own store
// listens there.
Place under_torchrun(const Environment& env) {
  Place place{env.number("RANK"), env.number("WORLD_SIZE"), ""};
  std::string job = fmt::format("{}-{}", env.text("TORCHELASTIC_RESTART_COUNT"),
                                shortened(env.text("TORCHELASTIC_RUN_ID")));
  if (env.number("LOCAL_WORLD_SIZE") == place.size) {
    place.url = fmt::format("shm://torchrun-{}-{}", env.text("MASTER_PORT"), job);
    return place;
  }
  int port = env.number("MASTER_PORT");
  if (env.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  place.url = fmt::format("tcp://{}:{}/torchrun-{}", env.needed("MASTER_ADDR"), port, job);
  return place;
}

Place under_srun(const Environment& env) {
  Place place{env.number("SLURM_PROCID"), env.number("SLURM_STEP_NUM_TASKS"), "mpi"};
  if (env.has("PMIX_RANK")) return place;
  int hosts = env.number("SLURM_STEP_NUM_NODES");
  if (hosts != 1) {
    raise(DS_ERROR_UNSUPPORTED,
          "srun started {} ranks on {} hosts without PMIx: add --mpi=pmix to srun", place.size,
          hosts);
  }
  place.url = fmt::format("shm://slurm-{}-{}", shortened(env.text("SLURM_JOB_ID")),
                          env.text("SLURM_STEP_ID"));
  return place;
}

}  // namespace

Place place_of_environment(const Lookup& variable) {
  Environment env(variable);
  if (env.has("WORLD_SIZE")) {
    check_started(env);
    if (!env.several("WORLD_SIZE")) return {};
    if (!env.has("DS_COMM_URL") && env.has("LOCAL_WORLD_SIZE")) return under_torchrun(env);
    if (!env.has("DS_COMM_URL") && env.has("MASTER_ADDR") && env.has("MASTER_PORT")) {
      return {env.number("RANK"), env.number("WORLD_SIZE"),
              fmt::format("tcp://{}:{}", env.text("MASTER_ADDR"), env.number("MASTER_PORT"))};
    }
    if (!env.has("DS_COMM_URL")) {
      raise(DS_ERROR_UNSUPPORTED,
            "WORLD_SIZE is {0}, but neither DS_COMM_URL nor MASTER_ADDR and MASTER_PORT are set: "
            "start the "
            "ranks "
            "with `libds launch -n {0}`",
            env.text("WORLD_SIZE"));
    }
    require(env.text("DS_COMM_URL") != "env", "DS_COMM_URL must name a group, got 'env'");
    return {env.number("RANK"), env.number("WORLD_SIZE"), std::string(env.text("DS_COMM_URL"))};
  }
  if (env.several("OMPI_COMM_WORLD_SIZE"))
    return {env.number("OMPI_COMM_WORLD_RANK"), env.number("OMPI_COMM_WORLD_SIZE"), "mpi"};
  if (env.several("PMI_SIZE")) return {env.number("PMI_RANK"), env.number("PMI_SIZE"), "mpi"};
  if (env.several("SLURM_STEP_NUM_TASKS")) return under_srun(env);
  return {};
}

}  // namespace ds
