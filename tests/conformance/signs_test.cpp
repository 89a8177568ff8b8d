// Tests the compression of tensors to signs. Compares the bytes sent with the compressed all-reduce
// recorded from DeepSpeed, and checks that all kernels have equal bits.
#include "core/program/signs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/base/json.h"
#include "io/file.h"
#include "support/conformance.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::signs {
namespace {

Tensor blank(DType dtype, int64_t numel) {
  Tensor t(dtype, {numel});
  t.poison();
  return t;
}

Tensor tensor_of(const std::vector<float>& values) {
  Tensor t(DS_DTYPE_F32, {static_cast<int64_t>(values.size())});
  for (size_t e = 0; e < values.size(); ++e) t.set(static_cast<int64_t>(e), values[e]);
  return t;
}

class Signs : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }

  // Runs the reference and checks that the optimized kernel has the same bits with any team.
  std::vector<Tensor> run(const std::string& op, const Attrs& attrs,
                          const std::vector<ElementRun>& tensors, const std::vector<Tensor>& in,
                          const std::vector<Tensor>& out, int64_t skip = 0) {
    InstructionCase c{op, attrs, in, out};
    c.scalars.skip = skip;
    c.runs = tensors;
    std::vector<Tensor> want = run_case(implementation(ref_, op, "ref"), c, one_);
    EXPECT_TRUE(run_case(implementation(cpu_, op, "cpu"), c, one_) == want) << op << attrs.print();
    EXPECT_TRUE(run_case(implementation(cpu_, op, "cpu"), c, three_) == want)
        << op << attrs.print();
    return want;
  }

  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

// A group of ranks that compress the tensors of one bucket.
struct Group {
  int64_t ranks;
  std::vector<ElementRun> tensors;
  // Number of elements of the bucket.
  int64_t numel;
  std::vector<Tensor> worker_errors, server_errors;
  // Codes of the last exchange.
  std::vector<Tensor> sent, answered;

  Group(int64_t count, std::vector<ElementRun> places, int64_t elements)
      : ranks(count), tensors(std::move(places)), numel(elements) {
    SignSizes sizes = sign_sizes(tensors, ranks, 1);
    for (int64_t r = 0; r < ranks; ++r) {
      worker_errors.emplace_back(DS_DTYPE_F32, std::vector<int64_t>{ranks * sizes.chunks});
      server_errors.emplace_back(DS_DTYPE_F32, std::vector<int64_t>{sizes.chunks});
    }
  }
};

Tensor exchanged(const std::vector<Tensor>& blocks, int64_t block, int64_t from) {
  Tensor all(DS_DTYPE_U8, {block * static_cast<int64_t>(blocks.size())});
  auto* to = static_cast<uint8_t*>(all.view().data);
  for (size_t r = 0; r < blocks.size(); ++r)
    std::memcpy(to + static_cast<int64_t>(r) * block, blocks[r].bytes().data() + from,
                static_cast<size_t>(block));
  return all;
}

using Run = std::function<std::vector<Tensor>(const std::string& op, const Attrs& attrs,
                                              const std::vector<Tensor>& in,
                                              const std::vector<Tensor>& out)>;

// Returns the result on every rank. `x` has one bucket for each rank.
std::vector<Tensor> all_reduce(Group& g, const std::vector<Tensor>& x, const Run& run) {
  SignSizes worker = sign_sizes(g.tensors, g.ranks, g.ranks),
            server = sign_sizes(g.tensors, g.ranks, 1);
  const Attrs ranks{{"ranks", g.ranks}};
  auto pack = [&](Tensor& error, const Tensor& sums, int64_t ways) {
    std::vector<Tensor> out = run("pack_signs", {{"ranks", g.ranks}, {"ways", ways}}, {sums},
                                  {error, blank(DS_DTYPE_U8, ways * worker.block)});
    error = out[0];
    return out[1];
  };
  g.sent.clear();
  g.answered.clear();
  for (size_t r = 0; r < x.size(); ++r) {
    std::vector<Tensor> added =
        run("add_error", ranks, {x[r]}, {g.worker_errors[r], blank(DS_DTYPE_F64, worker.sums)});
    g.worker_errors[r] = added[0];
    g.sent.push_back(pack(g.worker_errors[r], added[1], g.ranks));
  }
  for (size_t r = 0; r < x.size(); ++r) {
    Tensor theirs = exchanged(g.sent, worker.block, static_cast<int64_t>(r) * worker.block);
    std::vector<Tensor> mean =
        run("mean_signs", ranks, {theirs}, {g.server_errors[r], blank(DS_DTYPE_F64, server.sums)});
    g.server_errors[r] = mean[0];
    g.answered.push_back(pack(g.server_errors[r], mean[1], 1));
  }
  std::vector<Tensor> out;
  for (const Tensor& before : x)
    out.push_back(
        run("unpack_signs", ranks, {exchanged(g.answered, worker.block, 0)}, {before})[0]);
  return out;
}

// Compares errors with the recorded values. `scale` is the scale of the signs; the tolerance is
// relative to the value of an error plus this scale.
void expect_near(const Tensor& got, const std::vector<float>& want, int64_t first,
                 const Tolerance& tolerance, double scale, const std::string& what) {
  for (int64_t e = 0; e < got.numel(); ++e) {
    double w = want.at(static_cast<size_t>(first + e));
    ASSERT_NEAR(got.at(e), w, tolerance.of(std::abs(w) + scale)) << what << " " << e;
  }
}

std::vector<uint8_t> bytes_of(const SafetensorEntry& entry) {
  std::vector<uint8_t> bytes(static_cast<size_t>(entry.bytes));
  File(semantics_path("onebit.safetensors"), File::Mode::read)
      .read(bytes.data(), bytes.size(), entry.begin);
  return bytes;
}

TEST_F(Signs, AllReduceHasTheBytesThatDeepSpeedRecorded) {
  const Recording all(semantics_path("onebit.json"),
                      {"allreduce", "onebit_adam", "zero_one_adam", "onebit_lamb"});
  const Tolerance tolerance = all.tolerance();
  const RecordedTensors tensors(semantics_path("onebit.safetensors"));
  for (const Record& c : all.list("allreduce")) {
    const std::string name = c.at("name").string();
    int64_t ranks = c.at("workers").integer(), numel = c.at("numel").integer();
    const int64_t calls = c.at("calls").integer();
    EXPECT_EQ(c.at("divider").integer(), 8 * ranks / std::gcd(8, ranks));
    Group g(ranks, {{0, numel}}, numel);
    int64_t chunk = sign_chunk(numel, ranks), padded = ranks * chunk;
    ASSERT_EQ(padded, c.at("padded_numel").integer());
    ASSERT_EQ(chunk, c.at("server_chunk").integer());
    auto read = [&](const char* what) { return tensors.read(name + "." + what); };
    const std::vector<float> input = read("input"), output = read("output"),
                             scales = read("phase1_scale"), answers = read("phase2_scale");
    const std::vector<uint8_t> sent = bytes_of(*tensors.find(name + ".phase1_sign_bytes")),
                               answered = bytes_of(*tensors.find(name + ".phase2_sign_bytes"));
    ASSERT_EQ(static_cast<int64_t>(input.size()), calls * ranks * numel);
    ASSERT_EQ(static_cast<int64_t>(output.size()), calls * numel);
    // With zero_every N, every N-th element of each tensor is 0, and no other element is.
    if (const Json* zeros = c.find("zero_every")) {
      for (size_t e = 0; e < input.size(); ++e) {
        const bool zero = static_cast<int64_t>(e) % numel % zeros->integer() == 0;
        EXPECT_EQ(input[e] == 0, zero) << name << " input " << e;
      }
    }
    for (int64_t call = 0; call < calls; ++call) {
      std::vector<Tensor> x;
      for (int64_t r = 0; r < ranks; ++r) {
        auto first = input.begin() + (call * ranks + r) * numel;
        x.push_back(tensor_of({first, first + numel}));
      }
      std::vector<Tensor> out =
          all_reduce(g, x,
                     [&](const std::string& op, const Attrs& attrs, const std::vector<Tensor>& in,
                         const std::vector<Tensor>& updated) {
                       return run(op, attrs, g.tensors, in, updated);
                     });
      const std::string at = name + " call " + std::to_string(call);
      for (int64_t r = 0; r < ranks; ++r) {
        auto rank = static_cast<size_t>(r);
        const int64_t row = call * ranks + r;
        expect_near(out[rank], output, call * numel, tolerance, 0, at + " output");
        expect_near(g.worker_errors[rank], read("worker_error"), row * padded, tolerance,
                    scales[static_cast<size_t>(row)], at + " worker error");
        expect_near(g.server_errors[rank], read("server_error"), row * chunk, tolerance,
                    answers[static_cast<size_t>(row)], at + " server error");
        int64_t bits = chunk / 8, block = bits + int64_t{sizeof(float)};
        for (int64_t to = 0; to < ranks; ++to) {
          const auto* from =
              reinterpret_cast<const uint8_t*>(g.sent[rank].bytes().data()) + to * block;
          float scale;
          std::memcpy(&scale, from, sizeof scale);
          EXPECT_NEAR(scale, scales[static_cast<size_t>(row)], tolerance.of(scale)) << at;
          for (int64_t b = 0; b < bits; ++b)
            ASSERT_EQ(from[4 + b], sent[static_cast<size_t>((row * ranks + to) * bits + b)]) << at;
        }
        const auto* back = reinterpret_cast<const uint8_t*>(g.answered[rank].bytes().data());
        float scale;
        std::memcpy(&scale, back, sizeof scale);
        EXPECT_NEAR(scale, answers[static_cast<size_t>(row)], tolerance.of(scale)) << at;
        for (int64_t b = 0; b < bits; ++b)
          ASSERT_EQ(back[4 + b], answered[static_cast<size_t>(row * bits + b)]) << at;
      }
    }
  }
}

// A bucket has several tensors with padding between them, of all kinds of sizes: empty, below a
// byte, below a word, several tasks, and with a tail.
TEST_F(Signs, EveryTensorIsCompressedSeparately) {
  const int64_t sizes[] = {5, 0, 63, 64, 65, 300, 3 * 16384 + 77};
  for (int64_t ranks : {2, 3, 8}) {
    std::vector<ElementRun> places;
    int64_t at = 0;
    for (int64_t numel : sizes) {
      places.push_back({at, at + numel});
      at = round_up(at + numel, 256);
    }
    auto values = [&](int64_t r, int64_t call) {
      Tensor x = random_tensor(DS_DTYPE_F32, {at}, static_cast<uint64_t>(1 + r + 10 * call));
      for (const ElementRun& p : places) {
        for (int64_t e = p.end; e < std::min(at, round_up(p.end, 256)); ++e) x.set(e, 0);
        for (int64_t e = p.begin; e < p.end; ++e)
          x.set(e, x.at(e) * std::ldexp(1.0, static_cast<int>(e % 9)));
      }
      return x;
    };
    Group together(ranks, places, at);
    std::vector<Group> apart;
    for (const ElementRun& p : places) apart.push_back({ranks, {p}, at});
    for (int64_t call = 0; call < 2; ++call) {
      std::vector<Tensor> x;
      for (int64_t r = 0; r < ranks; ++r) x.push_back(values(r, call));
      auto by = [&](const Group& g) {
        return [&](const std::string& op, const Attrs& attrs, const std::vector<Tensor>& in,
                   const std::vector<Tensor>& out) { return run(op, attrs, g.tensors, in, out); };
      };
      std::vector<Tensor> all = all_reduce(together, x, by(together));
      for (int64_t r = 1; r < ranks; ++r)
        EXPECT_TRUE(all[static_cast<size_t>(r)].at(7) == all[0].at(7));
      for (size_t t = 0; t < apart.size(); ++t) {
        Tensor one = all_reduce(apart[t], x, by(apart[t]))[0];
        for (int64_t e = places[t].begin; e < places[t].end; ++e)
          ASSERT_EQ(one.at(e), all[0].at(e))
              << "tensor " << t << " element " << e << ", " << ranks << " ranks";
      }
    }
  }
}

TEST_F(Signs, ASkippedStepKeepsErrorsAndMomentum) {
  const std::vector<ElementRun> tensors{{0, 100}};
  SignSizes worker = sign_sizes(tensors, 2, 2);
  Tensor x = random_tensor(DS_DTYPE_F32, {256}, 1),
         error = random_tensor(DS_DTYPE_F32, {2 * worker.chunks}, 2);
  const Attrs ranks{{"ranks", int64_t{2}}}, ways{{"ranks", int64_t{2}}, {"ways", int64_t{2}}};
  Tensor sums(DS_DTYPE_F64, {worker.sums}), codes(DS_DTYPE_U8, {2 * worker.block});
  EXPECT_TRUE(run("add_error", ranks, tensors, {x}, {error, blank(DS_DTYPE_F64, worker.sums)},
                  1)[0] == error);
  std::vector<Tensor> packed =
      run("pack_signs", ways, tensors, {sums}, {error, blank(DS_DTYPE_U8, 2 * worker.block)}, 1);
  EXPECT_TRUE(packed[0] == error);
  EXPECT_TRUE(packed[1] == codes);
  EXPECT_TRUE(run("unpack_signs", ranks, tensors, {codes}, {x}, 1)[0] == x);
}

TEST_F(Signs, MomentumAndFrozenAdamAgreeInEveryFamily) {
  for (int64_t skip : {0, 1}) {
    for (int64_t count : {37, 3 * 16384 + 37}) {
      InstructionCase c{"momentum",
                        {{"ranks", int64_t{3}}},
                        {random_tensor(DS_DTYPE_F32, {count}, 1)},
                        {random_tensor(DS_DTYPE_F32, {count}, 2)}};
      c.scalars.group = {.lr = 3e-3, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
      c.scalars.grad_scale = 0.3;
      c.scalars.skip = skip;
      auto same = [&] {
        std::vector<Tensor> want = run_case(implementation(ref_, c.op, "ref"), c, one_);
        EXPECT_TRUE(run_case(implementation(cpu_, c.op, "cpu"), c, three_) == want) << c.op;
        return want;
      };
      std::vector<Tensor> m = same();
      for (int64_t e = 0; e < count; ++e) {
        double want = skip ? c.out[0].at(e) : 0.9 * c.out[0].at(e) + 0.1 * 0.9 * c.in[0].at(e);
        ASSERT_NEAR(m[0].at(e), want, 3e-7);
      }
      for (DType type : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        Tensor v = random_tensor(DS_DTYPE_F32, {count}, 3);
        for (int64_t e = 0; e < count; ++e) v.set(e, std::abs(v.at(e)) + 0.1);
        c.op = "frozen_adam";
        c.attrs = {};
        c.in = {random_tensor(DS_DTYPE_F32, {count}, 4), v};
        c.out = {random_tensor(DS_DTYPE_F32, {count}, 5), blank(type, count)};
        std::vector<Tensor> p = same();
        for (int64_t e = 0; e < count; ++e) {
          double was = c.out[0].at(e),
                 update = c.in[0].at(e) / (std::sqrt(v.at(e)) + 1e-8) + 0.1 * was;
          ASSERT_NEAR(p[0].at(e), skip ? was : was - 3e-3 * update, 1e-6);
        }
        EXPECT_TRUE(p[1] == p[0].as(type));
      }
    }
  }
}

}  // namespace
}  // namespace ds::test::signs
