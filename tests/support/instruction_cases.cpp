#include "core/base/error.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

InstructionCase adamw_case(int64_t count, DType param, bool l2, int64_t skip) {
  InstructionCase c{
      "adamw",
      {{"l2", int64_t{l2}}},
      {random_tensor(DS_DTYPE_F32, {count}, 1)},
      {random_tensor(DS_DTYPE_F32, {count}, 2), random_tensor(DS_DTYPE_F32, {count}, 3),
       random_tensor(DS_DTYPE_F32, {count}, 4), Tensor(param, {count})}};
  // Second moments are never negative.
  for (int64_t e = 0; e < count; ++e) c.out[2].set(e, std::abs(c.out[2].at(e)));
  c.scalars.group = {.lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  c.scalars.updates = 1;
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  return c;
}

// Returns a case of AdamW with 8-bit states, with random codes and scales.
InstructionCase adamw_codes_case(int64_t count, DType grad, DType master, DType param, int64_t l2,
                                 int64_t stochastic, int64_t skip) {
  auto bytes = [](int64_t n, int64_t low, int64_t end, uint64_t seed) {
    Tensor ids = random_ids(n, end - low, seed), out(DS_DTYPE_U8, {n});
    for (int64_t e = 0; e < n; ++e)
      out.bytes()[static_cast<size_t>(e)] =
          static_cast<std::byte>(low + static_cast<int64_t>(ids.at(e)));
    return out;
  };
  const int64_t blocks = count / 256;
  InstructionCase c{
      "adamw_codes",
      {{"l2", l2}, {"stochastic", stochastic}},
      {random_tensor(grad, {count}, 1)},
      {random_tensor(master, {count}, 2), bytes(count, 0, 256, 3), bytes(blocks, 118, 128, 4),
       bytes(count, 0, 256, 5), bytes(blocks, 110, 128, 6), Tensor(param, {count})}};
  c.scalars.group = {.lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  c.scalars.updates = 1;
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  // The first element is not the first one of its parameter.
  c.scalars.element = 768;
  return c;
}

void add_muon_cases(int64_t count, std::vector<InstructionCase>& cases) {
  auto random = [](DType dtype, std::vector<int64_t> dims, uint64_t seed) {
    return random_tensor(dtype, std::move(dims), seed);
  };
  StepScalars scalars;
  scalars.group = {.lr = 3e-2, .weight_decay = 0.1, .momentum = 0.95};
  scalars.grad_scale = 0.3;
  for (int64_t skip : {0, 1}) {
    scalars.skip = skip;
    cases.push_back({"muon_momentum",
                     {},
                     {random(DS_DTYPE_F32, {count}, 1)},
                     {random(DS_DTYPE_F32, {count}, 2), Tensor(DS_DTYPE_F32, {count})},
                     scalars});
    for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      cases.push_back({"muon",
                       {},
                       {random(DS_DTYPE_F32, {count}, 1)},
                       {random(DS_DTYPE_F32, {count}, 2), Tensor(param, {count})},
                       scalars});
    }
  }
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    cases.push_back({"unit_matrix",
                     {{"eps", 1e-7}},
                     {random(DS_DTYPE_F32, {count / 8, 8}, 3)},
                     {Tensor(dtype, {count / 8, 8})}});
    Tensor x = random(dtype, {16, 16}, 4), y = random(dtype, {16, 16}, 5);
    for (DType to : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      cases.push_back({"blend", {{"a", 3.4445}, {"b", -4.775}}, {x, y}, {Tensor(to, {16, 16})}});
      cases.push_back({"blend", {{"a", 1.0}, {"diagonal", 3.4445}}, {x}, {Tensor(to, {16, 16})}});
    }
  }
}

InstructionCase sgd_case(int64_t count, DType param, bool nesterov, int64_t skip) {
  InstructionCase c{"sgd",
                    {{"nesterov", int64_t{nesterov}}},
                    {random_tensor(DS_DTYPE_F32, {count}, 1)},
                    {random_tensor(DS_DTYPE_F32, {count}, 2),
                     random_tensor(DS_DTYPE_F32, {count}, 3), Tensor(param, {count})}};
  c.scalars.group = {.lr = 3e-2, .weight_decay = 0.1, .momentum = 0.9};
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  return c;
}

// Returns a case of an optimizer with one state: Lion or Adagrad.
InstructionCase one_state_case(const char* op, Attrs attrs, int64_t count, DType param,
                               int64_t updates, int64_t skip) {
  InstructionCase c{op,
                    std::move(attrs),
                    {random_tensor(DS_DTYPE_F32, {count}, 1)},
                    {random_tensor(DS_DTYPE_F32, {count}, 2),
                     random_tensor(DS_DTYPE_F32, {count}, 3), Tensor(param, {count})}};
  for (int64_t e = 0; op[0] == 'a' && e < count; ++e)
    // Sums of squares are never negative.
    c.out[1].set(e, std::abs(c.out[1].at(e)));
  c.scalars.group = {.lr = 3e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
  c.scalars.updates = updates;
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  return c;
}

InstructionCase lamb_moments_case(int64_t count, int64_t inside, int64_t skip) {
  InstructionCase c{
      "lamb_moments",
      {{"eps_inside_sqrt", inside}},
      {random_tensor(DS_DTYPE_F32, {count}, 1), random_tensor(DS_DTYPE_F32, {count}, 2)},
      {random_tensor(DS_DTYPE_F32, {count}, 3), random_tensor(DS_DTYPE_F32, {count}, 4),
       Tensor(DS_DTYPE_F64, {count / 128})}};
  for (int64_t e = 0; e < count; ++e) c.out[1].set(e, std::abs(c.out[1].at(e)));
  c.scalars.group = {.lr = 3e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
  c.scalars.updates = 2;
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  return c;
}

InstructionCase lamb_case(int64_t count, DType param, int64_t inside, int64_t skip) {
  InstructionCase moments = lamb_moments_case(count, inside, skip);
  Tensor ratios = random_tensor(DS_DTYPE_F32, {count / 256}, 7);
  return {"lamb",
          moments.attrs,
          {moments.out[0], moments.out[1], ratios},
          {moments.in[1], Tensor(param, {count})},
          moments.scalars};
}

// Returns variances for 0/1 Adam and 1-bit LAMB after their freeze: none is negative, and some are
// 0.
Tensor variance(int64_t count, uint64_t seed) {
  Tensor v = random_tensor(DS_DTYPE_F32, {count}, seed);
  for (int64_t e = 0; e < count; ++e) v.set(e, e % 5 == 0 ? 0 : std::abs(v.at(e)));
  return v;
}

InstructionCase frozen_case(const char* op, Attrs attrs, std::vector<Tensor> in,
                            std::vector<Tensor> out, int64_t skip) {
  InstructionCase c{op, std::move(attrs), std::move(in), std::move(out)};
  c.scalars.group = {
      .lr = 3e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .rate_sum = 0.11};
  c.scalars.grad_scale = 0.3;
  c.scalars.skip = skip;
  return c;
}

void add_frozen_cases(int64_t count, std::vector<InstructionCase>& cases) {
  const Tensor x = random_tensor(DS_DTYPE_F32, {count}, 1),
               y = random_tensor(DS_DTYPE_F32, {count}, 2),
               z = random_tensor(DS_DTYPE_F32, {count}, 3), v = variance(count, 4),
               scale = random_tensor(DS_DTYPE_F32, {1}, 5);
  const Attrs ranks{{"ranks", int64_t{3}}};
  auto add = [&](const char* op, const Attrs& attrs, std::vector<Tensor> in,
                 std::vector<Tensor> out) {
    for (int64_t skip : {0, 1}) cases.push_back(frozen_case(op, attrs, in, out, skip));
  };
  add("own_gradient", ranks, {x}, {Tensor(DS_DTYPE_F32, {count})});
  for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    const Tensor p(param, {count});
    add("local_adam", {{"ranks", int64_t{3}}, {"sum", int64_t{0}}}, {x, v, y}, {z, x, p});
    add("synced_adam", {}, {v}, {x, y, z, p});
  }
  add("local_adam", {{"ranks", int64_t{3}}, {"sum", int64_t{1}}}, {x, v, y}, {z, x});
  for (int64_t inverse : {0, 1}) add("scale_momentum", {{"inverse", inverse}}, {x, scale}, {y});
  add("frozen_lamb_moments", {}, {x, y, v, z},
      {variance(count, 6), Tensor(DS_DTYPE_F64, {3 * count / 256})});
}

}  // namespace

std::vector<InstructionCase> instruction_cases() {
  std::vector<InstructionCase> cases;
  for (int64_t count : {int64_t{256}, int64_t{768}, int64_t{5 * 256}}) {
    Tensor x = random_tensor(DS_DTYPE_F32, {count}, 11),
           y = random_tensor(DS_DTYPE_F32, {count}, 12);
    cases.push_back({"zero", {}, {}, {x}});
    for (DType half : {DS_DTYPE_BF16, DS_DTYPE_F16})
      cases.push_back({"zero", {}, {}, {x.as(half)}});
    for (DType from : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      for (int64_t beta : {0, 1})
        cases.push_back({"accumulate", {{"beta", beta}}, {x.as(from)}, {y}});
      for (int64_t beta : {0, 1}) {
        for (DType sum : {DS_DTYPE_BF16, DS_DTYPE_F16})
          cases.push_back({"accumulate", {{"beta", beta}}, {x.as(from)}, {y.as(sum)}});
      }
      cases.push_back({"granule_norms", {}, {x.as(from)}, {Tensor(DS_DTYPE_F64, {count / 256})}});
    }
    for (const char* kind : {"zeros", "ones", "normal"}) {
      Attrs attrs{{"kind", kind}, {"scale", 0.02}, {"param", int64_t{4}}, {"begin", count + 3}};
      cases.push_back({"init_param", attrs, {}, {Tensor(DS_DTYPE_F32, {count})}});
      cases.back().scalars.seed = 99;
    }
    for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      for (bool l2 : {false, true}) cases.push_back(adamw_case(count, param, l2, 0));
    }
    cases.push_back(adamw_case(count, DS_DTYPE_F32, false, 1));
    for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      for (bool nesterov : {false, true}) cases.push_back(sgd_case(count, param, nesterov, 0));
    }
    cases.push_back(sgd_case(count, DS_DTYPE_F32, false, 1));
    cases.push_back(sgd_case(count, DS_DTYPE_F32, false, 0));
    cases.back().attrs = {{"nesterov", int64_t{0}}, {"dampening", 0.25}, {"maximize", int64_t{1}}};
    cases.back().scalars.updates = 3;
    cases.push_back(adamw_case(count, DS_DTYPE_F32, true, 0));
    cases.back().attrs.set("bias_correction", int64_t{0});
    for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      const Attrs adagrad{{"lr_decay", 0.5}, {"initial", 0.25}};
      for (int64_t updates : {0, 3}) {
        cases.push_back(one_state_case("lion", {}, count, param, updates, 0));
        cases.push_back(one_state_case("adagrad", adagrad, count, param, updates, 0));
      }
      for (int64_t inside : {0, 1}) cases.push_back(lamb_case(count, param, inside, 0));
    }
    for (int64_t inside : {0, 1}) cases.push_back(lamb_moments_case(count, inside, 0));
    cases.push_back(one_state_case("lion", {}, count, DS_DTYPE_BF16, 0, 1));
    cases.push_back(one_state_case("adagrad", {}, count, DS_DTYPE_BF16, 0, 1));
    cases.push_back(lamb_moments_case(count, 0, 1));
    cases.push_back(lamb_case(count, DS_DTYPE_F32, 0, 1));
    add_frozen_cases(count, cases);
    for (int64_t drawn : {0, 1}) {
      cases.push_back(
          adamw_codes_case(count, DS_DTYPE_F32, DS_DTYPE_F32, DS_DTYPE_BF16, 0, drawn, 0));
      cases.push_back(
          adamw_codes_case(count, DS_DTYPE_BF16, DS_DTYPE_BF16, DS_DTYPE_BF16, 1, drawn, 0));
    }
    cases.push_back(adamw_codes_case(count, DS_DTYPE_F32, DS_DTYPE_F32, DS_DTYPE_F32, 0, 0, 1));
    add_muon_cases(count, cases);
  }
  return cases;
}

}  // namespace ds::test
