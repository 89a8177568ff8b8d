#include "comm/environment.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace ds {
namespace {

// The environment variables that describe the ranks.
class Environment {
 public:
  explicit Environment(const Lookup& variable) : variable_(variable) {}

  // A variable with an empty value counts as not set. The same holds for a variable that `libds
  // launch`, which started this process, had in its own environment with the same value, because
  // that variable describes the launcher, not its ranks.
  bool has(const char* name) const { return !text(name).empty(); }
  std::string_view text(const char* name) const {
    const std::string_view value = raw(name);
    const std::string outer = fmt::format(" {} ", raw("DS_OUTER_LAUNCHERS"));
    return outer.find(fmt::format(" {}={} ", name, value)) == std::string::npos
               ? value
               : std::string_view();
  }
  std::string_view needed(const char* name) const {
    if (!has(name)) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "comm url 'env' needs the environment variable {}, which is not set", name);
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

 private:
  std::string_view raw(const char* name) const {
    const char* value = variable_(name);
    return value ? std::string_view(value) : std::string_view();
  }

  const Lookup& variable_;
};

// The rank and size that a launcher gives this process by two variables.
struct Told {
  const char *rank_name, *size_name, *launcher;
  // 0: the launcher has set nothing.
  int size = 0;
  // -1: only the size is set.
  int rank = -1;
};

Told told_by(const Environment& env, const char* rank_name, const char* size_name,
             const char* launcher) {
  Told told{rank_name, size_name, launcher};
  if (!env.has(size_name)) return told;
  told.size = env.number(size_name);
  require(told.size >= 1, "{} must be 1 or more, got {}", size_name, told.size);
  if (told.size == 1) told.rank = 0;
  if (!env.has(rank_name)) return told;
  told.rank = env.number(rank_name);
  require(told.rank >= 0 && told.rank < told.size, "{} must be 0 to {} where {} is {}, got {}",
          rank_name, told.size - 1, size_name, told.size, told.rank);
  return told;
}

[[noreturn]] void contradict(const char* name, int value, const char* other_name, int other) {
  raise(
      DS_ERROR_INVALID_ARGUMENT,
      "{} is {}, but {} is {}: unset the variables of the launcher that did not start this process",
      name, value, other_name, other);
}

// Checks the size of a launcher that sets torch's variables against the size of the launcher that
// started it. The inner size must be the outer one or a multiple of it, as when torchrun runs under
// srun. Otherwise the inner launcher's variables were left over in the environment, and each
// process would train alone.
void check_multiple(const Told& inner, const Told& outer) {
  if (outer.size <= 1) return;
  if (inner.size % outer.size != 0) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "{0} is {1}, but {2} started {3} processes ({4}): unset {0} and {5} to train on all of "
          "them, or unset {4} to train in each",
          inner.size_name, inner.size, outer.launcher, outer.size, outer.size_name,
          inner.rank_name);
  }
  if (inner.size == outer.size && inner.rank >= 0 && outer.rank >= 0 && inner.rank != outer.rank)
    contradict(inner.rank_name, inner.rank, outer.rank_name, outer.rank);
}

// Checks LOCAL_WORLD_SIZE, LOCAL_SIZE and LOCAL_RANK, which describe the ranks of one host.
void check_host(const Environment& env, const Told& torch) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}) {
    if (!env.has(name)) continue;
    const int size = env.number(name);
    if (size < 1 || size > torch.size) contradict(name, size, torch.size_name, torch.size);
    const int rank = env.has("LOCAL_RANK") ? env.number("LOCAL_RANK") : 0;
    if (rank < 0 || rank >= size) contradict("LOCAL_RANK", rank, name, size);
  }
  if (!env.has("LOCAL_RANK")) return;
  // Some scripts set local rank -1 for a single process.
  const int rank = env.number("LOCAL_RANK");
  if (rank < (torch.size > 1 ? 0 : -1) || rank >= torch.size)
    contradict("LOCAL_RANK", rank, torch.size_name, torch.size);
}

// Shortens an id, because names over shared memory have at most 80 characters.
std::string_view shortened(std::string_view id) { return id.substr(0, 40); }

// On several hosts, ranks connect at the master's port, or at the next port if torchrun's own store
// listens there.
std::string url_of_torchrun(const Environment& env, int size) {
  std::string job = fmt::format("{}-{}", env.text("TORCHELASTIC_RESTART_COUNT"),
                                shortened(env.text("TORCHELASTIC_RUN_ID")));
  if (env.number("LOCAL_WORLD_SIZE") == size)
    return fmt::format("shm://torchrun-{}-{}", env.text("MASTER_PORT"), job);
  int port = env.number("MASTER_PORT");
  if (env.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  return fmt::format("tcp://{}:{}/torchrun-{}", env.needed("MASTER_ADDR"), port, job);
}

// Throws if a scheduler has started ranks on several hosts, because shared memory connects only
// ranks of one host.
void need_one_host(const char* starter, int size, int hosts, const char* missing) {
  if (hosts == 1) return;
  raise(DS_ERROR_UNSUPPORTED, "{} started {} ranks on {} hosts without {}", starter, size, hosts,
        missing);
}

// Without PMIx, srun gives ranks on several hosts no way to find each other.
std::string url_of_srun(const Environment& env, int size) {
  if (env.has("PMIX_RANK")) return "mpi";
  need_one_host("srun", size, env.number("SLURM_STEP_NUM_NODES"), "PMIx: add --mpi=pmix to srun");
  return fmt::format("shm://slurm-{}-{}", shortened(env.text("SLURM_JOB_ID")),
                     env.text("SLURM_STEP_ID"));
}

std::string url_of_flux(const Environment& env, int size) {
  need_one_host("flux run", size, env.number("FLUX_JOB_NNODES"),
                "PMI: leave its option pmi as it is");
  return fmt::format("shm://flux-{}", shortened(env.text("FLUX_JOB_ID")));
}

// Returns DS_COMM_URL, or "" if it is not set. Throws if it cannot be the url of this group.
std::string given_url(const Environment& env, const Told& own) {
  const std::string_view url = env.text("DS_COMM_URL");
  require(url != "env" && !url.starts_with("env:"), "DS_COMM_URL must name a group, got '{}'", url);
  if (own.size > 1 && (url == "self" || url.starts_with("threads://"))) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "DS_COMM_URL is '{}', a group of one process, but {} is {}: unset one of them", url,
          own.size_name, own.size);
  }
  return std::string(url);
}

// All launchers that may have started this process, as their variables describe them.
class Launchers {
 public:
  explicit Launchers(const Environment& env)
      : env_(env),
        torch_(told_by(env, "RANK", "WORLD_SIZE", "the launcher")),
        open_mpi_(told_by(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun")),
        pmi_(told_by(env, "PMI_RANK", "PMI_SIZE", "mpirun")),
        mvapich_(told_by(env, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "mpirun")),
        srun_(told_by(env, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun")),
        flux_(told_by(env, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "flux run")) {}

  // Returns the innermost launcher, which defines rank and size.
  const Told& own() const {
    return torch_.size > 0 ? torch_ : mpi().size > 0 ? mpi() : scheduler();
  }

  void check() const {
    for (const Told* other : {&pmi_, &mvapich_}) {
      if (other->size == 0) continue;
      if (mpi().size != other->size)
        contradict(mpi().size_name, mpi().size, other->size_name, other->size);
      if (mpi().rank >= 0 && other->rank >= 0 && mpi().rank != other->rank)
        contradict(mpi().rank_name, mpi().rank, other->rank_name, other->rank);
    }
    // mpirun may have the scheduler start its daemons, one for each host, so a larger size of the
    // scheduler is a contradiction only if MPI has a single process.
    if (mpi().size == 1 && scheduler().size > 1)
      contradict(mpi().size_name, 1, scheduler().size_name, scheduler().size);
    if (torch_.size > 0) {
      if (!env_.has("TORCHELASTIC_RUN_ID"))
        check_multiple(torch_, mpi().size > 0 ? mpi() : scheduler());
      check_host(env_, torch_);
    } else {
      check_lone_ranks();
    }
  }

  std::string url() const {
    const Told& told = own();
    const std::string given = given_url(env_, told);
    if (told.size <= 1) return "self";
    if (!given.empty()) return given;
    if (&told == &srun_) return url_of_srun(env_, told.size);
    if (&told == &flux_) return url_of_flux(env_, told.size);
    if (&told != &torch_) return "mpi";
    if (env_.has("LOCAL_WORLD_SIZE")) return url_of_torchrun(env_, told.size);
    if (env_.has("MASTER_ADDR") && env_.has("MASTER_PORT"))
      return fmt::format("tcp://{}:{}", env_.text("MASTER_ADDR"), env_.number("MASTER_PORT"));
    raise(DS_ERROR_UNSUPPORTED,
          "WORLD_SIZE is {0}, but neither DS_COMM_URL nor MASTER_ADDR and MASTER_PORT are set: "
          "start the ranks with `libds launch -n {0}`",
          told.size);
  }

 private:
  const Told& mpi() const {
    return open_mpi_.size > 0 ? open_mpi_ : pmi_.size > 0 ? pmi_ : mvapich_;
  }
  // Flux usually runs inside a step of Slurm, so Flux is the inner launcher of the two.
  const Told& scheduler() const { return flux_.size > 0 ? flux_ : srun_; }

  // Throws if a variable gives a rank, or the local variables describe several ranks, but no
  // variable gives the size. Also throws if two ranks contradict each other.
  void check_lone_ranks() const {
    const Told pmix{"PMIX_RANK", "SLURM_STEP_NUM_TASKS or OMPI_COMM_WORLD_SIZE", "mpirun"};
    for (const Told* told : {&torch_, &open_mpi_, &pmi_, &mvapich_, &pmix}) {
      if (told->size > 0 || !env_.has(told->rank_name)) continue;
      const int rank = env_.number(told->rank_name);
      if (own().size == 0) {
        raise(DS_ERROR_INVALID_ARGUMENT, "{0} is {1}, but {2} is not set: set both, or unset {0}",
              told->rank_name, rank, told->size_name);
      }
      if (own().rank >= 0 && rank != own().rank)
        contradict(told->rank_name, rank, own().rank_name, own().rank);
    }
    if (own().size > 0) return;
    // Some scripts set local rank 0, or -1, and local size 1 for a single process.
    for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"}) {
      if (!env_.has(name)) continue;
      const int value = env_.number(name), alone = name == std::string_view("LOCAL_RANK") ? 0 : 1;
      if (value <= alone) continue;
      raise(DS_ERROR_INVALID_ARGUMENT,
            "{0} is {1}, but WORLD_SIZE is not set: set RANK and WORLD_SIZE, or unset {0}", name,
            value);
    }
  }

  const Environment& env_;
  const Told torch_, open_mpi_, pmi_, mvapich_, srun_, flux_;
};

}  // namespace

Place place_of_environment(const Lookup& variable) {
  const Environment env(variable);
  const Launchers launchers(env);
  launchers.check();
  const Told& own = launchers.own();
  Place place{.url = launchers.url()};
  if (own.size <= 1) return place;
  env.needed(own.rank_name);
  place.rank = own.rank;
  place.size = own.size;
  return place;
}

}  // namespace ds
