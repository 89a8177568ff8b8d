// One rank of the memory tests, run under count_shim.c: trains a GPT and prints the planned and the
// counted memory.
//  memory_driver RANK WORLD URL FOLDER STEPS STAGE TIER BUDGET MODEL
// TIER: device, cpu or nvme. BUDGET: bytes of memory_budget.device, or -1. FOLDER: nvme_path, and
// the place of the checkpoint that is saved after the last step and loaded again. MODEL: small,
// vocab (one parameter of 8 MiB), or main (the model of bench_train_small). stdout: lines "NAME
// VALUE", "mapping ASKED BYTES SHARED" for each live mapping after creation, and the tables of
// memory.
#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "memory/count_shim.h"
#include "support/models.h"

namespace {

struct Model {
  int64_t layers, width, heads, vocab, seq, rows, sub_group;
  int threads;
};
constexpr Model kSmall{2, 128, 4, 512, 32, 64, 100'000, 2},
    kVocab{1, 128, 4, 16384, 32, 64, 2'000'000, 1}, kMain{4, 384, 6, 256, 128, 1024, 2'000'000, 1};
constexpr int64_t kMicros = 2;

const Model& model_of(const std::string& name) {
  return name == "main" ? kMain : name == "vocab" ? kVocab : kSmall;
}

struct Shim {
  void (*read)(shim_counts*) = nullptr;
  void (*reset)() = nullptr;
  int (*mappings)(shim_mapping*, int) = nullptr;
  Shim() {
    read = reinterpret_cast<void (*)(shim_counts*)>(dlsym(RTLD_DEFAULT, "shim_read"));
    reset = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "shim_reset_peaks"));
    mappings = reinterpret_cast<int (*)(shim_mapping*, int)>(dlsym(RTLD_DEFAULT, "shim_mappings"));
    if (!read || !reset || !mappings)
      throw std::runtime_error("memory_driver needs count_shim preloaded");
  }
  shim_counts counts() const {
    shim_counts c{};
    read(&c);
    return c;
  }
};

void print(const std::string& name, long value) { std::printf("%s %ld\n", name.c_str(), value); }

void print(const std::string& phase, const shim_counts& c) {
  print(phase + ".heap", c.heap);
  print(phase + ".heap_peak", c.heap_peak);
  print(phase + ".mapped", c.mapped);
  print(phase + ".mapped_peak", c.mapped_peak);
  print(phase + ".shared", c.shared);
  print(phase + ".shared_peak", c.shared_peak);
  print(phase + ".file", c.file);
  print(phase + ".file_peak", c.file_peak);
  print(phase + ".file_calls", c.file_calls);
  print(phase + ".total_peak", c.total_peak);
  print(phase + ".largest_mapping", c.largest_mapping);
  print(phase + ".largest_chunk", c.largest_chunk);
  print(phase + ".stacks", c.stacks);
}

// Returns the resident bytes of this process: RssAnon + RssShmem.
long resident() {
  std::ifstream status("/proc/self/status");
  std::string word;
  long sum = 0, kib = 0;
  while (status >> word) {
    if (word != "RssAnon:" && word != "RssShmem:") continue;
    status >> kib;
    sum += kib * 1024;
  }
  return sum;
}

long open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  long count = 0;
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

ds::Config config_of(char** argv, const Model& model, int world) {
  ds::Config c = ds::test::make_config(std::stoi(argv[6]), kMicros, world);
  std::string tier = argv[7];
  c.zero.optimizer_tier = tier == "nvme"  ? ds::Tier::nvme
                          : tier == "cpu" ? ds::Tier::host
                                          : ds::Tier::device;
  if (c.zero.stage == 3) c.zero.param_tier = c.zero.optimizer_tier;
  c.zero.nvme_path = argv[4];
  c.zero.param_persistence_threshold = 1000;
  c.zero.sub_group_size = model.sub_group;
  c.compute = DS_DTYPE_BF16;
  c.emulate_tiers = true;
  c.memory_budget.device = std::stoll(argv[8]);
  return c;
}

class Rank {
 public:
  explicit Rank(char** argv) : argv_(argv), model_(model_of(argv[9])) {
    options_.rank = std::stoi(argv[1]);
    options_.size = std::stoi(argv[2]);
    graph_ = ds::test::make_tiny_gpt(model_.layers, model_.width, model_.heads, model_.vocab,
                                     model_.seq, model_.rows, 0.1);
    tokens_.resize(static_cast<size_t>(kMicros * model_.rows));
    targets_.resize(tokens_.size());
  }

  void run() {
    ds::Config config = config_of(argv_, model_, options_.size);
    shim_.reset();
    print("base", shim_.counts());
    print("base.resident", resident());
    std::unique_ptr<ds::Communicator> comm = ds::create_communicator(argv_[3], options_);
    ds::EngineOptions engine_options;
    engine_options.threads = model_.threads;
    shim_.reset();
    try {
      ds::Engine engine(config, graph_, *comm, engine_options);
      print("create", shim_.counts());
      plan(engine);
      train(engine);
    } catch (const ds::Error&) {
      print("refused", shim_.counts());
      throw;
    }
  }

 private:
  void plan(const ds::Engine& engine) {
    ds::MemoryPlan memory = engine.plan().memory;
    for (int t = 0; t < 3; ++t) {
      std::string tier = ds::tier_name(static_cast<ds::Tier>(t));
      print("plan." + tier + ".persistent", memory.tiers[t].persistent);
      print("plan." + tier + ".transient", memory.tiers[t].transient);
    }
    print("overhead", engine.runtime().overhead().total());
    std::fputs((memory_table(engine.memory()) + engine.runtime().overhead().table()).c_str(),
               stdout);
    print("thread_stacks", engine.runtime().overhead().bytes("thread stacks"));
    std::array<shim_mapping, 4096> live{};
    int count = shim_.mappings(live.data(), static_cast<int>(live.size()));
    for (const shim_mapping& m : std::span(live).first(static_cast<size_t>(count))) {
      std::printf("mapping %ld %ld %d\n", m.asked, m.bytes, m.shared);
    }
  }

  void train(ds::Engine& engine) {
    shim_.reset();
    int64_t steps = std::stoll(argv_[5]), numel = kMicros * model_.rows;
    for (int64_t s = 1; s <= steps; ++s) {
      draw(s);
      ds::InputView inputs[] = {{tokens_.data(), DS_DTYPE_I32, numel},
                                {targets_.data(), DS_DTYPE_I32, numel}};
      print("loss", static_cast<long>(engine.train_batch(inputs).loss * 1e6));
      print("resident", resident());
      print("descriptors", open_descriptors());
      print("heap", settled_heap());
    }
    print("train", shim_.counts());
    shim_.reset();
    engine.checkpoints().load(engine.checkpoints().save(argv_[4]));
    print("save", shim_.counts());
    print("save.resident", resident());
  }

  // Returns the smallest heap size within some milliseconds, because after a step some of its
  // writes may still be running, each with a task on the heap.
  long settled_heap() const {
    long least = shim_.counts().heap;
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      least = std::min(least, shim_.counts().heap);
    }
    return least;
  }

  void draw(int64_t step) {
    ds::RandomStream stream{5, static_cast<uint32_t>(step), static_cast<uint32_t>(options_.rank),
                            0};
    for (size_t i = 0; i < tokens_.size(); ++i) {
      std::array<uint32_t, 4> words = stream.block(i);
      tokens_[i] = static_cast<int32_t>(words[0] % model_.vocab);
      targets_[i] = static_cast<int32_t>(words[1] % model_.vocab);
    }
  }

  char** argv_;
  Model model_;
  Shim shim_;
  ds::CommOptions options_;
  ds::Graph graph_;
  std::vector<int32_t> tokens_, targets_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) return 2;
  try {
    Rank(argv).run();
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
