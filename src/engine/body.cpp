#include "engine/body.h"

#include <utility>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "engine/magnitudes.h"
#include "optim/optimizer.h"

namespace ds {

EngineBody::EngineBody(Config config, Communicator& comm, EngineOptions options,
                       StateStore::Keeps keeps)
    : runtime_(std::move(config), comm, std::move(options), plan_),
      control_(runtime_.config(), runtime_.mesh().data_size()),
      store_(runtime_, control_, *this, plan_.zero, keeps),
      trained_(runtime_, control_, store_, [this](const auto& trained) { recompile(trained); }),
      checkpoints_(
          runtime_, control_, store_, keeps == StateStore::Keeps::training ? &trained_ : nullptr,
          keeps == StateStore::Keeps::training ? std::function<void()>([this] { make_states(); })
                                               : nullptr,
          [this] { set_magnitudes(plan_.graph, runtime_, store_); }),
      keeps_(keeps) {}

// Ranks hold different parts of the state, so a choice may fit on one rank and not on another. Each
// rank tries the choices from position `most` on and keeps the first that fits; then `most` becomes
// the largest position of all ranks. When `most` no longer grows, all ranks have the same choice.
void EngineBody::agree_on_choice(const std::function<size_t(size_t first)>& attempt) {
  int own = -1;
  for (int most = 0, before = -1; most != before;) {
    agree(runtime_.comm(), "compile", [&] {
      if (own < most) own = static_cast<int>(attempt(static_cast<size_t>(most)));
    });
    before = std::exchange(most, agree_max(runtime_.comm(), own, "choice"));
  }
}

void EngineBody::check_update() const {
  if (keeps_ != StateStore::Keeps::training) return;
  const std::string& type = config().optimizer.type;
  const bool given = runtime_.options().update != nullptr;
  if (given != optimizer_of(config().optimizer).by_callback) {
    raise(DS_ERROR_CONFIG, "{}: \"Callback\" and options.update need each other, got \"{}\" {}",
          KeyName("optimizer.type"), type, given ? "with an update" : "without an update");
  }
  if (given && config().device != "cpu") {
    raise(DS_ERROR_UNSUPPORTED,
          "options.update needs device cpu, got '{}', whose threads may not call back",
          config().device);
  }
}

void EngineBody::compile(const Compile& make, Plan& plan) {
  agree_on_choice([&](size_t first) {
    check_update();
    runtime_.compile([&] { plan = make(first); });
    return plan.choice;
  });
}

void EngineBody::make_executors() {
  runtime_.make_executors([&] {
    for (const auto& [key, program] : plan_.programs) {
      if (key.kind != ProgramKind::init)
        executors_.insert_or_assign(key, runtime_.executor(program, control_));
    }
    if (plan_.decode)
      generation_.emplace(*plan_.decode, executor(ProgramKind::decode), runtime_, control_, store_);
  });
}

void EngineBody::end_executors() {
  runtime_.end_executors([&] {
    generation_.reset();
    executors_.clear();
  });
}

Executor& EngineBody::make_executor_late(const ProgramKey& key) {
  runtime_.make_executor_late(
      [&] { executors_.insert_or_assign(key, runtime_.executor(plan_.program(key), control_)); });
  return executor(key);
}

void EngineBody::replace_plan(const Compile& make) {
  // Compilation errors are thrown here, before the old executors end; a later failure, such as a
  // lack of memory, poisons the engine.
  Plan next;
  compile(make, next);
  runtime_.guarded([&] {
    end_executors();
    plan_ends();
    runtime_.compile([&] { plan_ = std::exchange(next, {}); });
    runtime_.grow(plan_.memory, unbacked_bytes());
    make_executors();
    plan_replaced();
  });
}

void EngineBody::make_states() {
  // The program init runs only once, so its executor is destroyed at the end of this call.
  std::unique_ptr<Executor> init;
  runtime_.make_executors(
      [&] { init = runtime_.executor(plan_.program(ProgramKind::init), control_); });
  runtime_.guarded([&] {
    init->run();
    // Init writes files asynchronously; their errors must be thrown here, as errors of this engine.
    runtime_.settle();
  });
  runtime_.forget_last_executor();
  set_magnitudes(plan_.graph, runtime_, store_);
  checkpoints_.load_other_adapters();
}

void EngineBody::set(std::string_view name, double value) {
  // A poisoned engine makes no further step, so it refuses numbers for the next step.
  runtime_.require_usable();
  control_.set(name, value);
}

Generation& EngineBody::generation() {
  if (!generation_)
    raise(DS_ERROR_STATE, "decode needs an engine made for it: positions must be > 0, got 0");
  return *generation_;
}

std::vector<TierMemory> EngineBody::memory() const {
  return memory_by_tier(plan_.zero.memory.buffers, runtime_.planned(), config().memory_budget);
}

}  // namespace ds
