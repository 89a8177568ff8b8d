#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "io/safetensors.h"

namespace ds {

// How much of a source is needed. With `masters`, files and tensors that hold only optimizer states
// are not read.
enum class SourceParts : uint8_t { all, masters };

// Training state in files, opened by one process: unpartitioned f32 tensors by parameter name, for
// every kind of state.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // The form of the files: "deepspeed", "universal" or "libds".
  std::string form;
  // The data other than tensors. `info.path` is the folder that was read.
  CheckpointInfo info;
  // The kinds of state; "master" comes first.
  std::vector<std::string> kinds;
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, std::vector<int64_t>> shapes;

  // Tensors of the model's file that are not parameters.
  std::vector<SafetensorEntry> buffers;
  // Second names in the model's file, each with the name of the parameter or buffer that has the
  // same values.
  std::vector<std::pair<std::string, std::string>> tied;

  // Reads elements [begin, begin + count) of one kind of state of a parameter.
  virtual void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) = 0;
  using Bytes = std::function<void(std::span<const std::byte>)>;
  // Calls use() with the bytes of a buffer, block by block in order.
  virtual void read_buffer(size_t buffer, const Bytes& use);

  int64_t numel(ParamId param) const;
  // Returns how many times the parameter has been updated.
  int64_t updates(ParamId param) const;
};

}  // namespace ds
