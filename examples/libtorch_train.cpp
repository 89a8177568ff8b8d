// Trains a small network of libtorch with libds as its optimizer, on any number of ranks, with
// ZeRO 2. Run: libds launch -n 2 libtorch_train
#include <ds_torch.h>

#include <cstdio>

static const char* kConfig = R"({"train_micro_batch_size_per_gpu": 64,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "zero_optimization": {"stage": 2}})";

int main() try {
  ds_comm* comm = nullptr;
  ds_torch::check(ds_comm_create("env", nullptr, &comm));
  torch::set_num_threads(1);
  torch::manual_seed(1 + ds_comm_rank(comm));  // each rank draws its own batches
  torch::nn::Sequential net(torch::nn::Linear(4, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                            torch::nn::Tanh(), torch::nn::Linear(64, 1));
  double last = 0;
  {
    ds_torch::Engine engine(*net, kConfig, comm);
    for (int step = 1; step <= 100; ++step) {
      const auto x = torch::randn({64, 4});
      const auto loss = torch::mse_loss(net->forward(x), x.sum(1, true).sin());
      engine.backward(loss);
      engine.step();
      last = loss.item<double>();
      if (ds_comm_rank(comm) == 0 && step % 25 == 0) std::printf("step %d loss %.4f\n", step, last);
    }
  }
  ds_comm_destroy(comm);
  return last < 0.1 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "libtorch_train: %s\n", error.what());
  return 1;
}
