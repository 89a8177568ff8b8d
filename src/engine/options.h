#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compile/plan.h"
#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "kernels/host_update.h"
#include "kernels/kernel.h"

namespace ds {

// Settings of an engine that are not part of its configuration.
struct EngineOptions {
  int threads = 1;
  bool trace = false;
  // If set, programs run on the chaos device, with this seed.
  std::optional<uint64_t> chaos_seed;
  // The mesh of the ranks. If it is not set, all ranks are on one axis, `data`.
  std::optional<Mesh> mesh;
  // Creates the device that the engine runs on. If it is null, the configuration names the device.
  std::function<std::unique_ptr<Device>()> device;
  // Provides initial values of a parameter's elements, from `first` on in the whole parameter.
  // Called at the start of a training engine for the elements that this rank updates; `values`
  // contains the drawn values, or zeros in delegate mode. If it is null, these values are kept. An
  // error on one rank is thrown on all.
  std::function<void(ParamId param, const std::string& name, int64_t first,
                     std::span<float> values)>
      initial;
  // The update of optimizer.type "Callback".
  std::shared_ptr<const HostUpdate> update;
  // Receives the reports of rank 0 about modules (engine/module_monitor.h). If it is null, they are
  // written to the log.
  std::function<void(const std::string& text)> module_report;
  Machine machine;
  // The programs of the plan. A GenerationEngine reads only programs.decode.
  PlanPrograms programs;
  // For tests only: kernel_filter changes the table of kernels, program_filter changes the compiled
  // step before it runs, and before_instr is called before each instruction of the step.
  std::function<void(KernelRegistry&)> kernel_filter;
  std::function<void(Program&)> program_filter;
  std::function<void(size_t)> before_instr;
};

}  // namespace ds
