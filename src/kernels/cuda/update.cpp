// The host side of the elementwise optimizers. Each update is two launches: the first computes the
// rule's constants from the step's scalars in one thread, the second updates the elements.
#include "kernels/cuda/update.h"

#include <memory>
#include <span>
#include <string>

#include "core/base/attrs.h"
#include "core/device/view.h"
#include "core/program/state_codes.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// The entries of a rule, and its attributes. If `any` is not null, `entry` handles only the cases
// that is_plain() accepts, and `any` handles all other cases.
struct Rules {
  const char *entry, *any;
  ConstantsArgs constants;
  int32_t flag;
};

Rules rule_of(const Query& query) {
  const Attrs& attrs = query.attrs;
  auto flag = [&](const char* name, int64_t otherwise) {
    return static_cast<int32_t>(attrs.integer_or(name, otherwise) != 0);
  };
  Rules r{};
  if (query.op == "adamw" || query.op == "adamw_codes") {
    r = {"adamw",
         "adamw_any",
         {.rule = Rule::adamw,
          .flag = {flag("own_rate", 0), flag("l2", 0), flag("bias_correction", 1)}},
         0};
  } else if (query.op == "sgd") {
    r = {
        "sgd",
        "sgd_any",
        {.real = {attrs.real_or("dampening", 0)}, .rule = Rule::sgd, .flag = {flag("maximize", 0)}},
        flag("nesterov", 0)};
  } else if (query.op == "lion") {
    r = {"lion", "lion_any", {.rule = Rule::lion}, 0};
  } else if (query.op == "adagrad") {
    r = {"adagrad",
         "adagrad_any",
         {.real = {attrs.real_or("lr_decay", 0), attrs.real_or("initial", 0)},
          .rule = Rule::adagrad},
         0};
  } else if (query.op == "momentum" || query.op == "own_gradient") {
    const bool mean = query.op == "momentum" && attrs.integer_or("mean", 0) != 0;
    r = {query.op == "momentum" ? "momentum" : "own_gradient",
         nullptr,
         {.real = {mean ? 1.0 : static_cast<double>(attrs.integer("ranks"))},
          .rule = Rule::momentum,
          .flag = {static_cast<int32_t>(mean)}},
         0};
  } else if (query.op == "muon_momentum") {
    r = {"muon_momentum", nullptr, {.rule = Rule::muon_momentum}, 0};
  } else {
    r = {"muon", nullptr, {.rule = Rule::muon}, 0};
  }
  return r;
}

// Returns whether the fast form, update() of update.cu, can be used.
bool is_plain(const UpdateArgs& a, std::span<const TensorView> masters) {
  if (!a.wide || a.drawn || a.count % kUpdated != 0) return false;
  for (const TensorView& kept : masters) {
    if (kept.dtype != DS_DTYPE_F32) return false;
  }
  return true;
}

// The operand is grad; the results are master, states and param. In momentum, own_gradient and
// muon_momentum, the first and the last result take the places of master and param (update.cu).
Made make_update(const Query& query, std::string*) {
  const Rules rules = rule_of(query);
  const bool drawn = query.attrs.integer_or("stochastic", 0) != 0;
  const bool only_param = query.op == "own_gradient";
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        UpdateArgs a{};
        a.constants = start_constants(launcher, c, rules.constants);
        a.grad = operand(c.in[0]);
        a.count = c.in[0].numel();
        a.wide = aligned(c.in[0].data);
        for (const TensorView& out : c.out) a.wide = a.wide && aligned(out.data);
        if (!only_param) a.master = operand(c.out.front());
        for (size_t k = 1; k + 1 < c.out.size(); ++k) a.state[k - 1] = operand(c.out[k]);
        a.param = operand(c.out.back());
        a.same = c.out.front().data == c.out.back().data;
        a.drawn = drawn;
        a.flag = rules.flag;
        const bool any = rules.any && !is_plain(a, c.out.first(c.out.size() - 1));
        start(launcher, any ? rules.any : rules.entry, {blocks(a.count, kUpdated * kThreads)},
              {kThreads}, a);
      },
      sizeof(UpdateConstants));
}

// The operand is grad. The results are master, the codes and scales of the mean, the codes and
// scales of the mean of squares, and param.
Made make_codes_update(const Query& query, std::string* refusal) {
  if (!takes_floats({query.op, query.in, query.out.first(1), query.attrs}, refusal) ||
      !takes_floats({query.op, {}, query.out.last(1), query.attrs}, refusal))
    return nullptr;
  const Rules rules = rule_of(query);
  const bool drawn = query.attrs.integer_or("stochastic", 0) != 0;
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        CodesUpdateArgs a{};
        a.constants = start_constants(launcher, c, rules.constants);
        a.grad = operand(c.in[0]);
        a.master = operand(c.out[0]);
        a.param = operand(c.out[5]);
        a.mean_codes = c.out[1].as<uint8_t>();
        a.mean_scales = c.out[2].as<uint8_t>();
        a.square_codes = c.out[3].as<uint8_t>();
        a.square_scales = c.out[4].as<uint8_t>();
        a.blocks = c.out[2].numel();
        a.wide = aligned(c.in[0].data) && aligned(c.out[0].data) && aligned(c.out[5].data);
        ensure(aligned(a.mean_codes) && aligned(a.square_codes),
               "codes of moments must be 16-byte aligned");
        a.drawn = drawn;
        a.same = c.out[0].data == c.out[5].data;
        start(launcher, "adamw_codes",
              {blocks(a.blocks * kStateBlock, kShare * kCodesUpdateThreads)}, {kCodesUpdateThreads},
              a);
      },
      sizeof(UpdateConstants));
}

constexpr KernelRow kRows[] = {
    {"adamw", make_update},
    {"sgd", make_update},
    {"lion", make_update},
    {"adagrad", make_update},
    {"momentum", make_update},
    {"own_gradient", make_update},
    {"muon", make_update},
    {"muon_momentum", make_update},
    {"adamw_codes", make_codes_update, Takes::own},
};

}  // namespace

std::span<const KernelRow> update_rows() { return kRows; }

}  // namespace ds::cuda
