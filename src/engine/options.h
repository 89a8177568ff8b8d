#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compile/pipeline.h"
#include "core/device/device.h"
#include "core/program/mesh.h"
#include "kernels/kernel.h"

namespace ds {

// What an engine is made with, beside its configuration.
struct EngineOptions {
  int threads = 1;
  bool trace = false;
  std::optional<uint64_t> chaos_seed;  // run on the chaos device
  std::optional<Mesh> mesh;            // none: one axis, `data`, of all ranks
  // Makes the device that the engine runs on; null: the one that the configuration names.
  std::function<std::unique_ptr<Device>()> device;
  // Gives initial values of a whole parameter's elements from `first` on, called at the start of a
  // training engine for what this rank updates; values has what was drawn, or zeros in delegate
  // mode. null: that stays. What it throws on one rank, all ranks throw.
  std::function<void(ParamId param, const std::string& name, int64_t first,
                     std::span<float> values)>
      initial;
  // What rank 0 says of modules (engine/module_monitor.h); null: lines of the log.
  std::function<void(const std::string& text)> module_report;
  Machine machine;
  PlanPrograms programs;  // an InferenceEngine has only programs.decode
  // Tests only: changes the table of kernels; changes the compiled step before it runs; is called
  // before each of its instructions.
  std::function<void(KernelRegistry&)> kernel_filter;
  std::function<void(Program&)> program_filter;
  std::function<void(size_t)> before_instr;
};

}  // namespace ds
