// Saves and loads an engine's checkpoints for bench/checkpoint.py. Each line of standard input is
// one of "save FOLDER", "start FOLDER" (an asynchronous save, answered when the call returns),
// "wait", "load PATH" (into a new engine, as a resume does; making the engine is not counted) and
// "reload PATH" (into an engine that has changed). The answer is a line "SECONDS PATH". The first
// line written is "BYTES ready", with the bytes of state in a checkpoint.
//
//   bench_checkpoint [MILLIONS=124] [THREADS=2]
#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/base/trace.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "engine/engine.h"

namespace ds {
namespace {

// Returns a graph with at least `millions` x 10^6 parameters in the shapes of GPT-2's, in whole
// blocks. The loss is only a sum of mse terms that uses all of them, because this bench never makes
// a step.
Graph gpt2_shapes(int64_t millions) {
  Graph g;
  g.bound = 1;
  ValueId loss;
  int64_t have = 0;
  auto add = [&](const std::string& name, Shape shape) {
    TensorType type{DS_DTYPE_BF16, std::move(shape)};
    have += type.shape.numel(1);
    ValueId one =
        g.add("mse", {g.add_param(name, type, {"normal", 0.02}), g.add_input("t." + name, type)});
    loss = loss.exists() ? g.add("add", {loss, one}) : one;
  };
  add("wte.weight", {50257, 768});
  add("wpe.weight", {1024, 768});
  for (int64_t i = 0; have < millions * 1000000; ++i) {
    const std::string h = fmt::format("h.{}.", i);
    add(h + "ln_1.weight", {768});
    add(h + "ln_1.bias", {768});
    add(h + "attn.qkv.weight", {2304, 768});
    add(h + "attn.qkv.bias", {2304});
    add(h + "attn.proj.weight", {768, 768});
    add(h + "attn.proj.bias", {768});
    add(h + "ln_2.weight", {768});
    add(h + "ln_2.bias", {768});
    add(h + "mlp.fc.weight", {3072, 768});
    add(h + "mlp.fc.bias", {3072});
    add(h + "mlp.proj.weight", {768, 3072});
    add(h + "mlp.proj.bias", {768});
  }
  g.add_output("loss", loss);
  return g;
}

void serve(int64_t millions, int threads) {
  Config config;
  config.micro_batch = config.accumulation = config.train_batch = 1;
  config.compute = DS_DTYPE_BF16;
  EngineOptions options;
  options.threads = threads;
  options.programs.infer = false;
  const Graph graph = gpt2_shapes(millions);
  std::unique_ptr<Communicator> comm = create_communicator("self", {});
  auto make = [&] { return std::make_unique<Engine>(config, graph, *comm, options); };
  std::unique_ptr<Engine> engine = make();
  fmt::print("{} ready\n", engine->store().copy_bytes());
  std::fflush(stdout);
  for (std::string verb, path; std::cin >> verb;) {
    if (verb != "wait") std::cin >> path;
    // Making the engine is not counted as part of a load.
    if (verb == "load") {
      engine.reset();
      engine = make();
    }
    const int64_t begin = now_ns();
    if (verb == "save") {
      path = engine->checkpoints().save(path);
    } else if (verb == "start") {
      engine->checkpoints().start_save(path);
    } else if (verb == "wait") {
      path = engine->checkpoints().wait();
    } else {
      engine->checkpoints().load(path);
    }
    fmt::print("{:.6f} {}\n", static_cast<double>(now_ns() - begin) * 1e-9, path);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  const int64_t millions = argc > 1 ? std::atol(argv[1]) : 124;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  if (millions < 40 || threads < 1) {
    fmt::print(stderr, "usage: bench_checkpoint [MILLIONS=124] [THREADS=2]\n");
    return 2;
  }
  try {
    ds::serve(millions, threads);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_checkpoint: {}\n", error.what());
    return 1;
  }
  return 0;
}
