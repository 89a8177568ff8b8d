// The host side of LAMB's three operations: lamb_moments, lamb_ratios and lamb. Trust ratios are
// per parameter, but norms are per granule, so lamb_ratios first gathers the norms of each
// parameter's granules, which `runs` list, and finally scatters the ratios to the granules.
#include "kernels/cuda/lamb.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/element_run.h"
#include "core/base/round.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/granules.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

struct Rules {
  ConstantsArgs constants;
  int32_t inside;
};
Rules rules_of(const Query& query) {
  const auto flag = [&](const char* name, int64_t otherwise) {
    return static_cast<int32_t>(query.attrs.integer_or(name, otherwise) != 0);
  };
  return {{.rule = Rule::lamb, .flag = {flag("bias_correction", 1)}}, flag("eps_inside_sqrt", 0)};
}

// The operands are grad and master; the results are m, v and norms.
Made make_moments(const Query& query, std::string* refusal) {
  if (!takes_floats({query.op, query.in, query.out.first(2), query.attrs}, refusal)) return nullptr;
  const Rules rules = rules_of(query);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        LambArgs a{};
        a.granules = c.out[2].numel() / 2;
        if (a.granules == 0) return;
        a.constants = start_constants(launcher, c, rules.constants);
        a.grad = operand(c.in[0]);
        a.master = operand(c.in[1]);
        a.m = operand(c.out[0]);
        a.v = operand(c.out[1]);
        a.norms = c.out[2].as<double>();
        a.count = c.in[0].numel();
        a.granule = a.count / a.granules;
        a.wide = aligned(c.in[0].data) && aligned(c.out[0].data) && aligned(c.out[1].data);
        a.inside = rules.inside;
        start(launcher, "lamb_moments", {blocks(a.count, kShare * kThreads)}, {kThreads}, a);
        start(launcher, "lamb_norms", {blocks(a.granules, kGranuleThreads)}, {kGranuleThreads}, a,
              2 * kGranuleRoom * sizeof(float));
      },
      sizeof(UpdateConstants));
}

// The operands are m, v and ratios; the results are master and param.
Made make_lamb(const Query& query, std::string*) {
  const Rules rules = rules_of(query);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        LambArgs a{};
        const int64_t granules = c.in[2].numel();
        if (granules == 0) return;
        a.constants = start_constants(launcher, c, rules.constants);
        a.m = operand(c.in[0]);
        a.v = operand(c.in[1]);
        a.ratios = c.in[2].as<float>();
        a.master = operand(c.out[0]);
        a.param = operand(c.out[1]);
        a.count = c.in[0].numel();
        a.granule = a.count / granules;
        a.wide = aligned(c.in[0].data) && aligned(c.in[1].data) && aligned(c.out[0].data) &&
                 aligned(c.out[1].data);
        a.inside = rules.inside;
        a.same = c.out[0].data == c.out[1].data;
        start(launcher, "lamb", {blocks(a.count, kShare * kThreads)}, {kThreads}, a);
      },
      sizeof(UpdateConstants));
}

// The scratch memory of lamb_ratios. Each buffer of sums needs one pair for each block of 256
// granules and one for each group. There are at most as many groups as granules.
struct RatioRoom {
  double *norms, *sums[2];
  float* ordered;
  int64_t bytes;

  RatioRoom(void* data, int64_t granules) {
    Scratch scratch(data);
    const int64_t sums_of_all = 2 * (granules / kSumBlock + granules + 1);
    norms = scratch.take<double>(2 * granules);
    sums[0] = scratch.take<double>(sums_of_all);
    sums[1] = scratch.take<double>(sums_of_all);
    ordered = scratch.take<float>(granules);
    bytes = scratch.used();
  }
};

// The operand is norms; the results are means, which may be absent, and ratios.
Made make_ratios(const Query& query, std::string*) {
  RatiosArgs shared{};
  shared.least = query.attrs.real("min_coeff");
  shared.most = query.attrs.real("max_coeff");
  shared.beta = query.attrs.real_or("coeff_beta", 0);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        const TensorView& ratios = c.out.back();
        const RatioRoom room(c.scratch, ratios.numel());
        copy_bytes(launcher, nullptr, ratios.data,
                   ratios.numel() * static_cast<int64_t>(sizeof(float)));
        gather_runs(launcher, c.in[0].as<double>(), room.norms, c.runs, 2, 2 * ratios.numel());
        RatiosArgs a = shared;
        a.norms = room.norms;
        a.sums[0] = room.sums[0];
        a.sums[1] = room.sums[1];
        a.ordered = room.ordered;
        a.means = c.out.size() > 1 ? c.out[0].as<float>() : nullptr;
        // A launch has at most kLambGroups groups, because they are part of its argument.
        const auto flush = [&] {
          start(launcher, "lamb_ratios", {static_cast<uint32_t>(a.groups)}, {kRatioThreads}, a,
                sizeof(float));
          a.first += a.groups;
          a.groups = 0;
        };
        int64_t at = 0;
        // Consecutive runs with the same group are the pieces of one parameter.
        for (size_t r = 0; r < c.runs.size();) {
          LambGroup group{at, 0, c.runs[r].group};
          for (; r < c.runs.size() && c.runs[r].group == group.number; ++r)
            group.count += c.runs[r].end - c.runs[r].begin;
          at += group.count;
          if (group.count == 0) continue;
          a.group[a.groups++] = group;
          if (a.groups == kLambGroups) flush();
        }
        flush();
        scatter_runs(launcher, room.ordered, ratios.as<float>(), c.runs);
      },
      RatioRoom(nullptr, query.out.back().numel()).bytes);
}

constexpr KernelRow kRows[] = {{"lamb_moments", make_moments, Takes::own},
                               {"lamb_ratios", make_ratios, Takes::own},
                               {"lamb", make_lamb}};

}  // namespace

std::span<const KernelRow> lamb_rows() { return kRows; }

}  // namespace ds::cuda
