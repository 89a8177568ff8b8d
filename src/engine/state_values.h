#pragma once
#include <cstdint>
#include <functional>

#include "core/base/ids.h"
#include "core/program/state_codes.h"
#include "engine/runtime.h"
#include "zero/zero_plan.h"

namespace ds {

// The elements of an engine's states as f32, for any type and tier. Only one thread at a time may
// use it.
class StateValues {
 public:
  // Both arguments are borrowed.
  StateValues(Runtime& runtime, const ZeroPlan& zero) : runtime_(runtime), zero_(zero) {}

  // Read and write elements of a buffer. States in codes have one scale per block, so a write
  // encodes whole blocks again.
  void read(BufferId id, int64_t element, int64_t count, float* out) const;
  void write(BufferId id, int64_t element, int64_t count, const float* in);
  // Sets a state without codes to zero.
  void zero(const HeldState& held);
  // Set the initial states of a bucket whose states have just been allocated, or of one parameter
  // of a bucket with states: the master becomes the parameter, and the canonical states become
  // zero. For a bucket, all other states become zero, too.
  void begin(BucketId bucket);
  void begin(ParamId param);

 private:
  using BlockUse =
      std::function<void(uint8_t* codes, uint8_t& scale, int64_t begin, int64_t count)>;
  // Returns the state whose codes are in this buffer.
  const HeldState& codes_of(BufferId codes) const;
  void for_blocks(const HeldState& held, int64_t element, int64_t count, bool write,
                  const BlockUse& use) const;
  void begin(BucketId bucket, int64_t low, int64_t high);

  Runtime& runtime_;
  const ZeroPlan& zero_;
};

}  // namespace ds
