// Tests consecutive documents in one row, in every causal family: each has the same logits and
// gradients as alone in a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "nn/models/gpt.h"
#include "nn/models/hf.h"
#include "support/hf_golden.h"
#include "support/interpret.h"

namespace ds::test {
namespace {

constexpr int64_t kSeq = 9;
// 25 rows in total. Only the first document begins at a multiple of kSeq.
const std::vector<int64_t> kLengths{5, 1, 9, 2, 8};

struct Made {
  Tensor logits;
  // The gradient of each parameter.
  std::vector<Tensor> grads;
};

// Runs a model on tokens [first, first + count) of one text, arranged as documents of these lengths
// or as one sequence.
class DocumentModels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { register_ref(registry_); }

  HfModel build(HfRows rows) const {
    if (GetParam() != "gpt")
      return build_hf_model(golden_path(GetParam()), 32, kSeq, HfMode::evaluation, rows);
    ModelConfig config;
    config.layers = config.heads = 2;
    config.hidden = 8;
    config.vocab = 30;
    config.positions = 12;
    config.documents = rows == HfRows::documents;
    HfModel model;
    model.graph = build_gpt(config, 32, kSeq);
    return model;
  }

  Made run(HfRows rows, int64_t first, const std::vector<int64_t>& lengths) {
    HfModel model = build(rows);
    Graph& graph = model.graph;
    differentiate(graph, graph.outputs[0].value);
    graph.check();
    int64_t count = 0;
    for (int64_t length : lengths) count += length;
    Interpreter run(graph, registry_, team_, count);
    if (GetParam() == "gpt") {
      run.init_params(3);
    } else {
      auto weights = read_tensors(golden_path(GetParam()) + "/model.safetensors");
      for (const Parameter& param : graph.params) run.set(param.value, weights.at(param.name));
    }
    Tensor tokens(DS_DTYPE_I32, {count}), targets(DS_DTYPE_I32, {count}),
        mask(DS_DTYPE_I32, {count}), begin(DS_DTYPE_I32, {count}), positions(DS_DTYPE_I32, {count});
    int64_t row = 0;
    for (int64_t length : lengths) {
      for (int64_t place = 0; place < length; ++place, ++row) {
        tokens.set(row, text_.at(first + row));
        targets.set(row, text_.at(first + row + 1));
        mask.set(row, 1);
        begin.set(row, static_cast<double>(row - place));
        positions.set(row, static_cast<double>(model.position_offset + place));
      }
    }
    for (const auto& [name, value] : {std::pair{"tokens", &tokens},
                                      {"targets", &targets},
                                      {"mask", &mask},
                                      {"begin", &begin},
                                      {"positions", &positions}}) {
      if (ValueId input = graph.find_value(name); input.exists()) run.set(input, *value);
    }
    run.run();
    Made made{run.at(graph.outputs[1].value), {}};
    for (const Parameter& param : graph.params) made.grads.push_back(run.at(param.grad));
    return made;
  }

  const Tensor text_ = random_ids(40, 30, 11);
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

TEST_P(DocumentModels, EachDocumentHasTheBitsOfASeparateRow) {
  Made packed = run(HfRows::documents, 0, kLengths);
  std::vector<Tensor> sums;
  int64_t first = 0, rows = packed.logits.dims()[0], vocab = packed.logits.dims()[1];
  for (int64_t length : kLengths) {
    Made alone = run(HfRows::sequences, first, {length});
    for (int64_t e = 0; e < length * vocab; ++e) {
      ASSERT_EQ(alone.logits.at(e), packed.logits.at(first * vocab + e))
          << first << " element " << e;
    }
    // Losses are means over rows, so gradients are weighted by each document's share of the rows.
    double share = static_cast<double>(length) / static_cast<double>(rows);
    for (size_t p = 0; p < alone.grads.size(); ++p) {
      if (first == 0) sums.push_back(Tensor(DS_DTYPE_F64, alone.grads[p].dims()));
      for (int64_t e = 0; e < alone.grads[p].numel(); ++e) {
        sums[p].set(e, sums[p].at(e) + share * alone.grads[p].at(e));
      }
    }
    first += length;
  }
  double largest = 0;
  for (size_t p = 0; p < sums.size(); ++p) {
    for (int64_t e = 0; e < sums[p].numel(); ++e)
      largest = std::max(largest, std::abs(sums[p].at(e)));
  }
  ASSERT_GT(largest, 0);
  for (size_t p = 0; p < sums.size(); ++p) {
    EXPECT_LE(largest_distance(packed.grads[p], sums[p]), 2e-6 * std::max(largest, 1.0)) << p;
  }
}

TEST_P(DocumentModels, GraphsHaveBeginningsInsteadOfAMask) {
  HfModel model = build(HfRows::documents);
  EXPECT_FALSE(model.graph.find_value("mask").exists());
  EXPECT_TRUE(model.graph.find_value("begin").exists());
  EXPECT_TRUE(model.graph.find_value("positions").exists());
}

INSTANTIATE_TEST_SUITE_P(Families, DocumentModels,
                         testing::Values("gpt", "gpt2", "llama", "qwen2", "opt", "mistral", "qwen3",
                                         "phi3", "gemma2", "gpt_neox"),
                         [](const auto& info) { return info.param; });

TEST(Documents, ABidirectionalFamilyIsRefused) {
  try {
    build_hf_model(golden_path("bert"), 32, kSeq, HfMode::evaluation, HfRows::documents);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("bert"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ds::test
