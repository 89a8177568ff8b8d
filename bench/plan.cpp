// Measures the compile time of a step with about 10,000 instructions, and the time that the
// executor adds to each instruction. Prints one line for each figure, the best of 5; bench/plan.py
// judges them.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "compile/pipeline.h"
#include "core/base/trace.h"
#include "core/device/host_device.h"
#include "exec/executor.h"
#include "nn/models/gpt.h"

namespace ds {
namespace {

// States and parameters are on files and tiers are emulated, so that the step uses every queue.
Config large_step() {
  Config c;
  c.accumulation = 4;
  c.micro_batch = 1;
  c.train_batch = 8;
  c.compute = DS_DTYPE_BF16;
  c.zero.stage = 3;
  c.zero.param_persistence_threshold = 1000;
  c.zero.max_reuse_distance = 0;
  c.zero.optimizer_tier = c.zero.param_tier = Tier::nvme;
  c.emulate_tiers = true;
  return c;
}

void bench_compile() {
  ModelConfig model;
  model.family = "gpt";
  model.layers = 56;
  model.hidden = 256;
  model.heads = 4;
  model.vocab = 256;
  model.positions = 128;
  Graph graph = build_gpt(model, 128, 128);
  double best = 1e9;
  Plan plan;
  for (int i = 0; i < 5; ++i) {
    int64_t begin = now_ns();
    plan = compile_plan(graph, large_step(), 0, 2, Machine{}, false);
    best = std::min(best, static_cast<double>(now_ns() - begin) * 1e-9);
  }
  fmt::print(
      "compile: {} instructions, {} buffers in {:.3f} s (all programs of the engine, verifier off, "
      "1 thread)\n",
      plan.step().instrs.size(), plan.step().buffers.size(), best);
}

// Kernels that do nothing leave only the executor's own time.
void no_op(const KernelContext&) {}

Instr no_op_instr(Queue queue, Operand operand) {
  static const InstrDef& row = add_instruction({.name = "no_op"});
  Instr in = make_instr(row, {operand});
  in.queue = queue;
  return in;
}

// Returns 10,000 instructions over all queues. Each waits for the one before it.
Program no_op_program() {
  Program p;
  p.name = "no_op";
  p.buffers.push_back({"d", DS_DTYPE_F32, 1024, Tier::device, Residency::persistent, 0});
  p.buffers.push_back({"h", DS_DTYPE_F32, 1024, Tier::host, Residency::persistent, 0});
  p.buffers.push_back({"f", DS_DTYPE_F32, 1024, Tier::nvme, Residency::persistent, 0});
  auto operand = [](BufferId b, Access a) {
    return Operand{b, 0, {DS_DTYPE_F32, Shape{1}}, a, false};
  };
  for (int i = 0; i < 10000; ++i) {
    Instr in;
    int kind = i % 10;
    if (kind < 6) {
      in = no_op_instr(Queue::compute, operand(BufferId(0), Access::update));
    } else if (kind == 6) {
      in = no_op_instr(Queue::host, operand(BufferId(1), Access::update));
    } else if (kind == 7) {
      in = make_instr(Op::all_gather,
                      {operand(BufferId(0), Access::read), operand(BufferId(0), Access::write)});
      in.group = {1, 1};
    } else if (kind == 8) {
      in = make_instr(Op::fetch,
                      {operand(BufferId(1), Access::read), operand(BufferId(0), Access::write)});
    } else {
      in = i % 20 == 9 ? make_instr(Op::load, {operand(BufferId(2), Access::read),
                                               operand(BufferId(1), Access::write)})
                       : make_instr(Op::save, {operand(BufferId(1), Access::read),
                                               operand(BufferId(2), Access::write)});
    }
    if (i > 0) in.waits = {{InstrId(i - 1)}};
    p.instrs.push_back(std::move(in));
  }
  p.segments.push_back({.end = InstrId(10000)});
  return p;
}

void bench_executor() {
  Program program = no_op_program();
  KernelRegistry kernels;
  kernels.add({"no_op", "no_op", no_op, nullptr});
  ThreadTeam team(2);
  HostDevice device;
  RankQueues queues(device, team);
  StepScalars scalars;
  auto comm = create_communicator("self", {});
  CommGroups groups(*comm);
  char path[] = "/tmp/ds_bench_XXXXXX";
  int fd = mkstemp(path);
  File file(path, File::Mode::write);
  unlink(path);
  close(fd);
  file.resize(4096);
  IoLane read("read", 1 << 20, 8, nullptr), write("write", 1 << 20, 8, nullptr);
  alignas(4096) static std::byte memory[2][4096];
  ExecContext context;
  context.kernels = &kernels;
  context.comm = &groups;
  context.queues = &queues;
  context.memory.arena[0][0] = memory[0];
  context.memory.arena[1][0] = memory[1];
  context.memory.file = &file;
  context.read_lane = &read;
  context.write_lane = &write;
  context.scalars = &scalars;
  // A tenth of the instructions are host instructions, empty transfers on the file lanes, or
  // transfers of a block.
  constexpr const char* kFiles[] = {"no files", "a tenth on the file lanes, empty",
                                    "a tenth on the file lanes, 4 KiB each"};
  for (int files = 0; files < 3; ++files) {
    Program p = program;
    for (Instr& in : p.instrs) {
      if (in.queue != Queue::read && in.queue != Queue::write) continue;
      if (files == 0) {
        std::vector<Wait> waits = in.waits;
        in = no_op_instr(Queue::host, in.operands[0]);
        in.waits = std::move(waits);
      }
      if (files == 1) {
        for (Operand& o : in.operands) o.type.shape = Shape{0};
      }
    }
    auto executor = make_executor(p, context);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      int64_t begin = now_ns();
      executor->run();
      best = std::min(best, static_cast<double>(now_ns() - begin));
    }
    fmt::print(
        "executor: {:.3f} us an instruction (10,000 on queues in turn, each waits for the one "
        "before; {})\n",
        best / 10000 * 1e-3, kFiles[files]);
  }
}

}  // namespace
}  // namespace ds

int main() {
  ds::bench_compile();
  ds::bench_executor();
  return 0;
}
