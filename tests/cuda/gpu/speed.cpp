// Measures the speed of the device: updates compared with copies, matrix products, attention, and a
// training step of GPT-2.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/trace.h"
#include "cuda/gpu/check.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "support/interpret.h"

namespace ds::test {
namespace {

struct Operand {
  DType dtype;
  std::vector<int64_t> dims;
};

// Returns the seconds of one launch on random operands.
double seconds_of_kernel(Session& session, const char* op, const Attrs& attrs,
                         const std::vector<Operand>& in, const std::vector<Operand>& out) {
  Device& device = session.device();
  std::vector<std::shared_ptr<Arena>> arenas;
  auto views = [&](const std::vector<Operand>& operands) {
    std::vector<TensorView> made;
    for (const Operand& o : operands) {
      TensorView view;
      view.dtype = o.dtype;
      view.rank = static_cast<int>(o.dims.size());
      std::copy(o.dims.begin(), o.dims.end(), std::begin(view.dims));
      arenas.push_back(device.make_arena(Device::Place::device, view.bytes()));
      view.data = arenas.back()->address();
      made.push_back(view);
    }
    return made;
  };
  std::vector<TensorView> inputs = views(in), outputs = views(out);
  // Fills operands with ordinary numbers: with zeros, a processor uses less power and is therefore
  // faster.
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype == DS_DTYPE_I32) continue;
    constexpr int64_t kDrawn = 1 << 16;
    Tensor drawn = random_tensor(in[i].dtype, {kDrawn}, 70 + i);
    for (int64_t at = 0; at < inputs[i].bytes(); at += drawn.view().bytes()) {
      device.copy(static_cast<std::byte*>(inputs[i].data) + at, drawn.bytes().data(),
                  std::min(drawn.view().bytes(), inputs[i].bytes() - at));
    }
  }
  StepScalars scalars;
  scalars.group = {.lr = 1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  arenas.push_back(device.make_arena(Device::Place::device, 256));
  device.copy(arenas.back()->address(), &scalars, sizeof scalars);
  const auto* block = reinterpret_cast<const StepScalars*>(arenas.back()->address());
  std::unique_ptr<Kernel> kernel = session.queue().make_kernel({op, inputs, outputs, attrs, {}});
  return seconds_of(session, session.small() ? 1 : 20, [&] {
    session.queue().launch(*kernel, {inputs, outputs, block, 0, {}});
  });
}

constexpr DType kF32 = DS_DTYPE_F32, kBf16 = DS_DTYPE_BF16;

void updates(Session& session, Report& report) {
  const int64_t n = session.small() ? 4096 : 124 << 20;
  std::shared_ptr<Arena> one = session.device().make_arena(Device::Place::device, n * 4),
                         two = session.device().make_arena(Device::Place::device, n * 4);
  // Takes the best of several measurements: a single one was once 12 % lower than minutes later.
  double copy = 0;
  for (int i = 0; i < 3; ++i) {
    const double seconds = seconds_of(session, session.small() ? 1 : 20, [&] {
      session.queue().copy(two->address(), one->address(), n * 4);
    });
    copy = std::max(copy, 2 * 4 * static_cast<double>(n) / seconds);
  }
  report.figure("copy GB/s", copy * 1e-9);
  auto update = [&](const char* name, const char* op, double bytes, std::vector<Operand> in,
                    std::vector<Operand> out) {
    report.attempt(name, [&] {
      const double rate =
          bytes * static_cast<double>(n) / seconds_of_kernel(session, op, {}, in, out);
      report.figure(fmt::format("{} GB/s", name), rate * 1e-9);
      report.figure(fmt::format("{} / copy", name), rate / copy);
    });
  };
  const Operand f32{kF32, {n}}, bf16{kBf16, {n}};
  update("adamw", "adamw", 30, {f32}, {f32, f32, f32, bf16});
  update("sgd", "sgd", 22, {f32}, {f32, f32, bf16});
  update("add bf16", "add", 6, {{kBf16, {n / 1024, 1024}}, {kBf16, {n / 1024, 1024}}},
         {{kBf16, {n / 1024, 1024}}});
}

void library(Session& session, Report& report) {
  for (DType dtype : {kBf16, kF32}) {
    const int64_t n = session.small() ? 32 : 8192, k = session.small() ? 32 : 4096;
    report.attempt(dtype_name(dtype), [&] {
      const double seconds = seconds_of_kernel(
          session, "linear", {}, {{dtype, {n, k}}, {dtype, {k, k}}}, {{dtype, {n, k}}});
      report.figure(fmt::format("{} product of {} x {} x {} TFLOP/s", dtype_name(dtype), n, k, k),
                    2.0 * static_cast<double>(n * k * k) / seconds * 1e-12);
    });
  }
}

void attention(Session& session, Report& report) {
  const int64_t batch = session.small() ? 1 : 16, seq = session.small() ? 16 : 1024, heads = 12,
                depth = session.small() ? 4 : 64, n = batch * seq, width = heads * depth;
  const Attrs attrs{{"heads", heads}, {"seq", seq}};
  const Operand qkv{kBf16, {n, 3 * width}}, y{kBf16, {n, width}}, lse{kF32, {heads, n}};
  // 4 flops for each pair of positions and each column. Half of the pairs are masked.
  const double pairs = static_cast<double>(n * seq * width);
  report.attempt("attention", [&] {
    report.figure(
        "forward TFLOP/s",
        2 * pairs / seconds_of_kernel(session, "attention", attrs, {qkv}, {y, lse}) * 1e-12);
    report.figure("backward TFLOP/s",
                  5 * pairs /
                      seconds_of_kernel(session, "attention_dx", attrs, {y, qkv, y, lse}, {qkv}) *
                      1e-12);
  });
}

// Measures GPT-2 124M in bf16 with f32 masters and states, clipping at 1 and AdamW, on random
// tokens.
void gpt2(Session& session, Report& report) {
  const int64_t samples = session.small() ? 1 : 16, seq = session.small() ? 8 : 1024,
                layers = session.small() ? 1 : 12, width = session.small() ? 24 : 768,
                vocab = session.small() ? 97 : 50257;
  Json json = Json::parse(
      R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 1024,
      "n_head": 12, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})",
      "gpt2");
  json.set("n_embd", width);
  json.set("n_layer", layers);
  json.set("vocab_size", vocab);
  HfModel model = hf_model(json, samples * seq, seq, HfMode::training);
  Config config;
  config.train_batch = config.micro_batch = samples;
  config.accumulation = 1;
  config.compute = kBf16;
  config.device = session.name();
  config.optimizer.lr = 1e-4;
  config.optimizer.weight_decay = 0.01;
  auto comm = create_communicator("self", {});
  const int64_t before = *session.device().free_memory();
  Engine engine(config, model.graph, *comm, {});
  const int64_t taken = before - *session.device().free_memory(),
                planned = engine.plan().memory.total(Tier::device);
  report.figure("planned MiB", static_cast<double>(planned >> 20));
  report.figure("taken MiB", static_cast<double>(taken >> 20));
  std::vector<int32_t> tokens(static_cast<size_t>(samples * seq)), targets(tokens.size());
  RandomStream stream{1, 0, 0, 0};
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(stream.block(i)[0] % static_cast<uint32_t>(vocab));
  for (size_t i = 0; i < tokens.size(); ++i)
    targets[i] = (i + 1) % static_cast<size_t>(seq) == 0 ? -100 : tokens[i + 1];
  const auto numel = static_cast<int64_t>(tokens.size());
  InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                        {targets.data(), DS_DTYPE_I32, numel}};
  std::vector<double> seconds;
  double first = 0, last = 0;
  for (int step = 0; step < (session.small() ? 2 : 25); ++step) {
    const int64_t begin = now_ns();
    last = engine.train_batch(inputs).loss;
    if (step == 0) first = last;
    if (step > 4 || session.small())
      seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
  }
  std::sort(seconds.begin(), seconds.end());
  report.figure("step ms, median", seconds[seconds.size() / 2] * 1e3);
  report.figure("tokens/s, median", static_cast<double>(numel) / seconds[seconds.size() / 2]);
  report.figure("tokens/s, best", static_cast<double>(numel) / seconds.front());
  report.figure("loss, first", first);
  report.figure("loss, last", last);
  report.equal(last < first, fmt::format("the loss falls: {} and then {}", first, last));
}

}  // namespace

void add_speed_checks(std::vector<Check>& checks, bool) {
  checks.push_back(
      {"C", "speed", "GPT-2 124M, 16 x 1024", "nothing: figures of a training step", gpt2});
  checks.push_back({"C", "speed", "updates", "nothing: rates beside a copy's", updates});
  checks.push_back({"C", "speed", "products", "nothing: figures of cuBLASLt", library});
  checks.push_back({"C", "speed", "attention", "nothing: figures of our own kernel", attention});
}

}  // namespace ds::test
