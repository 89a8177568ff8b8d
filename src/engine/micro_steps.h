#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/config/config.h"

namespace ds {

// The micro-steps of the current step of a delegate host: how many it has, how many have ended, and
// what the sum of their gradients is divided by. The configuration gives the number, and the host
// may change it in each step, as long as no micro-step has been reduced as the last one.
class MicroSteps {
 public:
  // config is borrowed.
  explicit MicroSteps(const Config& config) : config_(config) { begin(); }

  // Begins a step. The micro-steps of an unfinished step are forgotten.
  void begin();
  // Returns the number of micro-steps that have ended, which is the index of the current one.
  int32_t done() const { return done_; }
  // Returns the number of micro-steps of this step.
  int32_t count() const { return count_; }
  bool all_done() const { return done_ >= count_; }
  // Returns whether the step has as many micro-steps as the configuration says.
  bool usual() const { return count_ == config_.accumulation; }
  // Returns whether the last micro-step ended before the host said that it was the last. The step
  // then ends with a reduction without gradients.
  bool cut_short() const { return cut_short_; }
  // Throws DS_ERROR_STATE if all micro-steps have ended. `call` begins the message.
  void require_more(std::string_view call) const;

  // Marks that the current micro-step has a gradient, after which the number of micro-steps must
  // stay until it has ended.
  void mark_gradient() { has_gradient_ = true; }
  // Throws DS_ERROR_STATE if the current micro-step needs a weight and has none.
  void require_weight() const;
  // Ends the current micro-step.
  void end();

  // Sets a number for which get() is not nullopt. "micro_weight" is the weight of this rank's
  // gradients in this micro-step, with loss_average "tokens". "micro_steps" is the number of
  // micro-steps of this step, at most `most`; NaN means the configuration's. "mean_micro_steps" is
  // the number that the sum of the gradients is divided by; NaN means the number of micro-steps
  // made.
  void set(std::string_view name, double value, int64_t most);
  // Returns such a number, NaN if it is not set, or nullopt for any other name.
  std::optional<double> get(std::string_view name) const;

  // Returns the weight of all gradients of the step: the number of leaves, or the sum of the
  // weights of all ranks, which the ranks then exchange. Call it after the last micro-step.
  double total(Communicator& ranks) const;
  // Returns everything about the step that must be equal on all ranks.
  std::vector<double> common() const;

 private:
  void set_weight(double weight);
  void set_count(double count, int64_t most);
  void set_divisor(double divisor);

  const Config& config_;
  int32_t done_ = 0, count_ = 0;
  bool has_gradient_ = false, cut_short_ = false;
  // 0: the number of micro-steps made.
  double divisor_ = 0;
  // The weight of this micro-step; weights_ contains those of earlier micro-steps.
  std::optional<double> weight_;
  std::vector<double> weights_;
};

}  // namespace ds
