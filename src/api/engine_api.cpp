// This file implements the creation of engines and the calls of native mode.
//
// Creation is collective, so arguments are checked on all ranks before any rank continues:
// otherwise a rank with a wrong configuration would leave the others waiting. During a step,
// callbacks of the application may run (custom operations, collectives of the caller). `Inside`
// marks the handle during that time, so that a callback that uses the engine gets an error, not a
// deadlock or an inconsistent state.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "api/strides.h"
#include "checkpoint/agree.h"
#include "checkpoint/model_folder.h"
#include "comm/communicator.h"
#include "compile/plan.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "core/device/stream.h"
#include "core/device/thread_team.h"
#include "core/graph/graph.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/threads.h"
#include "kernels/host_update.h"

namespace ds {
namespace {

constexpr ds_engine_options kDefaults = {
    sizeof(ds_engine_options), 0, 0, nullptr, nullptr, nullptr, nullptr};

// The update of optimizer.type "Callback" by a function of the application.
class CallbackUpdate final : public HostUpdate {
 public:
  CallbackUpdate(ds_update_fn* update, void* user_data) : update_(update), user_data_(user_data) {}
  void update(const HostElements& e) const override {
    const ds_update given{.struct_size = sizeof(ds_update),
                          .param = static_cast<int32_t>(e.param),
                          .first = e.first,
                          .count = e.values.size(),
                          .values = e.values.data(),
                          .grads = e.grads.data(),
                          .states = e.states.data(),
                          .states_count = e.states.size(),
                          .update = e.update,
                          .lr = e.numbers.lr,
                          .weight_decay = e.numbers.weight_decay,
                          .beta1 = e.numbers.beta1,
                          .beta2 = e.numbers.beta2,
                          .eps = e.numbers.eps,
                          .momentum = e.numbers.momentum};
    if (const ds_status status = update_(&given, user_data_); status != DS_OK)
      raise(DS_ERROR_USER, "options.update returned {} for elements {} to {} of parameter {}",
            static_cast<int>(status), e.first, e.first + std::ssize(e.values), e.param);
  }

 private:
  ds_update_fn* const update_;
  void* const user_data_;
};

// Checks the options of ds_engine_create and converts them. The callback for initial values becomes
// a function that throws if the callback fails.
EngineOptions engine_options(const ds_engine_options& given, const Config& config, int ranks) {
  require(given.threads >= 0 && given.threads <= ThreadTeam::kMostThreads,
          "options.threads must be 0 to {}, got {}", ThreadTeam::kMostThreads, given.threads);
  require(given.trace == 0 || given.trace == 1, "options.trace must be 0 or 1, got {}",
          given.trace);
  EngineOptions out;
  out.trace = given.trace == 1;
  // The engine expects exceptions, so a status other than DS_OK is converted to one.
  if (given.init) {
    out.initial = [fn = given.init, data = given.init_user_data](
                      ParamId param, const std::string& name, int64_t first,
                      std::span<float> values) {
      ds_status status =
          fn(param.number(), name.c_str(), first, values.data(), values.size(), data);
      if (status != DS_OK)
        raise(DS_ERROR_USER, "options.init returned {} for parameter '{}'",
              static_cast<int>(status), TensorName(name));
    };
  }
  if (given.update)
    out.update = std::make_shared<CallbackUpdate>(given.update, given.update_user_data);
  out.threads = given.threads > 0 ? given.threads : threads_of_rank(config, ranks);
  return out;
}

// Throws if the last dimensions of a tensor do not match those of an input, such as [3,4] for
// [n,3]. A tensor with fewer than two dimensions is accepted as a list of elements.
void need_rows(const ds_tensor& tensor, const Value& input) {
  int64_t row = input.type.shape.numel(1), elements = 1;
  bool fits = tensor.dims.size() < 2 || row == 1 || !input.type.shape.symbolic();
  for (size_t d = tensor.dims.size(); d-- > 0 && !fits;) fits = (elements *= tensor.dims[d]) == row;
  require(fits, "input '{}' is {}, got {}", TensorName(input.name), input.type.text(),
          dims_text(tensor.dims));
}

// The inputs of a call in the form that the engine needs. An input that is NULL has no data; the
// engine checks whether it may be missing.
class CallInputs {
 public:
  CallInputs(const ds_engine* engine, const ds_tensor* const* inputs, size_t count,
             ds_stream* stream)
      : stream_(stream_of(stream, engine)) {
    need_array(inputs, count, "inputs");
    views_.resize(count);
    const Graph& graph = native(engine, "inputs").plan().graph;
    for (size_t i = 0; i < count; ++i) {
      if (!inputs[i]) continue;
      std::string argument = fmt::format("inputs[{}]", i);
      if (inputs[i]->is_inherited()) refuse_inherited(*inputs[i], argument);
      need_device(*inputs[i], engine, argument);
      if (i < graph.inputs.size()) need_rows(*inputs[i], graph.values[graph.inputs[i]]);
      compact_.push_back(std::make_unique<CompactTensor>(*inputs[i], stream_, argument));
      views_[i] = {compact_.back()->data(), inputs[i]->dtype, inputs[i]->numel};
    }
  }

  std::span<const InputView> views() const { return views_; }
  const StreamRef& stream() const { return stream_; }

 private:
  StreamRef stream_;
  std::vector<std::unique_ptr<CompactTensor>> compact_;
  std::vector<InputView> views_;
};

// Logs the plan's hash, which is equal on all ranks, and its notes.
void log_plan(const Plan& plan) {
  log_line(LogLevel::debug, fmt::format("rank {} of {}: plan {}", plan.zero.rank,
                                        plan.zero.mesh.ranks(), plan.hash));
  for (const std::string& note : plan.notes) log_line(LogLevel::info, note);
}

// Stores a value in an output that is [nullable].
void keep(double* out, double value) {
  if (out) *out = value;
}

}  // namespace

void need_trainable(const Graph& graph) {
  require(!graph.backward_begin.exists(),
          "graph '{}' must not be differentiated: the engine does it", graph.name);
  require(!graph.outputs.empty(), "graph '{}' must have its loss as output 0, got no output",
          graph.name);
  const TensorType& loss = graph.type(graph.outputs[0].value);
  require(loss.shape.rank() == 0, "output 0 of graph '{}' must be a scalar loss, got {}",
          graph.name, loss.text());
}

Engine& native(const ds_engine* engine, const char* call) {
  const ds_engine& handle = need(engine, "engine");
  if (!handle.native)
    raise(DS_ERROR_STATE, "{} needs an engine with a graph, got one in delegate mode", call);
  return *handle.native;
}

DelegateEngine& delegate(const ds_engine* engine, const char* call) {
  const ds_engine& handle = need(engine, "engine");
  if (!handle.delegate)
    raise(DS_ERROR_STATE, "{} needs an engine in delegate mode, got one with a graph", call);
  return *handle.delegate;
}

}  // namespace ds

ds_status ds_engine_options_init(ds_engine_options* options, size_t struct_size) {
  return ds::boundary(
      [&] { ds::write_options(options, struct_size, &ds::kDefaults, sizeof ds::kDefaults); });
}

ds_status ds_engine_create(ds_comm* comm, const char* config, const ds_graph* graph,
                           const ds_engine_options* options, ds_engine** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    auto handle = std::make_unique<ds_engine>();
    handle->comm =
        ds::need_or_null(comm, "comm") ? comm->comm : ds::create_communicator("self", {});
    handle->callbacks = handle->comm->callback_threads();
    ds::Config parsed;
    ds::EngineOptions wanted;
    // If the arguments of any rank are invalid, all ranks fail, so that no rank waits for one that
    // has given up.
    ds::agree(*handle->comm, "ds_engine_create", [&] {
      int world = handle->comm->size();
      parsed =
          ds::parse_config(ds::parse_config_text(ds::need_text(config, "config"), "config"), world);
      if (handle->comm->rank() == 0) ds::log_warnings(parsed);
      ds::fill_from_folder(parsed);
      wanted = ds::engine_options(ds::read_options(options, ds::kDefaults, "options"), parsed,
                                  handle->comm->local_size());
      if (ds::need_or_null(graph, "graph")) ds::need_trainable(graph->graph);
    });
    // Setting initial values is collective, so a rank without the callback gets one that leaves its
    // values unchanged.
    if (ds::agree_max(*handle->comm, wanted.initial ? 1 : 0, "options.init") > 0 && !wanted.initial)
      wanted.initial = [](ds::ParamId, const std::string&, int64_t, std::span<float>) {};
    if (graph) {
      handle->native = std::make_unique<ds::Engine>(std::move(parsed), graph->graph, *handle->comm,
                                                    std::move(wanted));
      ds::log_plan(handle->native->plan());
    } else {
      handle->delegate =
          std::make_unique<ds::DelegateEngine>(std::move(parsed), *handle->comm, std::move(wanted));
    }
    *out = handle.release();
  });
}

ds_status ds_train_batch(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                         ds_stream* stream, double* out_loss) {
  return ds::boundary([&] {
    ds::Engine& e = ds::native(engine, "ds_train_batch");
    ds::CallInputs call(engine, inputs, inputs_count, stream);
    ds::Inside inside(*engine);
    ds::keep(out_loss, e.train_batch(call.views(), nullptr, call.stream()).loss);
  });
}

ds_status ds_engine_join(ds_engine* engine, int64_t* out_steps) {
  return ds::boundary([&] {
    // Takes part in the steps of the other ranks until all ranks have called this function.
    ds::Engine& e = ds::native(engine, "ds_engine_join");
    ds::Inside inside(*engine);
    int64_t steps = e.join();
    if (out_steps) *out_steps = steps;
  });
}

// Unlike in ds_train_batch, the loss is that of this rank only.
ds_status ds_forward(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                     ds_stream* stream, double* out_loss) {
  return ds::boundary([&] {
    ds::Engine& e = ds::native(engine, "ds_forward");
    ds::CallInputs call(engine, inputs, inputs_count, stream);
    ds::Inside inside(*engine);
    ds::keep(out_loss, e.forward(call.views(), call.stream()));
  });
}

ds_status ds_backward(ds_engine* engine) {
  return ds::boundary([&] {
    // In delegate mode the host framework has run the backward pass, so the call only ends the
    // micro-step.
    if (ds::need(engine, "engine").delegate) return engine->delegate->end_micro_step();
    ds::Engine& e = ds::native(engine, "ds_backward");
    ds::Inside inside(*engine);
    e.backward();
  });
}

ds_status ds_step(ds_engine* engine) {
  return ds::boundary([&] {
    if (ds::need(engine, "engine").delegate) {
      engine->delegate->step();
    } else {
      ds::Engine& e = ds::native(engine, "ds_step");
      ds::Inside inside(*engine);
      e.step();
    }
  });
}

// The loss is the only result, so out_loss is required.
ds_status ds_eval_batch(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                        ds_stream* stream, double* out_loss) {
  return ds::boundary([&] {
    ds::Engine& e = ds::native(engine, "ds_eval_batch");
    ds::need(out_loss, "out_loss");
    ds::CallInputs call(engine, inputs, inputs_count, stream);
    ds::Inside inside(*engine);
    *out_loss = e.eval_batch(call.views(), call.stream());
  });
}

ds_status ds_infer(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                   ds_stream* stream, ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::Engine& e = ds::native(engine, "ds_infer");
    ds::CallInputs call(engine, inputs, inputs_count, stream);
    ds::Inferred made;
    {
      ds::Inside inside(*engine);
      made = e.infer(call.views(), call.stream());
    }
    const std::shared_ptr<ds::Device>& device = e.runtime().device();
    auto tensor = ds::own_tensor(DS_DTYPE_F32, made.dims, call.stream() ? device : nullptr);
    device->copy(tensor->data, made.values.data(),
                 static_cast<int64_t>(made.values.size() * sizeof(float)));
    *out = tensor.release();
  });
}

void ds_engine_destroy(ds_engine* engine) { ds::destroy(engine); }
