// ds_torch.h: the optimizer of a C++ program over libtorch, on ds.h alone. libtorch runs forward
// and backward; libds keeps masters and optimizer states, with ZeRO 0 to 2 and offload, and updates
// the parameters. The parameters must be on the CPU. docs/guides/libtorch.md is the guide.
#pragma once

#include <ds.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ds_torch {

/// An error of libds, with its status and its message.
class Error : public std::runtime_error {
 public:
  Error(ds_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  ds_status status() const { return status_; }

 private:
  ds_status status_;
};

/// Throws the error of a call of ds.h that has failed.
inline void check(ds_status status) {
  if (status != DS_OK) throw Error(status, ds_last_error_message());
}

/// Trains the parameters of a module. While the engine lives, their memory is the engine's, and
/// gradients go to the engine during backward, so that `grad()` of a parameter is undefined
/// afterwards. All ranks make the same calls in the same order.
class Engine {
 public:
  using Parameters = std::vector<std::pair<std::string, torch::Tensor>>;

  /// Takes the parameters that require a gradient. All ranks begin with the values of rank 0.
  /// `config` is JSON text; `comm` may be null, which means one rank; you may destroy it before the
  /// engine. `threads` of 0 means the cores divided by the ranks of this host.
  Engine(const torch::nn::Module& module, const std::string& config, ds_comm* comm = nullptr,
         int threads = 0)
      : Engine(trained(module), config, comm, threads) {}

  Engine(Parameters parameters, const std::string& config, ds_comm* comm = nullptr, int threads = 0)
      : parameters_(std::move(parameters)) {
    ds_engine_options options;
    check(ds_engine_options_init(&options, sizeof options));
    options.threads = threads;
    ds_engine* engine = nullptr;
    check(ds_engine_create(comm, config.c_str(), nullptr, &options, &engine));
    engine_.reset(engine);
    for (const auto& [name, tensor] : parameters_) add(name, tensor);
    check(ds_engine_start(engine));
    for (std::size_t i = 0; i < parameters_.size(); ++i) move_in(i, comm);
    begin_micro_step();
    // Nothing fails from here on, so a hook never outlives its engine.
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].second,
                                                     std::make_unique<Hook>(this, i));
  }

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Gives the parameters memory of their own again, with their values.
  ~Engine() {
    for (auto& [name, tensor] : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
      tensor.set_data(tensor.detach().clone());
    }
  }

  /// Computes the gradients of a micro-step from its loss, which with fp16 is multiplied by the
  /// loss scale first, and hands them over. A parameter without a gradient counts as zero.
  /// Collective. After an exception the step cannot be completed.
  void backward(const torch::Tensor& loss) {
    const double scale = get("loss_scale");
    (scale == 1.0 ? loss : loss * scale).backward();
    while (waiting_ > 0) hand_over(--waiting_);
    check(ds_backward(engine_.get()));
    begin_micro_step();
  }

  /// Updates the parameters, after gradient_accumulation_steps micro-steps. If gradients are not
  /// finite, nothing is updated, and ds_engine_skip_reason says so. Collective.
  void step() { check(ds_step(engine_.get())); }

  /// Saves a checkpoint below `folder`; `options` are those of ds_checkpoint_save. Collective.
  void save(const std::string& folder, const std::string& options = "{}") {
    check(ds_checkpoint_save(engine_.get(), folder.c_str(), options.c_str()));
  }

  /// Loads the newest checkpoint below `folder`, of any number of ranks, stage and offload; returns
  /// its client state as JSON. Collective.
  std::string load(const std::string& folder, const std::string& options = "{}") {
    char* text = nullptr;
    check(ds_checkpoint_load(engine_.get(), folder.c_str(), options.c_str(), &text));
    std::string state = text;
    ds_text_destroy(text);
    return state;
  }

  /// Reads and changes the numbers of ds_engine_get and ds_engine_set, such as "lr".
  double get(const char* name) const {
    double value = 0;
    check(ds_engine_get(engine_.get(), name, &value));
    return value;
  }
  void set(const char* name, double value) { check(ds_engine_set(engine_.get(), name, value)); }

  /// The engine, for all other calls of ds.h. Parameter i is number i there.
  ds_engine* handle() const { return engine_.get(); }
  const Parameters& parameters() const { return parameters_; }

 private:
  struct Destroy {
    void operator()(ds_engine* engine) const { ds_engine_destroy(engine); }
    void operator()(ds_tensor* tensor) const { ds_tensor_destroy(tensor); }
  };

  /// Tells the engine that a parameter has its gradient of this backward.
  struct Hook : torch::autograd::PostAccumulateGradHook {
    Hook(Engine* engine, std::size_t index) : engine(engine), index(index) {}
    void operator()(const torch::autograd::Variable&) override { engine->ready(index); }
    Engine* engine;
    std::size_t index;
  };

  /// A tensor that several names share comes once, with its first name.
  static Parameters trained(const torch::nn::Module& module) {
    Parameters found;
    for (const auto& item : module.named_parameters()) {
      const auto same = [&](const auto& one) { return one.second.is_same(item.value()); };
      if (item.value().requires_grad() && std::none_of(found.begin(), found.end(), same))
        found.emplace_back(item.key(), item.value());
    }
    return found;
  }

  void add(const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.device().is_cpu())
      throw Error(DS_ERROR_INVALID_ARGUMENT,
                  "parameter '" + name + "' must be on the CPU, got " + tensor.device().str());
    if (!tensor.is_floating_point())
      throw Error(DS_ERROR_INVALID_ARGUMENT, "parameter '" + name +
                                                 "' must be floating point, got " +
                                                 c10::toString(tensor.scalar_type()));
    int32_t number = 0;
    const auto dims = tensor.sizes();
    check(ds_engine_param_add(engine_.get(), name.c_str(), DS_DTYPE_NONE, dims.data(), dims.size(),
                              &number));
  }

  /// Writes the value of rank 0 to the engine, and lets the parameter use the engine's memory.
  void move_in(std::size_t index, ds_comm* comm) {
    torch::Tensor& tensor = parameters_[index].second;
    const auto number = static_cast<int32_t>(index);
    auto values = tensor.detach().to(torch::kFloat32, false, true).contiguous();
    auto* data = values.data_ptr<float>();
    const auto count = static_cast<std::size_t>(values.numel());
    if (comm && ds_comm_size(comm) > 1)
      check(ds_comm_broadcast(comm, data, count * sizeof(float), 0));
    check(ds_engine_write(engine_.get(), number, "master", data, count));
    tensor.set_data(view(index));
    tensor.mutable_grad().reset();
  }

  /// Returns a tensor over the engine's memory, which keeps that memory alive.
  torch::Tensor view(std::size_t index) {
    const auto& [name, tensor] = parameters_[index];
    ds_tensor* view = nullptr;
    const ds_status status =
        ds_engine_param_view(engine_.get(), static_cast<int32_t>(index), nullptr, &view);
    if (status == DS_ERROR_STATE)
      throw Error(DS_ERROR_CONFIG,
                  "zero_optimization.stage: ds_torch.h works at stages 0 to 2, but "
                  "parameter '" +
                      name + "' is partitioned, as stage 3 does");
    check(status);
    ds_dtype dtype = DS_DTYPE_NONE;
    void* data = nullptr;
    check(ds_tensor_info(view, &dtype, nullptr, nullptr, 0, nullptr, nullptr, &data));
    const auto type = dtype == DS_DTYPE_BF16  ? torch::kBFloat16
                      : dtype == DS_DTYPE_F16 ? torch::kFloat16
                                              : torch::kFloat32;
    return torch::from_blob(
        data, tensor.sizes(), [view](void*) { ds_tensor_destroy(view); }, type);
  }

  void begin_micro_step() {
    waiting_ = parameters_.size();
    ready_.assign(waiting_, false);
  }

  /// Hands over the gradients that have arrived, from the last parameter to the first on all ranks.
  /// An early one waits, because the order in which autograd finds them may differ between ranks.
  void ready(std::size_t index) {
    if (index >= waiting_)
      throw Error(DS_ERROR_STATE, "parameter '" + parameters_[index].first +
                                      "' has its gradient of this micro-step: give its whole loss "
                                      "to one call of ds_torch::Engine::backward");
    ready_[index] = true;
    while (waiting_ > 0 && ready_[waiting_ - 1]) hand_over(--waiting_);
  }

  void hand_over(std::size_t index) {
    auto& [name, tensor] = parameters_[index];
    torch::Tensor grad = ready_[index] ? tensor.grad() : torch::zeros_like(tensor);
    if (grad.layout() != torch::kStrided)
      throw Error(DS_ERROR_INVALID_ARGUMENT,
                  "the gradient of '" + name + "' must be dense: set sparse(false)");
    const auto dtype = grad.scalar_type() == torch::kFloat32    ? DS_DTYPE_F32
                       : grad.scalar_type() == torch::kBFloat16 ? DS_DTYPE_BF16
                                                                : DS_DTYPE_F16;
    ds_tensor* lent = nullptr;
    check(ds_tensor_create(dtype, grad.sizes().data(), grad.sizes().size(), grad.strides().data(),
                           grad.data_ptr(), nullptr, &lent));
    const std::unique_ptr<ds_tensor, Destroy> held(lent);
    check(ds_grad_ready(engine_.get(), static_cast<int32_t>(index), lent, nullptr));
    tensor.mutable_grad().reset();
  }

  Parameters parameters_;
  std::unique_ptr<ds_engine, Destroy> engine_;
  std::size_t waiting_ = 0;  // gradients that have not been handed over in this micro-step
  std::vector<bool> ready_;  // gradients that autograd has computed in this micro-step
};

}  // namespace ds_torch
