#include "compile/delegate.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {
namespace {

std::string hash_of(const DelegatePlan& plan, const Config& config) {
  Hash128 hash;
  for (size_t p = 0; p < plan.params.size(); ++p) {
    hash.update(plan.params[p].name + plan.types[p].text() + (plan.zero.frozen[p] ? " frozen" : ""));
  }
  hash.update(config.shared_text());
  for (const Bucket& b : plan.zero.layout.buckets) hash.update(fmt::format("{} {}", b.name, b.numel));
  return hash.hex();
}

// Emits the host's part of a step and closes a segment at every end of a micro-step.
class Recorder {
 public:
  Recorder(const DelegatePlan& plan, ProgramBuilder& builder, StepBuffers& buffers)
      : plan_(plan), builder_(builder), buffers_(buffers) {}

  void emit(const std::vector<HostEvent>& events) {
    events_ = &events;
    start_micro(0);
    for (size_t i = 0; i < events.size(); ++i) {
      const HostEvent& e = events[i];
      if (e.kind == HostEvent::Kind::end) {
        builder_.end_segment(fmt::format("backward[{}]", micro_));
        ++micro_;
        if (i + 1 < events.size()) start_micro(i + 1);
        continue;
      }
      call(e, static_cast<int64_t>(i));
    }
  }

 private:
  static const char* name(HostEvent::Kind kind) {
    if (kind == HostEvent::Kind::gather) return "lease";
    return kind == HostEvent::Kind::release ? "release" : "grad";
  }

  void call(const HostEvent& e, int64_t number) {
    bool grad = e.kind == HostEvent::Kind::grad;
    const std::vector<BufferId>& from = grad ? buffers_.grads[static_cast<size_t>(micro_)] : buffers_.full;
    std::vector<Operand> operands;
    for (int32_t p : e.params) {
      size_t bucket = static_cast<size_t>(plan_.zero.layout.bucket_of[static_cast<size_t>(p)]);
      operands.push_back(param_operand(plan_.zero, builder_, from[bucket], p,
                                       plan_.types[static_cast<size_t>(p)].shape,
                                       grad ? Access::write : Access::read));
    }
    builder_.emit(Queue::compute, name(e.kind), std::move(operands), {{"event", number}}, micro_);
  }

  // Gradients that never come in this micro-step, and padding, are zero.
  void start_micro(size_t first) {
    add_grad_buffers(builder_, plan_.zero, buffers_);
    std::vector<char> comes(plan_.types.size(), 0);
    for (size_t i = first; i < events_->size() && (*events_)[i].kind != HostEvent::Kind::end; ++i) {
      if ((*events_)[i].kind == HostEvent::Kind::grad)
        comes[static_cast<size_t>((*events_)[i].params[0])] = 1;
    }
    const std::vector<BufferId>& grads = buffers_.grads[static_cast<size_t>(micro_)];
    for (size_t b = 0; b < grads.size(); ++b) {
      if (grads[b] < 0) continue;
      std::vector<Operand> holes;
      auto hole = [&](int64_t begin, int64_t numel) {
        holes.push_back(flat(builder_.buffer(grads[b]), grads[b], begin, numel, Access::write));
      };
      for (auto [begin, numel] : plan_.zero.layout.buckets[b].padding()) hole(begin, numel);
      for (const ParamPlace& place : plan_.zero.layout.buckets[b].params) {
        if (!comes[static_cast<size_t>(place.param)]) hole(place.begin, place.numel);
      }
      if (!holes.empty()) builder_.emit(Queue::compute, "zero", std::move(holes), {}, micro_);
    }
  }

  const DelegatePlan& plan_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  const std::vector<HostEvent>* events_ = nullptr;
  int32_t micro_ = 0;
};

// What follows from plan.zero: places for gradients, the programs that every step needs.
void compile_always(DelegatePlan& plan, const Config& config, const Machine& machine) {
  plan.grads.resize(plan.zero.buckets.size(), -1);
  for (size_t b = 0; b < plan.grads.size(); ++b) {
    if (!plan.zero.trains(b) || plan.grads[b] >= 0) continue;
    const Bucket& bucket = plan.zero.layout.buckets[b];
    plan.grads[b] = plan.zero.add(bucket.name + ".lease_grad", config.compute, bucket.numel, Tier::device);
  }
  plan.hash = hash_of(plan, config);
  auto build = [&](const char* name, auto&& emit) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan.zero, name, 1, buffers);
    emit(builder);
    Program program = builder.take();
    finish_program(program, plan.zero, config, buffers, machine,
                   {.prefetch = config.zero.overlap_comm, .verify_passes = true});
    return program;
  };
  plan.init = build(
      "init", [&](ProgramBuilder& b) { emit_init(b, plan.zero, std::vector<Init>(plan.params.size())); });
  plan.refresh = build("refresh", [&](ProgramBuilder& b) { emit_refresh(b, plan.zero); });
  plan.update = build("update", [&](ProgramBuilder& b) { emit_update(b, plan.zero, config); });
}

}  // namespace

DelegatePlan compile_delegate(const Config& config, const std::vector<ParamSpec>& params,
                              const std::vector<Shape>& shapes, int rank, int world, const Machine& machine) {
  DelegatePlan plan;
  plan.params = params;
  std::vector<std::string> names;
  for (const ParamSpec& p : params) names.push_back(p.name);
  std::vector<char> frozen = frozen_by_name(config, names);
  for (size_t p = 0; p < params.size(); ++p) plan.params[p].frozen = frozen[p] != 0;
  plan.zero = make_zero_plan(config, plan.params, rank, world, machine);
  for (const Shape& shape : shapes) plan.types.push_back({config.compute, shape});
  for (size_t b = 0; b < plan.zero.buckets.size(); ++b) {
    const Bucket& bucket = plan.zero.layout.buckets[b];
    const BucketState& state = plan.zero.buckets[b];
    plan.lease.push_back(
        state.partitioned ? plan.zero.add(bucket.name + ".lease", config.compute, bucket.numel, Tier::device)
                          : state.full);
  }
  compile_always(plan, config, machine);
  return plan;
}

DelegatePlan recompile_delegate(const DelegatePlan& plan, const Config& config, const Machine& machine,
                                const std::vector<char>& frozen) {
  DelegatePlan next = plan;
  set_frozen(next.zero, config, frozen);
  compile_always(next, config, machine);
  return next;
}

Program gather_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        size_t bucket) {
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, "gather", 1, buffers);
  for (Instr& in : gather_bucket(b, plan.zero, bucket, plan.lease[bucket])) b.emit(std::move(in));
  b.end_segment("gather");
  Program program = b.take();
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

Program reduce_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine, size_t bucket,
                        int32_t micro) {
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, "reduce", 1, buffers);
  // Stands for the host, which has written the bucket.
  b.emit(Queue::compute, "grad",
         {flat(b.buffer(plan.grads[bucket]), plan.grads[bucket], 0, 1, Access::update)}, {}, micro);
  b.end_segment("reduce");
  Program program = b.take();
  append_reduction(program, plan.zero, bucket, micro, plan.grads[bucket]);
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

std::optional<Program> compile_recorded(const DelegatePlan& plan, const Config& config,
                                        const Machine& machine, const std::vector<HostEvent>& events,
                                        std::span<const int64_t, 3> beside) {
  for (bool prefetch : {config.zero.overlap_comm, false}) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan.zero, "step", 1, buffers);
    Recorder(plan, builder, buffers).emit(events);
    emit_update(builder, plan.zero, config);
    Program program = builder.take();
    finish_program(program, plan.zero, config, buffers, machine,
                   {.prefetch = prefetch, .verify_passes = true, .may_end_early = true});
    MemoryPlan memory;
    for (size_t t = 0; t < 3; ++t) {
      memory.tiers[t] = program.arenas[t];
      memory.tiers[t].transient += beside[t];
    }
    if (fits(memory, config.memory_budget)) return program;
  }
  return std::nullopt;
}

}  // namespace ds
