// This file implements access to the state of an engine: parameters by index, optimizer states,
// scalar values, plan and trace.
//
// States and scalar values are named by texts, so that new ones need no new functions. Whole
// tensors are read and written collectively, since each rank holds parts of them. The functions for
// local access use only elements whose states this rank owns, and the caller must refresh the
// compute copies afterwards.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/suggest.h"
#include "core/base/tier.h"
#include "core/base/trace.h"
#include "core/graph/ops.h"
#include "engine/delegate.h"
#include "engine/overhead.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "io/file.h"
#include "nn/adapter_keys.h"

namespace {

ds::ParamId param_id(const ds::StateStore& store, int32_t param) {
  store.check_param(ds::ParamId(param));
  return ds::ParamId(param);
}

// Returns the name of a state. The store checks it; its error lists the known names.
std::string state_name(const char* state) { return std::string(ds::need_text(state, "state")); }

// Returns a scalar value of the engine by name.
double number(const ds_engine& handle, std::string_view name) {
  const ds::StepControl& control = ds::control(&handle);
  const ds::Runtime& runtime = ds::runtime(&handle);
  if (name == "step") return static_cast<double>(control.steps());
  if (name == "updates") return static_cast<double>(control.updates());
  if (name == "loss") return control.last().loss;
  if (name == "grad_norm") return control.last().grad_norm;
  if (name == "loss_scale") return control.scaler().scale;
  if (handle.delegate) {
    if (std::optional<double> own = handle.delegate->micro_steps().get(name)) return *own;
  }
  if (std::optional<double> set = control.get(name)) return *set;
  if (constexpr std::string_view kAdapter = "adapter.";
      handle.native && name.starts_with(kAdapter)) {
    const std::string wanted(name.substr(kAdapter.size()));
    return ds::adapter_number(runtime.config().get<ds::AdapterKeys>(), wanted) ==
                   handle.native->chosen_adapter()
               ? 1
               : 0;
  }
  for (ds::Tier tier : {ds::Tier::device, ds::Tier::host, ds::Tier::nvme}) {
    if (name == std::string(ds::tier_name(tier)) + "_bytes")
      return static_cast<double>(runtime.mapped(tier));
  }
  if (name == "overhead_bytes") return static_cast<double>(runtime.overhead().total());
  ds::raise(
      DS_ERROR_NOT_FOUND,
      "name must be step, updates, loss, grad_norm, loss_scale, device_bytes, host_bytes, "
      "nvme_bytes, overhead_bytes, param_groups, those of a delegate's micro-steps, lr, or another "
      "one of ds_engine_set, got '{}'",
      name);
}

// Checks that a buffer fits a whole parameter.
void check_count(const ds::StateStore& store, int32_t param, const float* data, size_t data_count) {
  ds::ParamId id = param_id(store, param);
  size_t numel = 1;
  for (int64_t d : store.param_shapes()[id]) numel *= static_cast<size_t>(d);
  ds::require(data != nullptr || numel == 0, "data must not be NULL");
  ds::require(data_count == numel, "data_count of parameter '{}' must be {}, got {}",
              ds::TensorName(store.param_names()[id]), numel, data_count);
}

// Checks that a buffer fits the elements of a parameter that this rank owns.
void check_local(ds::StateStore& store, int32_t param, const float* data, size_t data_count) {
  auto count = static_cast<size_t>(store.local_numel(ds::ParamId(param)));
  ds::require(data || count == 0, "data must not be NULL");
  ds::require(data_count == count,
              "data_count of this rank's elements of parameter '{}' must be {}, got {}",
              ds::TensorName(store.param_names()[ds::ParamId(param)]), count, data_count);
}

// Returns the store of the engine, to read names, or null if the engine is NULL or inherited by a
// fork. The lists of parameters and states never change, so callbacks and other threads may read
// them during a call with the engine.
const ds::StateStore* names_of(const ds_engine* engine) {
  if (!engine || engine->is_inherited()) return nullptr;
  return engine->native ? &engine->native->store() : &engine->delegate->store();
}

}  // namespace

int32_t ds_engine_param_count(const ds_engine* engine) {
  const ds::StateStore* names = names_of(engine);
  return names ? static_cast<int32_t>(names->param_names().size()) : -1;
}

// A parameter's id is its index in the graph or in the order of registration.
ds_status ds_engine_param_find(const ds_engine* engine, const char* name, int32_t* out) {
  return ds::boundary([&] {
    const ds::StateStore& e = ds::store(engine);
    ds::need(out, "out");
    std::string_view wanted = ds::need_text(name, "name");
    const ds::IdVector<ds::ParamId, std::string>& names = e.param_names();
    auto at = std::ranges::find(names, wanted);
    if (at == names.end()) {
      std::string near = ds::suggest(wanted, names);
      ds::raise(DS_ERROR_NOT_FOUND, "no parameter '{}'{}", ds::TensorName(wanted),
                near.empty() ? near : fmt::format("; did you mean '{}'?", near));
    }
    *out = static_cast<int32_t>(at - names.begin());
  });
}

ds_status ds_engine_param_info(const ds_engine* engine, int32_t param, const char** out_name,
                               int64_t* out_dims, size_t dims_size, size_t* out_dims_count) {
  return ds::boundary([&] {
    const ds::StateStore& e = ds::store(engine);
    ds::ParamId id = param_id(e, param);
    ds::require(out_dims || dims_size == 0, "out_dims must not be NULL with dims_size {}",
                dims_size);
    const std::vector<int64_t>& shape = e.param_shapes()[id];
    if (out_name) *out_name = e.param_names()[id].c_str();
    for (size_t i = 0; i < std::min(dims_size, shape.size()); ++i) out_dims[i] = shape[i];
    if (out_dims_count) *out_dims_count = shape.size();
  });
}

const char* ds_engine_state_name(const ds_engine* engine, int32_t index) {
  const ds::StateStore* names = names_of(engine);
  if (!names || index < 0) return nullptr;
  const std::vector<std::string>& states = names->state_kinds();
  const auto at = static_cast<size_t>(index);
  if (at < states.size()) return states[at].c_str();
  // After the optimizer states come two more names: the compute copy and the gradient.
  return at == states.size() ? "param" : at == states.size() + 1 ? "grad" : nullptr;
}

// Collective, because the states of a parameter are distributed over the ranks.
ds_status ds_engine_read(ds_engine* engine, int32_t param, const char* state, float* data,
                         size_t data_count) {
  return ds::boundary([&] {
    ds::StateStore& e = ds::store(engine);
    check_count(e, param, data, data_count);
    std::vector<float> values = e.read_tensor(ds::ParamId(param), state_name(state));
    std::ranges::copy(values, data);
  });
}

// Collective: every rank passes the whole tensor, and each rank stores its part.
ds_status ds_engine_write(ds_engine* engine, int32_t param, const char* state, const float* data,
                          size_t data_count) {
  return ds::boundary([&] {
    ds::StateStore& e = ds::store(engine);
    check_count(e, param, data, data_count);
    e.write_tensor(ds::ParamId(param), state_name(state), {data, data_count});
  });
}

ds_status ds_engine_local_range(ds_engine* engine, int32_t param, int64_t* out_first,
                                int64_t* out_count) {
  return ds::boundary([&] {
    ds::StateStore& e = ds::store(engine);
    ds::need(out_first, "out_first");
    ds::need(out_count, "out_count");
    std::tie(*out_first, *out_count) = e.local_range(ds::ParamId(param));
  });
}

ds_status ds_engine_read_local(ds_engine* engine, int32_t param, const char* state, float* data,
                               size_t data_count) {
  return ds::boundary([&] {
    ds::StateStore& e = ds::store(engine);
    check_local(e, param, data, data_count);
    std::vector<float> values = e.read_local(ds::ParamId(param), state_name(state));
    std::ranges::copy(values, data);
  });
}

ds_status ds_engine_write_local(ds_engine* engine, int32_t param, const char* state,
                                const float* data, size_t data_count) {
  return ds::boundary([&] {
    ds::StateStore& e = ds::store(engine);
    check_local(e, param, data, data_count);
    e.write_local(ds::ParamId(param), state_name(state), {data, data_count});
  });
}

// Callers need this function after local writes, which change masters but not their compute copies.
ds_status ds_engine_refresh(ds_engine* engine) {
  return ds::boundary([&] { ds::store(engine).refresh_params(); });
}

ds_status ds_engine_freeze(ds_engine* engine, const int32_t* params, size_t params_count,
                           int32_t frozen) {
  return ds::boundary([&] {
    // The engine checks the arguments on all ranks at once.
    ds::body(engine).trained().freeze({params, params_count}, frozen);
  });
}

ds_status ds_engine_group_add(ds_engine* engine, const int32_t* params, size_t params_count,
                              const char* options, int32_t* out) {
  return ds::boundary([&] {
    ds::need(out, "out");
    ds::Json values = options ? ds::Json::parse(options, "options") : ds::Json(ds::Json::Object());
    // The engine checks the arguments on all ranks at once.
    *out = ds::body(engine).trained().add_group({params, params_count}, values);
  });
}

ds_status ds_engine_get(const ds_engine* engine, const char* name, double* out) {
  return ds::boundary([&] {
    const ds_engine& handle = ds::need(engine, "engine");
    ds::need(out, "out");
    *out = number(handle, ds::need_text(name, "name"));
  });
}

ds_status ds_engine_set(ds_engine* engine, const char* name, double value) {
  return ds::boundary([&] {
    std::string_view which = ds::need_text(name, "name");
    ds::body(engine).set(which, value);
  });
}

// loss_scale is 0 before the first step.
ds_status ds_engine_last_step(const ds_engine* engine, ds_step_result* out, size_t struct_size) {
  return ds::boundary([&] {
    const ds::StepResult& last = ds::control(engine).last();
    ds_step_result result = {};
    result.struct_size = sizeof result;
    result.step = last.step;
    result.updates = last.updates;
    result.loss = last.loss;
    result.grad_norm = last.grad_norm;
    result.lr = last.lr;
    result.skipped = last.skipped ? 1 : 0;
    result.loss_scale = last.step > 0 ? last.loss_scale : 0;
    result.loss_scale_at_floor = last.at_floor ? 1 : 0;
    ds::write_options(out, struct_size, &result, sizeof result, "out");
  });
}

ds_status ds_engine_skip_reason(const ds_engine* engine, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::put_text(ds::control(engine).last().reason, out_text);
  });
}

ds_status ds_engine_plan_print(const ds_engine* engine, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::put_text(ds::body(engine).print_plan(), out_text);
  });
}

// Unlike ds_plan_report, this reports the memory that the engine has allocated, including overhead.
ds_status ds_engine_plan_report(const ds_engine* engine, ds_format format, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    std::vector<ds::TierMemory> tiers = ds::body(engine).memory();
    const ds::Overhead& overhead = ds::runtime(engine).overhead();
    if (!ds::wants_json(format))
      return ds::put_text(ds::memory_table(tiers) + overhead.table(), out_text);
    ds::Json report;
    report.set("schema", 1);
    report.set("memory", ds::memory_json(tiers));
    report.set("overhead", overhead.json());
    ds::put_text(report.dump(1), out_text);
  });
}

// Spans that were written are removed from the trace, so each call writes only the spans since the
// previous call.
ds_status ds_engine_trace(ds_engine* engine, const char* path) {
  return ds::boundary([&] {
    const ds::Runtime& e = ds::runtime(engine);
    std::string file = ds::need_path(path, "path");
    ds::Trace* trace = e.trace();
    if (!trace)
      ds::raise(DS_ERROR_STATE, "ds_engine_trace needs options.trace 1 at creation, got 0");
    ds::write_file_atomic(file, ds::trace_json({{trace->rank(), trace->take()}}));
  });
}
