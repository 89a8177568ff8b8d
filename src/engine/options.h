#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "compile/pipeline.h"
#include "core/device/thread_queue.h"
#include "kernels/kernel.h"

namespace ds {

// What an engine is made with, beside its configuration.
struct EngineOptions {
  int threads = 1;
  bool trace = false;
  std::optional<uint64_t> chaos_seed;  // run on the chaos device
  std::optional<Mesh> mesh;            // none: one axis, `data`, of all ranks
  std::optional<Delays> separate;      // run on a separate device (core/device/separate_device.h)
  Machine machine;
  PlanPrograms programs;  // an InferenceEngine has only programs.decode
  // Tests only: changes the table of kernels; changes the compiled step before it runs; is called before each
  // of its instructions.
  std::function<void(KernelRegistry&)> kernel_filter;
  std::function<void(Program&)> program_filter;
  std::function<void(size_t)> before_instr;
};

}  // namespace ds
