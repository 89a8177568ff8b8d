// A training run of two ranks (threads) that the replay tests record.
//   run_driver FOLDER TEXT STEPS
// Trains into FOLDER/run on the file TEXT and saves every 2 steps; resumes if FOLDER/run holds a
// run. Prints "STEP LOSS" after each step, by one write, with the loss as a hexadecimal float.
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "core/base/error.h"
#include "run/folder.h"
#include "run/train.h"

namespace {

constexpr int kRanks = 2;

ds::Json config_of(const std::string& folder, const std::string& text, int steps) {
  return ds::Json::parse(fmt::format(R"({{
    "train_micro_batch_size_per_gpu": 2, "optimizer": {{"type": "AdamW", "params": {{"lr": 0.005}}}},
    "zero_optimization": {{"stage": 2}},
    "model": {{"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "dropout": 0.1}},
    "data": {{"heldout": 0.1, "paths": ["{}"]}},
    "run": {{"dir": "{}/run", "steps": {}, "sequence": 16, "eval_every": 2, "eval_samples": 2, "save_every": 2,
             "keep": 0, "sample_tokens": 2, "threads": 1}}
  }})",
                                     text, folder, steps));
}

void rank(int rank, char** argv) {
  std::string folder = argv[1];
  ds::TrainOptions options;
  options.quiet = 2;
  if (ds::is_run_folder(folder + "/run")) options.resume = folder + "/run";
  options.progress = [](const ds::RunProgress& now) {
    char line[100];
    int size = std::snprintf(line, sizeof line, "%ld %a\n", static_cast<long>(now.step), now.loss);
    return ::write(STDOUT_FILENO, line, static_cast<size_t>(size)) == size;
  };
  auto comm = ds::create_communicator("threads://run_driver", {rank, kRanks, 20000, 20000});
  ds::train(config_of(folder, argv[2], std::atoi(argv[3])), *comm, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int code = 0;
  auto body = [&](int number) {
    try {
      rank(number, argv);
    } catch (const std::exception& error) {
      if (number == 0) std::fprintf(stderr, "%s\n", error.what());
      code = 1;
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return code;
}
