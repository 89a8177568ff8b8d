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

// How much of a source is wanted: without states, no file or tensor that has only these is read.
enum class SourceParts : uint8_t { all, masters };

// Training state that lies in files, open for one process: whole tensors by name, f32, of every
// kind of state.
class StateSource {
 public:
  virtual ~StateSource() = default;

  std::string form;                // "deepspeed", "universal", "libds"
  CheckpointInfo info;             // path: the folder that was read
  std::vector<std::string> kinds;  // "master" first
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, std::vector<int64_t>> shapes;

  // What a model's file has beside its parameters: tensors that are not trained, and second names,
  // each with the name of the parameter or buffer whose values it has.
  std::vector<SafetensorEntry> buffers;
  std::vector<std::pair<std::string, std::string>> tied;

  // Elements [begin, begin + count) of one kind of a parameter.
  virtual void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) = 0;
  using Bytes = std::function<void(std::span<const std::byte>)>;
  // Hands out the bytes of a buffer in order.
  virtual void read_buffer(size_t buffer, const Bytes& use);

  int64_t numel(ParamId param) const;
  int64_t updates(ParamId param) const;  // that the parameter has had
};

}  // namespace ds
