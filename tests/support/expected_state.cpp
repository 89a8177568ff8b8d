#include "support/expected_state.h"

#include <algorithm>
#include <map>

namespace ds::test {

ExpectedState::ExpectedState(const OptimizerConfig& optimizer,
                             const std::vector<std::vector<float>>& initial)
    : optimizer_(optimizer),
      groups_(initial.size(), {optimizer.lr, optimizer.weight_decay, optimizer.beta1,
                               optimizer.beta2, optimizer.eps, optimizer.momentum}),
      updates_(initial.size()) {
  kinds_ = {"master"};
  const std::map<std::string, std::vector<std::string>> states{{"SGD", {"momentum_buffer"}},
                                                               {"Lion", {"exp_avg"}},
                                                               {"Adagrad", {"sum"}},
                                                               {"Callback", {"steps", "velocity"}}};
  auto own = states.find(optimizer.type);
  const std::vector<std::string> adam{"exp_avg", "exp_avg_sq"};
  for (const std::string& state : own == states.end() ? adam : own->second) kinds_.push_back(state);
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    values_.emplace_back();
    for (const std::vector<float>& param : initial) {
      values_[kind].emplace_back();
      for (float x : param) values_[kind].back().push_back(Bounded::exact(kind == 0 ? x : 0));
    }
  }
}

size_t ExpectedState::index(const std::string& kind) const {
  return static_cast<size_t>(std::find(kinds_.begin(), kinds_.end(), kind) - kinds_.begin());
}

const std::vector<Bounded>& ExpectedState::at(size_t param, const std::string& kind) const {
  return values_.at(index(kind)).at(param);
}

void ExpectedState::set(size_t param, const std::string& kind, const std::vector<float>& values) {
  std::vector<Bounded>& to = values_.at(index(kind)).at(param);
  for (size_t e = 0; e < values.size(); ++e) to[e] = Bounded::exact(values[e]);
}

void ExpectedState::update(const std::vector<std::vector<double>>& sums, int64_t leaves,
                           const std::vector<char>& left_out) {
  Bounded scale = Bounded::rounded(1.0 / static_cast<double>(leaves));
  for (size_t p = 0; p < updates_.size(); ++p) {
    if (left_out[p]) continue;
    ++updates_[p];
    const std::string& type = optimizer_.type;
    type == "SGD"        ? sgd(p, sums[p], scale)
    : type == "Lion"     ? lion(p, sums[p], scale)
    : type == "Adagrad"  ? adagrad(p, sums[p], scale)
    : type == "Callback" ? callback(p, sums[p], scale)
                         : adam(p, sums[p], scale);
  }
}

void ExpectedState::adam(size_t param, const std::vector<double>& sums, Bounded scale) {
  const GroupScalars& o = groups_[param];
  auto t = static_cast<double>(updates_[param]);
  bool decoupled = optimizer_.adam_w_mode;
  Bounded rate = Bounded::rounded(o.lr), eps = Bounded::rounded(o.eps);
  Bounded decay = Bounded::rounded(decoupled ? 1 - o.lr * o.weight_decay : 1);
  Bounded penalty = Bounded::rounded(decoupled ? 0 : o.weight_decay);
  Bounded b1 = Bounded::rounded(o.beta1), rest1 = Bounded::rounded(1 - o.beta1);
  Bounded b2 = Bounded::rounded(o.beta2), rest2 = Bounded::rounded(1 - o.beta2);
  bool corrected = optimizer_.bias_correction;
  Bounded c1 = Bounded::rounded(corrected ? 1 - std::pow(o.beta1, t) : 1),
          c2 = Bounded::rounded(corrected ? 1 - std::pow(o.beta2, t) : 1);
  for (size_t e = 0; e < sums.size(); ++e) {
    Bounded &master = values_[0][param][e], &m = values_[1][param][e], &v = values_[2][param][e];
    Bounded p = master * decay, g = Bounded::exact(sums[e]) * scale + penalty * p;
    m = b1 * m + rest1 * g;
    v = b2 * v + rest2 * (g * g);
    master = p - rate * (m / c1) / (sqrt(v / c2) + eps);
  }
}

// Updates a parameter by Lion. The bound of the error is small only if no direction is so close to
// 0 that its sign is unknown.
void ExpectedState::lion(size_t param, const std::vector<double>& sums, Bounded scale) {
  const GroupScalars& o = groups_[param];
  Bounded rate = Bounded::rounded(o.lr), keep = Bounded::rounded(1 - o.lr * o.weight_decay);
  Bounded b1 = Bounded::rounded(o.beta1), rest1 = Bounded::rounded(1 - o.beta1);
  Bounded b2 = Bounded::rounded(o.beta2), rest2 = Bounded::rounded(1 - o.beta2);
  for (size_t e = 0; e < sums.size(); ++e) {
    Bounded &master = values_[0][param][e], &m = values_[1][param][e];
    Bounded g = Bounded::exact(sums[e]) * scale;
    master = master * keep - copysign(rate, b1 * m + rest1 * g);
    m = b2 * m + rest2 * g;
  }
}

void ExpectedState::adagrad(size_t param, const std::vector<double>& sums, Bounded scale) {
  const GroupScalars& o = groups_[param];
  auto before = static_cast<double>(updates_[param] - 1);
  Bounded rate = Bounded::rounded(o.lr / (1 + before * optimizer_.lr_decay));
  Bounded decay = Bounded::rounded(o.weight_decay), eps = Bounded::rounded(o.eps);
  Bounded initial = Bounded::rounded(before == 0 ? optimizer_.initial_accumulator : 0);
  for (size_t e = 0; e < sums.size(); ++e) {
    Bounded &master = values_[0][param][e], &sum = values_[1][param][e];
    Bounded g = Bounded::exact(sums[e]) * scale + decay * master;
    sum = (sum + initial) + g * g;
    master = master - (rate * g) / (sqrt(sum) + eps);
  }
}

// The update of RandomUpdate (random_case.cpp).
void ExpectedState::callback(size_t param, const std::vector<double>& sums, Bounded scale) {
  const GroupScalars& o = groups_[param];
  Bounded rate = Bounded::rounded(o.lr), momentum = Bounded::rounded(o.momentum);
  Bounded decay = Bounded::rounded(o.weight_decay);
  for (size_t e = 0; e < sums.size(); ++e) {
    Bounded &master = values_[0][param][e], &steps = values_[1][param][e],
            &velocity = values_[2][param][e];
    steps = steps + Bounded::exact(static_cast<double>(updates_[param]));
    velocity = momentum * velocity + Bounded::exact(sums[e]) * scale;
    master = master - rate * (velocity + decay * master);
  }
}

void ExpectedState::sgd(size_t param, const std::vector<double>& sums, Bounded scale) {
  const GroupScalars& o = groups_[param];
  Bounded rate = Bounded::rounded(o.lr), momentum = Bounded::rounded(o.momentum);
  Bounded decay = Bounded::rounded(o.weight_decay);
  bool damped = updates_[param] > 1 && o.momentum != 0;
  Bounded share = Bounded::rounded(damped ? 1 - optimizer_.dampening : 1);
  if (optimizer_.maximize) scale = Bounded::exact(0) - scale;
  for (size_t e = 0; e < sums.size(); ++e) {
    Bounded &master = values_[0][param][e], &buffer = values_[1][param][e];
    Bounded g = Bounded::exact(sums[e]) * scale + decay * master;
    buffer = momentum * buffer + share * g;
    master = master - rate * (optimizer_.nesterov ? g + momentum * buffer : buffer);
  }
}

}  // namespace ds::test
