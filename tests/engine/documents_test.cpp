// Tests engines on packed documents: the loss equals the loss of the separate documents, in f32 and
// bf16, and an impossible `begin` is refused by name.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "engine/engine.h"
#include "nn/models/gpt.h"
#include "support/interpret.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

constexpr int64_t kSeq = 24, kRows = 40;
// The first row and the number of rows of each document.
const std::vector<std::pair<int64_t, int64_t>> kDocuments{{0, 7}, {7, 1}, {8, 20}, {28, 12}};

Graph packed_graph(bool documents) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 2;
  config.vocab = 40;
  config.positions = kSeq;
  config.documents = documents;
  return build_gpt(config, kRows, kSeq);
}

struct Batch {
  std::vector<int32_t> tokens, targets, begins, positions;

  // Creates a batch of rows [first, first + count) of one text.
  Batch(int64_t first, int64_t count) {
    Tensor text = random_ids(kRows + 1, 40, 5);
    for (int64_t r = first; r < first + count; ++r) {
      tokens.push_back(static_cast<int32_t>(text.at(r)));
      targets.push_back(static_cast<int32_t>(text.at(r + 1)));
      for (auto [begin, rows] : kDocuments) {
        if (r < begin || r >= begin + rows) continue;
        begins.push_back(static_cast<int32_t>(begin - first));
        positions.push_back(static_cast<int32_t>(r - begin));
      }
    }
  }
  std::vector<InputView> views(bool documents) const {
    std::vector<InputView> out;
    for (const auto* part : {&tokens, &targets, &begins, &positions}) {
      if (out.size() < 2 || documents)
        out.push_back({part->data(), DS_DTYPE_I32, static_cast<int64_t>(part->size())});
    }
    return out;
  }
};

TEST(DocumentEngine, HasTheLossOfTheSeparateDocuments) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    run_ranks(1, [&](Communicator& comm) {
      Config config = make_config(0, 1, 1);
      config.compute = compute;
      Engine packed(config, packed_graph(true), comm, {}),
          alone(config, packed_graph(false), comm, {});
      double sum = 0;
      for (auto [first, rows] : kDocuments) {
        sum += static_cast<double>(rows) * alone.eval_batch(Batch(first, rows).views(false));
      }
      double loss = packed.eval_batch(Batch(0, kRows).views(true));
      EXPECT_NEAR(loss, sum / kRows, 2e-6) << dtype_name(compute);
    });
  }
}

TEST(DocumentEngine, InvalidDocumentStartsAndLengthsAreRefused) {
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(make_config(0, 1, 1), packed_graph(true), comm, {});
    auto refused = [&](size_t row, int32_t begin, const std::string& part) {
      Batch batch(0, kRows);
      batch.begins[row] = begin;
      try {
        engine.train_batch(batch.views(true));
        ADD_FAILURE() << row << " " << begin;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), DS_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    };
    refused(0, 1, "input 'begin' must have 0 or the previous row's value at row 0, got 1");
    refused(9, 7, "input 'begin' must have 9 or the previous row's value at row 9, got 7");
    refused(9, -1, "input 'begin' must have ids from 0");
    Batch batch(0, kRows);
    batch.begins.assign(kRows, 0);
    try {
      engine.train_batch(batch.views(true));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a document of more than 24 rows, from row 0 on"),
                std::string::npos)
          << error.what();
    }
    EXPECT_FALSE(engine.train_batch(Batch(0, kRows).views(true)).skipped);
  });
}

}  // namespace
}  // namespace ds::test
