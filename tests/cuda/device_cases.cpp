#include "cuda/device_cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>

#include "core/program/codes.h"
#include "core/program/state_codes.h"

namespace ds::test {

std::vector<OpCase> wide_op_cases() {
  KernelRegistry ref;
  register_ref(ref);
  ThreadTeam team(1);
  std::vector<OpCase> all;
  auto real = [number = uint64_t{40}](std::vector<int64_t> dims) mutable {
    return random_tensor(DS_DTYPE_F64, std::move(dims), ++number);
  };
  // Adds a case and returns its results, computed in f64.
  auto add = [&](const char* op, const Attrs& attrs, std::vector<Tensor> in) {
    all.push_back({op, attrs, std::move(in)});
    return run_case(implementation(ref, op, "ref"), all.back(), DS_DTYPE_F64, team);
  };
  Tensor x = real({3, 300}), dy = real({3, 300}), w = real({300}), b = real({300}), one = real({});
  std::vector<Tensor> norm = add("layer_norm", {{"eps", 1e-5}}, {x, w, b});
  add("layer_norm_dx", {}, {dy, x, w, norm[1], norm[2]});
  norm = add("rms_norm", {{"eps", 1e-5}}, {x, w});
  add("rms_norm_dx", {}, {dy, x, w, norm[1]});
  // Rows that need several warps, and rows that do not fit in a block's registers.
  for (int64_t width : {2100, 8300}) {
    Tensor wide_x = real({2, width}), wide_dy = real({2, width}), wide_w = real({width}),
           wide_b = real({width});
    norm = add("layer_norm", {{"eps", 1e-5}}, {wide_x, wide_w, wide_b});
    add("layer_norm_dx", {}, {wide_dy, wide_x, wide_w, norm[1], norm[2]});
    norm = add("rms_norm", {{"eps", 1e-5}}, {wide_x, wide_w});
    add("rms_norm_dx", {}, {wide_dy, wide_x, wide_w, norm[1]});
  }
  add("scale_rows_dw", {{"columns", int64_t{300}}, {"column", int64_t{1}}}, {dy, x});
  Tensor tall = real({300, 10}), gradient = real({300, 10});
  norm = add("layer_norm", {{"eps", 1e-5}}, {tall});
  add("layer_norm_dw", {}, {gradient, tall, norm[1], norm[2]});
  add("linear_db", {}, {gradient});
  Tensor broad = real({40, 296}), broad_dy = real({40, 296});
  norm = add("layer_norm", {{"eps", 1e-5}}, {broad});
  add("layer_norm_dw", {}, {broad_dy, broad, norm[1], norm[2]});
  add("linear_db", {}, {broad_dy});
  // A block lists the rows of an id in several passes, because there are more ids than its list
  // holds.
  add("embedding_dw", {{"rows", int64_t{40}}}, {real({2600, 10}), random_ids(2600, 40, 5)});
  Tensor logits = real({5, 700}), targets = random_ids(5, 700, 3);
  targets.set(2, -100);
  std::vector<Tensor> loss = add("cross_entropy", {}, {logits, targets});
  add("cross_entropy_dx", {}, {one, logits, targets, loss[1]});
  loss = add("cross_entropy", {{"label_smoothing", 0.2}, {"z_loss", 0.03}}, {logits, targets});
  add("cross_entropy_dx", {{"label_smoothing", 0.2}, {"z_loss", 0.03}},
      {one, logits, targets, loss[1]});
  // Words with probability 0, several equal largest logits, and a row whose first eight words have
  // no finite logit.
  for (int64_t v = 0; v < 700; ++v) {
    if (v % 3 != 0 || v < 40) logits.set(v, -std::numeric_limits<double>::infinity());
    if (v % 50 == 0) logits.set(700 + v, 9);
    logits.set(1400 + v, 2);
  }
  for (int64_t r : {0, 1, 2}) targets.set(r, 699);
  loss = add("cross_entropy", {}, {logits, targets});
  add("cross_entropy_dx", {}, {one, logits, targets, loss[1]});
  // There are enough words for each thread to fetch several times, and a tail.
  Tensor many = real({2, 16411}), of_many = random_ids(2, 16411, 6);
  for (const Attrs& attrs : {Attrs{}, Attrs{{"label_smoothing", 0.2}, {"z_loss", 0.03}}}) {
    loss = add("cross_entropy", attrs, {many, of_many});
    add("cross_entropy_dx", attrs, {one, many, of_many, loss[1]});
  }
  for (int64_t log : {0, 1}) {
    Tensor y = add("softmax", {{"log", log}}, {x})[0];
    add("softmax_dx", {{"log", log}}, {dy, y});
  }
  add("causal_softmax", {{"seq", int64_t{2}}}, {x});
  for (int64_t depth : {96, 160}) {
    Attrs attrs{{"heads", int64_t{2}},
                {"kv_heads", int64_t{1}},
                {"seq", int64_t{70}},
                {"causal", int64_t{depth == 96}}};
    Tensor q = real({90, 2 * depth}), k = real({90, depth}), v = real({90, depth});
    std::vector<Tensor> y = add("attention", attrs, {q, k, v});
    add("attention_dx", attrs, {real({90, 2 * depth}), q, k, v, y[0], y[1]});
  }
  // Caches that need one part, caches that need several, and caches of more than the smallest size,
  // with head extents for every entry.
  for (auto [depth, capacity, window] :
       {std::array<int64_t, 3>{48, 1300, 0}, {96, 8300, 40}, {160, 600, 530}}) {
    Attrs attrs{{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"window", window}};
    Tensor positions = Tensor(DS_DTYPE_I32, {4});
    const auto last = static_cast<double>(capacity - 1);
    for (int64_t r = 0; r < 4; ++r)
      positions.set(r, r == 0 ? 0 : std::floor(last * static_cast<double>(r) / 3));
    add("cached_attention", attrs,
        {real({4, 2 * depth}), real({4, depth}), real({4, depth}), positions,
         real({2, capacity, depth})});
  }
  return all;
}

std::vector<OpCase> draw_attention(uint64_t number) {
  std::mt19937_64 words(number);
  const auto below = [&](uint64_t end) { return static_cast<int64_t>(words() % end); };
  constexpr int64_t kDepths[] = {2, 8, 24, 30, 64, 72, 100, 128};
  const int64_t groups = 1 + below(2), heads = groups * (1 + below(3)), depth = kDepths[below(8)],
                seq = 1 + below(150), rows = 1 + below(200),
                // 0 means neither documents nor a mask, 1 documents, and 2 a mask.
      kind = below(3);
  Attrs attrs{{"heads", heads}, {"kv_heads", groups}, {"seq", seq}};
  if (kind == 1) attrs.set("documents", int64_t{1});
  if (kind != 1 && below(3) == 0)
    attrs.set("causal", int64_t{0});
  else if (below(3) == 0)
    attrs.set("window", 1 + below(100));
  if (below(3) == 0) attrs.set("softcap", 0.5 + static_cast<double>(below(3)));
  if (below(4) == 0) attrs.set("dropout", 0.25), attrs.set("op", int64_t{32770});
  uint64_t tensor = 100 * number;
  const auto real = [&](int64_t columns) {
    return random_tensor(DS_DTYPE_F64, {rows, columns}, ++tensor);
  };
  std::vector<Tensor> in;
  if (below(2) == 0)
    in = {real((heads + 2 * groups) * depth)};
  else
    in = {real(heads * depth), real(groups * depth), real(groups * depth)};
  if (kind != 0) in.emplace_back(DS_DTYPE_I32, std::vector<int64_t>{rows});
  for (int64_t r = 0, first = 0; kind != 0 && r < rows; ++r) {
    if (r == first + seq || below(40) == 0) first = r;
    in.back().set(r, static_cast<double>(kind == 1 ? first : below(6) != 0));
  }
  KernelRegistry ref;
  register_ref(ref);
  ThreadTeam team(1);
  std::vector<OpCase> both{{"attention", attrs, in}};
  std::vector<Tensor> stats =
      run_case(implementation(ref, "attention", "ref"), both[0], DS_DTYPE_F64, team);
  in.insert(in.begin(), real(heads * depth));
  in.insert(in.end(), stats.begin(), stats.end());
  both.push_back({"attention_dx", attrs, in});
  return both;
}

std::string own_bits_of_sequences(const RunCase& run, DType dtype, bool causal) {
  constexpr int64_t kSeq = 90, kWidth = 80, kBatch = 3;
  const Attrs attrs{{"heads", int64_t{2}}, {"seq", kSeq}, {"causal", int64_t{causal}}};
  struct Made {
    Tensor y, lse, gradient;
  };
  const auto made = [&](const Tensor& qkv, const Tensor& dy) {
    const std::vector<Tensor> y = run({"attention", attrs, {qkv}}, dtype);
    return Made{y[0], y[1], run({"attention_dx", attrs, {dy, qkv, y[0], y[1]}}, dtype)[0]};
  };
  const Tensor qkv = random_tensor(dtype, {kBatch * kSeq, 3 * kWidth}, 5),
               dy = random_tensor(dtype, {kBatch * kSeq, kWidth}, 6);
  const Made all = made(qkv, dy);
  for (int64_t b = 0; b < kBatch; ++b) {
    const int64_t first = b * kSeq;
    const Made own = made(rows_of(qkv, first, kSeq), rows_of(dy, first, kSeq));
    const auto differs = [&](const char* what) {
      return std::string(what) + " of sequence " + std::to_string(b) + " of " +
             std::string(dtype_name(dtype)) + (causal ? ", causal" : "");
    };
    if (own.y != rows_of(all.y, first, kSeq)) return differs("y");
    if (own.lse != columns_of(all.lse, first, kSeq)) return differs("lse");
    if (own.gradient != rows_of(all.gradient, first, kSeq)) return differs("the gradient");
    for (int64_t e = 0; causal && e < kWidth; ++e) {
      if (own.y.at(e) != qkv.at(first * 3 * kWidth + 2 * kWidth + e))
        return differs("y of the first row");
      if (own.gradient.at(e) != 0) return differs("the gradient of the first query");
    }
  }
  if (!causal) return "";
  const Attrs narrow{{"heads", int64_t{2}}, {"seq", kSeq}, {"window", int64_t{1}}};
  const std::vector<Tensor> y = run({"attention", narrow, {qkv}}, dtype);
  const Tensor gradient = run({"attention_dx", narrow, {dy, qkv, y[0], y[1]}}, dtype)[0];
  for (int64_t e = 0; e < dy.numel(); ++e) {
    const int64_t q = e / kWidth * 3 * kWidth + e % kWidth, k = q + kWidth, v = k + kWidth;
    if (y[0].at(e) != qkv.at(v) || gradient.at(v) != dy.at(e))
      return "a row that sees itself has another weight";
    if (gradient.at(q) != 0 || gradient.at(k) != 0)
      return "the score of a row that sees itself has a gradient";
  }
  return "";
}

std::string bounds_of_nan(const RunCase& run, DType dtype) {
  constexpr int64_t kSeq = 70, kRows = 2 * kSeq, kWidth = 16;
  const Attrs attrs{{"heads", int64_t{2}}, {"seq", kSeq}, {"causal", int64_t{0}}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor mask(DS_DTYPE_I32, {kRows});
  for (int64_t r = 0; r < kRows; ++r) mask.set(r, r % 3 != 1);
  const Tensor qkv = random_tensor(dtype, {kRows, 3 * kWidth}, 7),
               dy = random_tensor(dtype, {kRows, kWidth}, 8);
  // Returns the operands with NaN in columns [from, to) of the rows that `where` selects.
  const auto with_nan = [&](int64_t from, int64_t to, auto where) {
    Tensor changed = qkv;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = from; where(r) && c < to; ++c) changed.set(r * 3 * kWidth + c, nan);
    }
    return changed;
  };
  const auto made = [&](const Tensor& operands) {
    std::vector<Tensor> y = run({"attention", attrs, {operands, mask}}, dtype);
    y.push_back(run({"attention_dx", attrs, {dy, operands, mask, y[0], y[1]}}, dtype)[0]);
    return y;
  };
  const std::vector<Tensor> plain = made(qkv);
  if (made(with_nan(kWidth, 3 * kWidth, [&](int64_t r) { return mask.at(r) == 0; })) != plain)
    return "a masked key is read";
  constexpr int64_t kQuery = 5;
  const Tensor y = made(with_nan(0, kWidth, [](int64_t r) { return r == kQuery; }))[0];
  for (int64_t e = 0; e < y.numel(); ++e) {
    if (std::isnan(y.at(e)) != (e / kWidth == kQuery))
      return "NaN of a query is lost, or is in another row";
  }
  return "";
}

std::string own_bits_of_rows(const RunCase& run, DType dtype) {
  constexpr int64_t kRows = 4;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Returns the results for x and dy in which each row depends only on the operands' same row.
  const auto made = [&](const Tensor& x, const Tensor& dy, const Tensor& w, const Tensor& targets) {
    const int64_t rows = x.dims()[0];
    const Attrs eps{{"eps", 1e-5}}, each{{"reduction", "none"}};
    std::vector<Tensor> all = run({"layer_norm", eps, {x, w, w}}, dtype);
    all.push_back(run({"layer_norm_dx", {}, {dy, x, w, all[1], all[2]}}, dtype)[0]);
    std::vector<Tensor> rms = run({"rms_norm", eps, {x, w}}, dtype);
    rms.push_back(run({"rms_norm_dx", {}, {dy, x, w, rms[1]}}, dtype)[0]);
    std::vector<Tensor> loss = run({"cross_entropy", each, {x, targets}}, dtype);
    Tensor ones(DS_DTYPE_F64, {rows});
    for (int64_t r = 0; r < rows; ++r) ones.set(r, 1);
    loss.push_back(run({"cross_entropy_dx", each, {ones, x, targets, loss[1]}}, dtype)[0]);
    for (const std::vector<Tensor>& more : {rms, loss})
      all.insert(all.end(), more.begin(), more.end());
    all.push_back(run({"softmax", {{"log", int64_t{0}}}, {x}}, dtype)[0]);
    return all;
  };
  for (int64_t width : {1, 7, 8, 767, 769, 2049, 6145, 16411}) {
    const Tensor x = random_tensor(dtype, {kRows, width}, 91),
                 dy = random_tensor(dtype, {kRows, width}, 92),
                 w = random_tensor(dtype, {width}, 93), targets = random_ids(kRows, width, 94);
    const auto differs = [&](const char* what, size_t output, int64_t r) {
      return fmt::format("{} of row {} of {} {}: output {}", what, r, width, dtype_name(dtype),
                         output);
    };
    // Returns whether row r of `all` and row `other_row` of `other` hold equal numbers.
    const auto same = [&](const Tensor& all, int64_t r, const Tensor& other, int64_t other_row) {
      const int64_t columns = all.numel() / kRows;
      for (int64_t e = 0; e < columns; ++e) {
        if (all.at(r * columns + e) != other.at(other_row * columns + e)) return false;
      }
      return true;
    };
    const std::vector<Tensor> all = made(x, dy, w, targets);
    for (int64_t r = 0; r < kRows; ++r) {
      Tensor target(DS_DTYPE_I32, {1});
      target.set(0, targets.at(r));
      const std::vector<Tensor> own = made(rows_of(x, r, 1), rows_of(dy, r, 1), w, target);
      for (size_t i = 0; i < all.size(); ++i) {
        if (!same(all[i], r, own[i], 0)) return differs("bits", i, r);
      }
    }
    constexpr int64_t kSick = 1;
    for (int64_t column : {int64_t{0}, width / 2, width - 1}) {
      Tensor sick = x;
      sick.set(kSick * width + column, nan);
      const std::vector<Tensor> got = made(sick, dy, w, targets);
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t columns = all[i].numel() / kRows;
        for (int64_t r = 0; r < kRows; ++r) {
          if (r != kSick && !same(all[i], r, got[i], r)) return differs("bits beside NaN", i, r);
        }
        bool any = false;
        for (int64_t e = 0; e < columns; ++e)
          any = any || std::isnan(got[i].at(kSick * columns + e));
        if (!any) return differs("NaN", i, kSick);
      }
    }
  }
  return "";
}

namespace {

// --- instructions, with operand sizes that tests/support/instruction_cases.cpp lacks: several
// blocks, tails and slices of levels ---

// Returns random f32 values times `factor`, so that few of them are exact in bf16.
Tensor floats(std::vector<int64_t> dims, uint64_t number, double factor = 1.00017) {
  Tensor t = random_tensor(DS_DTYPE_F32, std::move(dims), number);
  for (int64_t e = 0; e < t.numel(); ++e) t.set(e, t.at(e) * factor);
  return t;
}
Tensor poisoned(DType dtype, std::vector<int64_t> dims) {
  Tensor t(dtype, std::move(dims));
  t.poison();
  return t;
}
// Returns a block of scalars as the 256-byte output of an instruction.
Tensor scalars_block(const StepScalars& scalars) {
  Tensor t(DS_DTYPE_U8, {256});
  std::memcpy(t.bytes().data(), &scalars, sizeof scalars);
  return t;
}

}  // namespace

std::vector<InstructionCase> device_instruction_cases() {
  std::vector<InstructionCase> all;
  StepScalars step;
  step.leaves = 5, step.weight = 4.75, step.loss = 2.5, step.loss_scale = 128, step.updates = 3,
  step.seed = 9;
  step.grad_scale = 0.37;
  step.group = {
      .lr = 3.1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9};
  for (int64_t count : {1, 255, 257, 70000}) {
    Tensor squares(DS_DTYPE_F64, {count});
    for (int64_t e = 0; e < count; ++e)
      squares.set(e, std::fmod(0.1 * static_cast<double>(e * e + 1), 7.3));
    std::vector<ElementRun> runs;
    for (int64_t begin = count / 2; begin > 0 && runs.size() < 100; begin -= 3)
      runs.push_back({begin, std::min(begin + 2, count)});
    for (const auto& order : {std::vector<ElementRun>{}, runs}) {
      all.push_back({"sum_norms", {}, {squares}, {Tensor(DS_DTYPE_F64, {1})}, step, order});
      for (double most : {0.0, 1.0, 1e9}) {
        Attrs attrs{{"max_norm", most}, {"ranks", int64_t{3}}};
        all.push_back({"clip", attrs, {squares}, {scalars_block(step)}, step, order});
      }
    }
  }
  Tensor infinite(DS_DTYPE_F64, {1});
  infinite.set(0, std::numeric_limits<double>::infinity());
  for (int64_t unchecked : {0, 1}) {
    Attrs attrs{{"max_norm", 1.0}, {"unchecked", unchecked}};
    all.push_back({"clip", attrs, {infinite}, {scalars_block(step)}, step});
  }
  Tensor losses = floats({15}, 4);
  auto absent = std::bit_cast<float>(kNoLeaf);
  std::memcpy(losses.bytes().data() + 4 * sizeof(float), &absent, sizeof absent);
  all.push_back({"losses", {{"micros", int64_t{3}}}, {losses}, {scalars_block(step)}, step});
  // The losses of three ranks.
  Tensor weighted = floats({18}, 5);
  for (int64_t i = 0; i < 18; ++i)
    weighted.set(i, i / 3 % 2 == 0 ? weighted.at(i) : static_cast<double>(i % 5));
  std::memcpy(weighted.bytes().data() + 7 * sizeof(float), &absent, sizeof absent);
  for (int64_t unit : {1, 16})
    all.push_back({"losses",
                   {{"micros", int64_t{3}}, {"unit", unit}},
                   {weighted},
                   {scalars_block(step)},
                   step});
  StepScalars nothing = step;
  nothing.weight = 0;
  all.push_back({"clip",
                 {{"max_norm", 1.0}, {"unchecked", int64_t{1}}},
                 {infinite},
                 {scalars_block(nothing)},
                 nothing});
  all.push_back({"mean_gradients", {}, {}, {scalars_block(step)}, step});
  for (int64_t mean : {0, 1}) {
    Attrs attrs{{"ranks", int64_t{3}}, {"mean", mean}};
    all.push_back({"momentum", attrs, {floats({300}, 5)}, {floats({300}, 6)}, step});
  }
  // Repeated ids over several blocks of the list; with 700 words, the last block is not full.
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Tensor table = floats({700, 24}, 7).as(dtype), ids = random_ids(90, 700, 8);
    for (int64_t gone : {0, 1}) {
      StepScalars own = step;
      own.absent = gone;
      all.push_back({"pack_rows",
                     {},
                     {table, ids},
                     {poisoned(dtype, {100, 24}), poisoned(DS_DTYPE_I32, {100})},
                     own});
    }
    for (int64_t ranks : {1, 5, 8}) {
      Tensor rows = floats({ranks * 40, 24}, 9).as(dtype), numbers(DS_DTYPE_I32, {ranks * 40});
      for (int64_t r = 0; r < ranks; ++r) {
        for (int64_t k = 0; k < 40; ++k)
          numbers.set(r * 40 + k, k < 33 ? static_cast<double>(3 * k + r) : 0x7fffffff);
      }
      Attrs attrs{{"ranks", ranks}, {"first", int64_t{50}}};
      if (ranks == 8) attrs.set("levels", std::vector<int64_t>{4, 2});
      all.push_back({"sum_rows", attrs, {rows, numbers}, {poisoned(DS_DTYPE_F32, {2000})}, step});
    }
  }
  // Ordinary granules, one of zeros, one with a NaN, one with an infinity and one of subnormal
  // numbers.
  Tensor x = floats({6 * kGranule}, 21);
  for (int64_t e = 0; e < kGranule; ++e) {
    x.set(kGranule + e, 0);
    x.set(4 * kGranule + e, x.at(e) * 0x1p-130);
  }
  x.set(2 * kGranule + 7, std::nan(""));
  x.set(3 * kGranule + 9, std::numeric_limits<double>::infinity());
  for (int64_t bits : {8, 4}) {
    Tensor codes = poisoned(DS_DTYPE_U8, {code_bytes(6 * kGranule, bits)});
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16})
      all.push_back({"quantize", {{"bits", bits}}, {x.as(dtype)}, {codes}, step});
    for (int64_t reset : {0, 2, 3}) {
      for (int64_t skip : {0, 1}) {
        StepScalars own = step;
        own.step = 4, own.skip = skip;
        Attrs attrs{{"bits", bits}, {"err_beta", 0.8}, {"reset", reset}};
        all.push_back({"quantize", attrs, {x}, {floats({6 * kGranule}, 22, 1e-2), codes}, own});
      }
    }
    for (int64_t ranks : {1, 3, 7}) {
      Tensor sent(DS_DTYPE_U8, {ranks * code_bytes(2 * kGranule, bits)});
      for (int64_t e = 0; e < sent.numel(); ++e)
        sent.bytes()[static_cast<size_t>(e)] = static_cast<std::byte>((e * 37 + 11) % 120);
      Attrs attrs{{"bits", bits}, {"ranks", ranks}};
      all.push_back(
          {"dequantize_sum", attrs, {sent}, {poisoned(DS_DTYPE_F32, {2 * kGranule})}, step});
      if (ranks != 1) continue;
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_F16})
        all.push_back(
            {"dequantize", {{"bits", bits}}, {sent}, {poisoned(dtype, {2 * kGranule})}, step});
    }
  }
  // Masters and states in f32, and in bf16 with stochastic rounding whose random bits start at an
  // element that is not a multiple of four; with and without a tail.
  for (const char* op : {"adamw", "sgd", "lion", "adagrad"}) {
    for (int64_t drawn : {0, 1}) {
      for (int64_t count : {2999, 3000}) {
        for (DType kept : {DS_DTYPE_BF16, DS_DTYPE_F32}) {
          StepScalars own = step;
          own.param = 3, own.element = 1021, own.step = 17;
          Attrs attrs{{"stochastic", drawn}, {"l2", int64_t{0}}, {"nesterov", int64_t{1}}};
          Tensor second = floats({count}, 12);
          for (int64_t e = 0; e < count; ++e) second.set(e, std::abs(second.at(e)) * 1e-3);
          std::vector<Tensor> out{floats({count}, 11).as(kept), floats({count}, 13).as(kept)};
          if (std::string_view(op) == "adagrad") out[1] = second.as(kept);
          if (std::string_view(op) == "adamw") out.push_back(second.as(kept));
          out.push_back(poisoned(DS_DTYPE_F16, {count}));
          all.push_back({op, attrs, {floats({count}, 14).as(DS_DTYPE_BF16)}, out, own});
        }
      }
    }
  }
  // Blocks of codes with all scales, and gradients that are large, zero and tiny. With 19 blocks,
  // the last thread block is not full.
  for (int64_t drawn : {0, 1}) {
    constexpr int64_t kBlocks = 19, kCount = kBlocks * kStateBlock;
    StepScalars own = step;
    own.param = 3, own.element = 5 * kStateBlock, own.step = 17;
    Tensor grad = floats({kCount}, 23),
           scales[2] = {Tensor(DS_DTYPE_U8, {kBlocks}), Tensor(DS_DTYPE_U8, {kBlocks})};
    for (int64_t b = 0; b < kBlocks; ++b) {
      const double factor = std::ldexp(1.0, static_cast<int>(14 * (b - 9)));
      for (int64_t e = b * kStateBlock; e < (b + 1) * kStateBlock; ++e)
        grad.set(e, b == 4 ? 0 : std::clamp(grad.at(e) * factor, -0x1p62, 0x1p62));
      for (Tensor& s : scales)
        s.bytes()[static_cast<size_t>(b)] = static_cast<std::byte>(b == 4 ? 0 : 14 * b);
    }
    Tensor codes[2];
    for (Tensor& c : codes) {
      c = Tensor(DS_DTYPE_U8, {kCount});
      for (int64_t e = 0; e < kCount; ++e)
        c.bytes()[static_cast<size_t>(e)] = static_cast<std::byte>(e * 151 / 7);
    }
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      Attrs attrs{{"stochastic", drawn}, {"l2", int64_t{0}}};
      all.push_back({"adamw_codes",
                     attrs,
                     {grad.as(dtype)},
                     {floats({kCount}, 24).as(dtype), codes[0], scales[0], codes[1], scales[1],
                      poisoned(DS_DTYPE_F16, {kCount})},
                     own});
    }
  }
  // Parameters with one granule, several runs, more than 256 granules and all zeros, and more
  // parameters than one launch can process.
  for (int64_t means : {0, 1}) {
    constexpr int64_t kGranules = 70400, kGroups = 150;
    Tensor norms(DS_DTYPE_F64, {2 * kGranules});
    for (int64_t i = 0; i < norms.numel(); ++i)
      norms.set(i, i / 2 % 7000 < 3 ? 0 : std::fmod(0.1 * static_cast<double>(i * i + 1), 7.3));
    std::vector<ElementRun> runs{
        {7000, 7001, 0, 1}, {69000, 69300, 0, 4}, {7001, 7600, 0, 4}, {1, 2, 0, 5}};
    for (int64_t g = 6; g < kGroups; ++g)
      runs.push_back({14000 + 3 * g, 14000 + 3 * g + g % 3 + 1, 0, g});
    runs.push_back({2, 2, 0, kGroups});
    runs.push_back({20000, 20000 + 256 * 129, 0, kGroups + 1});
    Attrs attrs{{"min_coeff", 0.5}, {"max_coeff", 1.5}};
    std::vector<Tensor> out;
    if (means != 0) {
      attrs.set("coeff_beta", 0.9);
      out.push_back(floats({kGroups + 2}, 25));
    }
    out.push_back(poisoned(DS_DTYPE_F32, {kGranules}));
    all.push_back({"lamb_ratios", attrs, {norms}, out, step, runs});
  }
  // Numbers of updates that few trainings reach: bias corrections need b^t for large t.
  for (int64_t updates : {0, 1, 6, 999, 123456}) {
    StepScalars own = step;
    own.updates = updates;
    own.group.beta2 = 0.9999;
    Tensor second = floats({40}, 15, 1e-3);
    for (int64_t e = 0; e < 40; ++e) second.set(e, std::abs(second.at(e)));
    all.push_back({"adamw",
                   {{"l2", int64_t{1}}},
                   {floats({40}, 16)},
                   {floats({40}, 17), floats({40}, 18), second, poisoned(DS_DTYPE_BF16, {40})},
                   own});
  }
  for (int64_t granules : {1, 129, 300}) {
    for (int64_t granule : {256, 77}) {
      const int64_t count = granules * granule;
      all.push_back(
          {"granule_norms", {}, {floats({count}, 19)}, {Tensor(DS_DTYPE_F64, {granules})}, step});
      const Attrs attrs{{"eps_inside_sqrt", granules % 2}};
      Tensor m = floats({count}, 26), v = floats({count}, 27, 1e-3), p = floats({count}, 28);
      for (int64_t e = 0; e < count; ++e) v.set(e, std::abs(v.at(e)));
      all.push_back({"lamb_moments",
                     attrs,
                     {floats({count}, 29), p},
                     {m, v, Tensor(DS_DTYPE_F64, {2 * granules})},
                     step});
      all.push_back({"lamb",
                     attrs,
                     {m, v, floats({granules}, 30)},
                     {p, poisoned(DS_DTYPE_BF16, {count})},
                     step});
    }
  }
  return all;
}

}  // namespace ds::test
