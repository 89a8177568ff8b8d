// Trains a model of libtorch with ds_torch.h and with torch::optim::AdamW, on the ranks of
// `libds launch`. Rank 0 prints a line for each case; the exit code is 1 if one has failed.
#include <ds_torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

constexpr int kSteps = 20, kVocab = 64, kWidth = 32, kLength = 16, kBatch = 4;
constexpr double kRate = 1e-2, kDecay = 0.1, kClip = 1.0;
int failed = 0;

/// Has a head that shares the embedding, a parameter that nothing uses and one that is frozen.
struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(1);
    embedding = register_module("embedding", torch::nn::Embedding(kVocab, kWidth));
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<int64_t>{kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
    head = register_parameter("head", embedding->weight);
    register_parameter("unused", torch::ones({3}));
    frozen = register_parameter("frozen", torch::full({}, 0.2), false);
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    const auto x = embedding->forward(tokens.slice(1, 0, kLength));
    const auto y = x + down->forward(torch::gelu(up->forward(norm->forward(x))));
    const auto logits = torch::matmul(y, head.t()).to(torch::kFloat32) * frozen;
    return torch::nn::functional::cross_entropy(logits.view({-1, kVocab}),
                                                tokens.slice(1, 1).reshape({-1}));
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::Tensor head, frozen;
};

void report(const char* name, bool ok, const std::string& detail, const ds_comm* comm) {
  failed += ok ? 0 : 1;
  if (ds_comm_rank(comm) == 0)
    std::printf("%-4s %s: %s\n", ok ? "ok" : "FAIL", name, detail.c_str());
}

/// Returns the batch of a leaf, the number of a micro-batch in the run. Each token depends on the
/// one before it.
torch::Tensor tokens_of(int leaf) {
  auto tokens = torch::empty({kBatch, kLength + 1}, torch::kInt64);
  uint64_t state = static_cast<uint64_t>(leaf) + 1;
  const auto draw = [&state](int below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int64_t>(state >> 33) % below;
  };
  auto values = tokens.accessor<int64_t, 2>();
  for (int row = 0; row < kBatch; ++row) {
    values[row][0] = draw(kVocab);
    for (int i = 1; i <= kLength; ++i) values[row][i] = (values[row][i - 1] * 5 + draw(4)) % kVocab;
  }
  return tokens;
}

std::vector<double> reference(int leaves) {
  Net net;
  std::vector<torch::Tensor> trained;
  for (const auto& item : net.named_parameters())
    if (item.key() != "frozen" && item.key() != "head") trained.push_back(item.value());
  torch::optim::AdamW optimizer(
      trained, torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).eps(1e-8).weight_decay(kDecay));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (int leaf = 0; leaf < leaves; ++leaf) {
      const auto loss = net.forward(tokens_of(step * leaves + leaf));
      (loss / leaves).backward();
      sum += loss.item<double>();
    }
    torch::nn::utils::clip_grad_norm_(trained, kClip);
    optimizer.step();
    losses.push_back(sum / leaves);
  }
  return losses;
}

struct Case {
  int stage, micro_steps;
  std::string offload, precision;
};

std::string config(const Case& one) {
  std::string zero = "{\"stage\": " + std::to_string(one.stage);
  if (one.offload != "none")
    zero += ", \"offload_optimizer\": {\"device\": \"" + one.offload + "\", \"nvme_path\": \".\"}";
  return "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": 1.0," + one.precision +
         "\"gradient_accumulation_steps\": " + std::to_string(one.micro_steps) +
         ", \"emulate_tiers\": " + (one.offload == "cpu" ? "true" : "false") +
         ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"betas\": [0.9, "
         "0.95], "
         "\"eps\": 1e-8, \"weight_decay\": 0.1}}, \"zero_optimization\": " +
         zero + "}}";
}

/// Trains steps `first` to `last`, and returns their mean losses over all ranks.
std::vector<double> train(ds_torch::Engine& engine, Net& net, const Case& one, int first, int last,
                          ds_comm* comm) {
  const int size = ds_comm_size(comm);
  std::vector<double> losses, all(static_cast<std::size_t>(size));
  for (int step = first; step < last; ++step) {
    double mean = 0;
    for (int micro = 0; micro < one.micro_steps; ++micro) {
      const int leaf = (step * one.micro_steps + micro) * size + ds_comm_rank(comm);
      const auto loss = net.forward(tokens_of(leaf));
      engine.backward(loss);
      const double value = loss.item<double>();
      ds_torch::check(ds_comm_all_gather(comm, &value, sizeof value, all.data()));
      for (double of_rank : all) mean += of_rank / (size * one.micro_steps);
    }
    engine.step();
    losses.push_back(mean);
  }
  return losses;
}

double largest(const std::vector<double>& one, const std::vector<double>& other) {
  double worst = one.size() == other.size() ? 0 : NAN;
  for (std::size_t i = 0; i < one.size() && i < other.size(); ++i)
    worst = std::isnan(one[i] - other[i]) ? NAN : std::max(worst, std::abs(one[i] - other[i]));
  return worst;
}

std::vector<double> whole(const Case& one, ds_comm* comm) {
  Net net;
  torch::NoGradGuard no_grad;
  for (auto& parameter : net.parameters())
    if (parameter.requires_grad())
      parameter.add_(ds_comm_rank(comm));  // the values of rank 0 count
  torch::AutoGradMode grad(true);
  ds_torch::Engine engine(net, config(one), comm);
  return train(engine, net, one, 0, kSteps, comm);
}

std::vector<double> resumed(const Case& one, const std::string& folder, ds_comm* comm) {
  std::vector<double> losses;
  {
    Net net;
    ds_torch::Engine engine(net, config(one), comm);
    losses = train(engine, net, one, 0, kSteps / 2, comm);
    engine.save(folder, "{\"client_state\": [10]}");
  }
  Net net;
  const Case other = {0, one.micro_steps, "cpu", ""};
  ds_torch::Engine engine(net, config(other), comm);
  const std::string state = engine.load(folder);
  const auto rest = train(engine, net, other, kSteps / 2, kSteps, comm);
  losses.insert(losses.end(), rest.begin(), rest.end());
  return state == "[10]" ? losses : std::vector<double>{};
}

void same_numbers(ds_comm* comm) {
  for (int micro_steps : {1, 3}) {
    const auto wanted = reference(ds_comm_size(comm) * micro_steps);
    std::vector<double> first;
    const auto compare = [&](const std::string& name, const std::vector<double>& losses) {
      if (first.empty()) first = losses;
      char detail[120];
      const double worst = largest(losses, wanted);
      std::snprintf(detail, sizeof detail, "%.4f -> %.4f, largest difference %.1e, %s", wanted[0],
                    wanted.back(), worst, losses == first ? "the same bits" : "OTHER BITS");
      report(name.c_str(), worst <= 2e-6 && losses == first, detail, comm);
    };
    for (int stage : {0, 1, 2})
      for (const char* offload : {"none", "cpu", "nvme"})
        compare(std::to_string(micro_steps) + " micro-steps, stage " + std::to_string(stage) +
                    ", offload " + offload,
                whole({stage, micro_steps, offload, ""}, comm));
    compare("resumed",
            resumed({2, micro_steps, "none", ""}, "saved" + std::to_string(micro_steps), comm));
  }
}

void small_types(ds_comm* comm) {
  const auto wanted = reference(ds_comm_size(comm));
  const std::pair<const char*, const char*> types[] = {
      {"bf16", "\"bf16\": {\"enabled\": true},"},
      {"fp16", "\"fp16\": {\"enabled\": true, \"loss_scale\": 64},"}};
  for (const auto& [name, precision] : types) {
    const double worst = largest(whole({1, 1, "none", precision}, comm), wanted);
    report(name, worst <= 0.1, "largest difference from f32 " + std::to_string(worst), comm);
  }
}

void refused(const char* name, const std::string& words, const ds_comm* comm,
             const std::function<void()>& call) {
  try {
    call();
    report(name, false, "was taken", comm);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    report(name, text.find(words) != std::string::npos, text, comm);
  }
}

void bad_input(ds_comm* comm) {
  const Case one = {2, 1, "none", ""};
  refused("integers", "parameter 'n' must be floating point, got Long", comm, [&] {
    ds_torch::Engine({{"n", torch::ones({2}, torch::kInt64)}}, config(one), comm);
  });
  refused("stage 3", "works at stages 0 to 2, but parameter 'w'", comm, [&] {
    ds_torch::Engine({{"w", torch::ones({1 << 18}).requires_grad_()}}, config({3, 1, "none", ""}),
                     comm);
  });
  refused("a sparse gradient", "the gradient of 'weight' must be dense", comm, [&] {
    torch::nn::Embedding rows(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    ds_torch::Engine engine(*rows, config(one), comm);
    engine.backward(rows->forward(torch::zeros({3}, torch::kInt64)).sum());
  });
  auto w = torch::ones({3}).requires_grad_();
  {
    ds_torch::Engine engine({{"w", w}}, config(one), comm);
    engine.backward((w * NAN).sum());
    engine.step();
    report("NaN", torch::equal(w, torch::ones({3})), "nothing was updated", comm);
    refused("a step without its micro-step", "ds_step", comm, [&] { engine.step(); });
    engine.backward(w.sum());
    engine.step();
    report("no gradient is kept", !w.grad().defined(), "after backward", comm);
    (w * 2).sum().backward();
    refused("a second backward", "parameter 'w' has its gradient", comm,
            [&] { engine.backward(w.sum()); });
  }
  const auto before = w.detach().clone();
  w.sum().backward();
  report("after the engine", torch::equal(w.detach(), before) && w.grad().defined(),
         "the parameter is torch's again", comm);
}

}  // namespace

int main() try {
  torch::set_num_threads(1);
  ds_comm* comm = nullptr;
  ds_torch::check(ds_comm_create("env", nullptr, &comm));
  same_numbers(comm);
  small_types(comm);
  bad_input(comm);
  ds_comm_destroy(comm);
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "libtorch_host: %s\n", error.what());
  return 1;
}
