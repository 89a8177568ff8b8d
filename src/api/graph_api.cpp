// This file implements the calls that build a graph: step by step, from a text or from a
// configuration.
//
// Every call checks all of its arguments before it changes the graph, so a failed call leaves the
// graph unchanged and the application may continue with it. To the caller, values are integers: the
// ids of the graph, which are assigned in increasing order.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/boundary.h"
#include "api/custom_op.h"
#include "api/handles.h"
#include "checkpoint/model_folder.h"
#include "core/base/json.h"
#include "core/base/name.h"
#include "core/base/suggest.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/config/parse_config.h"
#include "core/graph/op_schema.h"
#include "core/graph/ops.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// Converts dimensions to a shape. -1 means n, the rows of a micro-step; other dimensions must be at
// least `least`.
Shape to_shape(const int64_t* dims, size_t dims_count, int64_t least) {
  need_array(dims, dims_count, "dims");
  require(dims_count <= 4, "dims_count must be at most 4, got {}", dims_count);
  std::vector<Dim> out;
  for (size_t i = 0; i < dims_count; ++i) {
    require(dims[i] == -1 || dims[i] >= least, "dims[{}] must be {} or more, or -1 for n, got {}",
            i, least, dims[i]);
    out.push_back(dims[i] == -1 ? Dim::n() : Dim(dims[i]));
  }
  return Shape(std::move(out));
}

// The JSON parser throws configuration errors; they are converted, because here an argument is
// invalid.
Json parse_attrs(const char* text) {
  try {
    return Json::parse(text, "attrs");
  } catch (const Error& error) {
    throw Error(DS_ERROR_INVALID_ARGUMENT, error.what(), error.details());
  }
}

Attrs to_attrs(const char* text) {
  Attrs out;
  if (!text) return out;
  Json json = parse_attrs(text);
  require(json.is_object(), "attrs must be a JSON object, got {}", json.kind());
  for (const auto& [name, value] : json.object()) {
    if (value.is_integer()) {
      out.set(name, value.integer());
    } else if (value.is_number()) {
      out.set(name, value.number());
    } else if (value.is_string()) {
      out.set(name, value.string());
    } else {
      raise(DS_ERROR_INVALID_ARGUMENT, "attrs.{} must be a number or a string, got {}", name,
            value.kind());
    }
  }
  return out;
}

// Returns the value with this number; throws if the graph does not have it. An empty graph has a
// separate message, because the range would read "0 to -1".
ValueId need_value(const Graph& graph, int32_t number, const std::string& argument) {
  ValueId value(number);
  require(graph.values.size() > 0, "{} must be a value of the graph, which has none yet, got {}",
          argument, number);
  require(graph.values.has(value), "{} must be a value from 0 to {}, got {}", argument,
          graph.values.size() - 1, number);
  return value;
}

// Returns the operands of an operation. Errors name the operation and the index of the operand.
std::vector<ValueId> need_operands(const Graph& graph, std::string_view op, const int32_t* inputs,
                                   size_t count) {
  need_array(inputs, count, "inputs");
  std::vector<ValueId> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(need_value(graph, inputs[i], fmt::format("{}: inputs[{}]", op, i)));
  return out;
}

// Throws DS_ERROR_NOT_FOUND with a suggestion. ds_graph_find finds outputs and values, so both are
// suggested.
[[noreturn]] void refuse_name(const Graph& graph, std::string_view name) {
  std::vector<std::string> names;
  for (const GraphOutput& output : graph.outputs) names.push_back(output.name);
  for (const Value& value : graph.values) names.push_back(value.name);
  raise(DS_ERROR_NOT_FOUND, "graph '{}' has no value named '{}'{}", graph.name, name,
        did_you_mean(name, names));
}

// Throws if the graph is differentiated, because a new node would have no backward part.
void need_forward(const Graph& graph, const char* call) {
  if (!graph.backward_begin.exists()) return;
  raise(DS_ERROR_STATE, "{} must come before ds_graph_grad: graph '{}' is already differentiated",
        call, graph.name);
}

}  // namespace

}  // namespace ds

ds_status ds_graph_create(const char* name, int64_t bound, ds_graph** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::require(bound >= 1 && bound <= INT32_MAX, "bound must be 1 to {}, got {}", INT32_MAX,
                bound);
    auto handle = std::make_unique<ds_graph>();
    handle->graph.name = ds::need_text(name, "name");
    ds::require_name("graph", handle->graph.name);
    handle->graph.bound = bound;
    *out = handle.release();
  });
}

// Returns the graph that a run of `size` ranks would train; it has only the forward part.
ds_status ds_graph_from_config(const char* config, int32_t size, ds_graph** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    std::string_view text = ds::need_text(config, "config");
    ds::require(size >= 1, "size must be at least 1, got {}", size);
    auto handle = std::make_unique<ds_graph>();
    ds::Config parsed = ds::parse_config(ds::parse_config_text(text, "config"), size);
    ds::HfModel model = ds::configured_model(parsed);
    // Keys of config.json that the model does not use cause a warning, not an error.
    ds::warn_unread(model, parsed.model.folder);
    handle->graph = std::move(model.graph);
    *out = handle.release();
  });
}

ds_status ds_graph_parse(const char* text, ds_graph** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    auto handle = std::make_unique<ds_graph>();
    handle->graph = ds::parse_graph(ds::need_text(text, "text"));
    *out = handle.release();
  });
}

ds_status ds_graph_print(const ds_graph* graph, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::put_text(ds::need(graph, "graph").graph.print(), out_text);
  });
}

ds_status ds_graph_input(ds_graph* graph, const char* name, ds_dtype dtype, const int64_t* dims,
                         size_t dims_count, int32_t* out) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need(out, "out");
    ds::need_forward(g, "ds_graph_input");
    ds::require(dtype >= DS_DTYPE_F32 && dtype <= DS_DTYPE_U8,
                "dtype must be one of ds_dtype except NONE, got {}", static_cast<int>(dtype));
    *out = g.add_input(ds::need_text(name, "name"), {dtype, ds::to_shape(dims, dims_count, 1)})
               .number();
  });
}

// Parameters of a graph are always f32; the configuration chooses the types of their masters and
// compute copies.
ds_status ds_graph_param(ds_graph* graph, const char* name, const int64_t* dims, size_t dims_count,
                         const char* init, double scale, int32_t* out) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need(out, "out");
    ds::need_forward(g, "ds_graph_param");
    std::string kind(ds::need_text(init, "init"));
    ds::require(scale >= 0 && std::isfinite(scale), "scale must be finite and not negative, got {}",
                scale);
    *out = g.add_param(ds::need_text(name, "name"),
                       {DS_DTYPE_F32, ds::to_shape(dims, dims_count, 0)}, {kind, scale})
               .number();
  });
}

// An operation by callback needs a CustomOp, which only ds_graph_custom_op creates.
ds_status ds_graph_op(ds_graph* graph, const char* op, const int32_t* inputs, size_t inputs_count,
                      const char* attrs, int32_t* out) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need(out, "out");
    ds::need_forward(g, "ds_graph_op");
    std::string_view name = ds::need_text(op, "op");
    std::vector<ds::ValueId> operands = ds::need_operands(g, name, inputs, inputs_count);
    ds::require(!ds::op(name).by_callback, "op '{}' is for ds_graph_custom_op", name);
    *out = g.add(name, operands, ds::to_attrs(attrs)).number();
  });
}

ds_status ds_graph_custom_op(ds_graph* graph, const char* name, const ds_custom_op* op,
                             const int32_t* inputs, size_t inputs_count, int32_t* out) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need(out, "out");
    ds::need_forward(g, "ds_graph_custom_op");
    std::string_view called = ds::need_text(name, "name");
    ds::need(op, "op");
    ds_custom_op given = ds::read_options(op, ds_custom_op{}, "op");
    auto made = std::make_shared<ds::CallbackOp>(called, given);
    std::vector<ds::ValueId> operands = ds::need_operands(g, made->name, inputs, inputs_count);
    *out = g.add_custom(made, operands).number();
    // The graph takes ownership of user_data only here, because any of the calls above may throw.
    made->keep_user_data();
  });
}

ds_status ds_graph_value_info(const ds_graph* graph, int32_t value, ds_dtype* out_dtype,
                              int64_t* out_dims, size_t dims_size, size_t* out_dims_count) {
  return ds::boundary([&] {
    const ds::Graph& g = ds::need(graph, "graph").graph;
    const ds::TensorType& type = g.type(ds::need_value(g, value, "value"));
    ds::require(out_dims || dims_size == 0, "out_dims must not be NULL with dims_size {}",
                dims_size);
    const std::vector<ds::Dim>& dims = type.shape.dims();
    if (out_dtype) *out_dtype = type.dtype;
    for (size_t i = 0; i < std::min(dims_size, dims.size()); ++i)
      out_dims[i] = dims[i].symbolic ? -1 : dims[i].extent;
    // The count is complete even if out_dims has less room, so that the caller can call again with
    // enough room.
    if (out_dims_count) *out_dims_count = dims.size();
  });
}

ds_status ds_graph_output(ds_graph* graph, const char* name, int32_t value) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need_forward(g, "ds_graph_output");
    std::string_view output = ds::need_text(name, "name");
    g.add_output(output, ds::need_value(g, value, "value"));
  });
}

// If an output and a value have the same name, finds the output.
ds_status ds_graph_find(const ds_graph* graph, const char* name, int32_t* out) {
  return ds::boundary([&] {
    const ds::Graph& g = ds::need(graph, "graph").graph;
    std::string_view wanted = ds::need_text(name, "name");
    ds::need(out, "out");
    const ds::GraphOutput* output = g.find_output(wanted);
    ds::ValueId value = output ? output->value : g.find_value(wanted);
    if (!value.exists()) ds::refuse_name(g, wanted);
    *out = value.number();
  });
}

ds_status ds_graph_grad(ds_graph* graph, int32_t loss, const int32_t* values, size_t values_count,
                        int32_t* out) {
  return ds::boundary([&] {
    ds::Graph& g = ds::need(graph, "graph").graph;
    ds::need_forward(g, "ds_graph_grad");
    ds::need_array(values, values_count, "values");
    ds::need_array(out, values_count, "out");
    ds::ValueId scalar = ds::need_value(g, loss, "loss");
    std::vector<ds::ValueId> by;
    for (size_t i = 0; i < values_count; ++i)
      by.push_back(ds::need_value(g, values[i], fmt::format("values[{}]", i)));
    // Differentiates a copy, so that an error leaves the graph unchanged.
    ds::Graph whole = g;
    std::vector<ds::ValueId> grads;
    ds::differentiate(whole, scalar, by, &grads);
    g = std::move(whole);
    for (size_t i = 0; i < values_count; ++i) out[i] = grads.at(i).number();
  });
}

ds_status ds_op_schema(char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::put_text(ds::op_schema().dump(1), out_text);
  });
}

void ds_graph_destroy(ds_graph* graph) { ds::destroy(graph); }
