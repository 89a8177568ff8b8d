#include "compile/plan.h"

#include "core/base/error.h"

namespace ds {

const Graph& Plan::evaluated(const ProgramKey& key) const {
  const bool eval = key.kind == ProgramKind::eval;
  if (key.adapter == 0) return eval ? eval_graph : graph;
  const Evaluated& other = other_adapters.at(key.adapter);
  return eval ? other.eval : other.infer;
}

const Program& Plan::program(ProgramKey key) const {
  const auto found = programs.find(key);
  ensure(found != programs.end(), "the plan has no program of kind {}, form {}",
         static_cast<int>(key.kind), form_name(key.form));
  return found->second;
}

const IdVector<BufferId, Buffer>& Plan::buffers() const {
  ensure(!programs.empty(), "the plan has no programs yet");
  return programs.begin()->second.buffers;
}

void hash_settings(const Plan& plan, const Config& config, Hash128& hash) {
  hash.update(config.shared_text());
  hash.update(plan.choices.json().dump());
}

std::string print_steps(const Plan& plan) {
  std::string text;
  for (const auto& [key, program] : plan.programs) {
    if (key.kind == ProgramKind::step) text += program.print();
  }
  return text;
}

}  // namespace ds
