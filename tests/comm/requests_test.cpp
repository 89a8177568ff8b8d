#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/comm_thread.h"
#include "comm/communicator.h"
#include "support/dice.h"
#include "support/errors.h"
#include "support/groups.h"

// Random collectives, described as requests and then called directly or started. The expected
// results are computed: element i of rank r's buffer b is 1000003 r + 1009 b + i, so that even a
// sum over ranks shows where each element came from.
namespace ds {
namespace {

using Op = CommRequest::Op;
using Ints = std::vector<int64_t>;

constexpr int64_t kUntouched = -1;

int64_t element(int64_t rank, size_t buffer, size_t i) {
  return 1000003 * rank + 1009 * static_cast<int64_t>(buffer) + static_cast<int64_t>(i);
}

Ints given(int rank, size_t buffer, size_t count) {
  Ints out(count);
  for (size_t i = 0; i < count; ++i) out[i] = element(rank, buffer, i);
  return out;
}

// Returns element i of the sum or maximum over ranks.
int64_t reduced(size_t ranks, ReduceOp op, size_t buffer, size_t i) {
  int64_t sum = 0, n = static_cast<int64_t>(ranks);
  for (int64_t r = 0; r < n; ++r) sum += element(r, buffer, i);
  return op == ReduceOp::sum ? sum : element(n - 1, buffer, i);
}

struct Case {
  CommRequest request;
  bool started = false;
  std::vector<Ints> in, out, expected;
};

// Returns the number of elements that `rank` sends to each rank in an all_to_all.
std::vector<size_t> sent_by(uint64_t seed, size_t rank, size_t ranks) {
  test::Dice dice(seed * 64 + rank);
  std::vector<size_t> out(ranks);
  for (size_t& n : out) n = static_cast<size_t>(dice.below(41));
  return out;
}

void add_blocks(Case& c, uint64_t seed, size_t me, size_t ranks) {
  CommRequest& r = c.request;
  std::vector<size_t> begins(ranks + 1);
  r.blocks = sent_by(seed, r.op == Op::all_to_all ? me : 0, ranks);
  for (size_t i = 0; i < ranks; ++i) begins[i + 1] = begins[i] + r.blocks[i];
  Ints expected;
  if (r.op == Op::all_gather) {
    c.in = {given(static_cast<int>(me), 0, r.blocks[me])};
    for (size_t q = 0; q < ranks; ++q) {
      for (int64_t v : given(static_cast<int>(q), 0, r.blocks[q])) expected.push_back(v);
    }
  } else if (r.op == Op::reduce_scatter) {
    c.in = {given(static_cast<int>(me), 0, begins[ranks])};
    for (size_t i = begins[me]; i < begins[me + 1]; ++i)
      expected.push_back(reduced(ranks, r.reduce, 0, i));
  } else {
    c.in = {given(static_cast<int>(me), 0, begins[ranks])};
    for (size_t q = 0; q < ranks; ++q) {
      std::vector<size_t> theirs = sent_by(seed, q, ranks);
      size_t begin = 0;
      for (size_t i = 0; i < me; ++i) begin += theirs[i];
      for (size_t i = 0; i < theirs[me]; ++i)
        expected.push_back(element(static_cast<int64_t>(q), 0, begin + i));
      r.out_blocks.push_back(theirs[me]);
    }
  }
  c.expected = {expected};
}

void add_buffer(Case& c, size_t count, size_t me, size_t ranks) {
  const CommRequest& r = c.request;
  size_t b = c.in.size(), root = static_cast<size_t>(r.root);
  auto mine = static_cast<int>(me);
  bool wide = r.op == Op::reduce_scatter || r.op == Op::all_to_all || r.op == Op::scatter;
  c.in.push_back(given(mine, b, wide ? count * ranks : count));
  Ints out;
  for (size_t i = 0; i < count; ++i) {
    if (r.op == Op::all_reduce || (r.op == Op::reduce && me == root))
      out.push_back(reduced(ranks, r.reduce, b, i));
    if (r.op == Op::reduce_scatter) out.push_back(reduced(ranks, r.reduce, b, me * count + i));
    if (r.op == Op::scatter) out.push_back(element(r.root, b, me * count + i));
    if (r.op == Op::broadcast) out.push_back(element(r.root, b, i));
    if (me != root && (r.op == Op::reduce || r.op == Op::gather)) out.push_back(kUntouched);
  }
  for (size_t q = 0; q < ranks; ++q) {
    for (size_t i = 0; i < count; ++i) {
      auto from = static_cast<int64_t>(q);
      if (r.op == Op::all_gather || (r.op == Op::gather && me == root))
        out.push_back(element(from, b, i));
      if (r.op == Op::all_to_all) out.push_back(element(from, b, me * count + i));
    }
  }
  c.expected.push_back(out);
}

Case random_case(uint64_t seed, size_t me, size_t ranks) {
  test::Dice dice(seed);
  Case c;
  CommRequest& r = c.request;
  r.op = static_cast<Op>(dice.below(static_cast<int64_t>(Op::scatter) + 1));
  r.dtype = DS_DTYPE_I64;
  r.reduce = dice.one_in(2) ? ReduceOp::sum : ReduceOp::max;
  r.root = static_cast<int>(dice.below(static_cast<int64_t>(ranks)));
  c.started = dice.one_in(2);
  if (r.op == Op::barrier) return c;
  bool may = r.op == Op::all_gather || r.op == Op::reduce_scatter || r.op == Op::all_to_all;
  if (may && dice.one_in(2)) {
    add_blocks(c, seed, me, ranks);
  } else {
    int64_t buffers = dice.one_in(3) ? 1 : 1 + dice.below(5);
    for (int64_t b = 0; b < buffers; ++b) {
      int64_t most = dice.one_in(4) ? 70000 : 50;
      r.counts.push_back(static_cast<size_t>(dice.below(most + 1)));
      add_buffer(c, r.counts.back(), me, ranks);
    }
  }
  for (size_t b = 0; b < c.in.size(); ++b) {
    c.out.emplace_back(c.expected[b].size(), kUntouched);
    if (r.op == Op::broadcast && me == static_cast<size_t>(r.root)) c.out[b] = c.in[b];
  }
  for (size_t b = 0; b < c.in.size(); ++b) {
    r.in.push_back(c.in[b].data());
    r.out.push_back(c.out[b].data());
  }
  return c;
}

class Requests : public testing::TestWithParam<test::GroupCase> {};

TEST_P(Requests, RandomRequestsHaveTheExpectedResults) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto me = static_cast<size_t>(comm.rank()), ranks = static_cast<size_t>(comm.size());
    std::vector<Case> open;
    std::vector<std::shared_ptr<Work>> works;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      open.push_back(random_case(seed, me, ranks));
      const Case& c = open.back();
      if (c.started) {
        works.push_back(comm.start(c.request, "random"));
        if (open.size() < 8 && seed < 150) continue;
        for (const auto& work : works) work->wait();
      } else {
        // Waits for everything that was started before.
        comm.make(c.request, "random");
      }
      for (const Case& done : open) {
        for (size_t b = 0; b < done.out.size(); ++b) {
          ASSERT_TRUE(done.out[b] == done.expected[b])
              << "at most seed " << seed << ", operation " << static_cast<int>(done.request.op)
              << ", buffer " << b;
        }
      }
      open.clear();
      works.clear();
    }
  });
}

TEST_P(Requests, AContradictoryRequestIsRefusedAndTheGroupContinues) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto ranks = static_cast<size_t>(comm.size());
    int64_t x = 0;
    auto refused = [&](CommRequest r, const char* words) {
      r.in = {&x}, r.out = {&x};
      test::expect_names(test::message_of([&] { comm.make(r, "x"); }, DS_ERROR_INVALID_ARGUMENT),
                         {words});
      test::expect_names(test::message_of([&] { comm.start(r, "x"); }, DS_ERROR_INVALID_ARGUMENT),
                         {words});
    };
    std::vector<size_t> ones(ranks, 0), more(ranks + 1, 0);
    refused({.op = Op::gather, .blocks = ones},
            "only all_gather, reduce_scatter and all_to_all take blocks");
    refused({.op = Op::all_to_all, .blocks = ones}, "an all_to_all with blocks needs out_blocks");
    refused({.op = Op::all_gather, .blocks = ones, .out_blocks = ones},
            "only an all_to_all with blocks takes out_blocks");
    refused({.op = Op::all_gather, .blocks = more}, "blocks must have one entry for each of");
    refused({.op = Op::all_gather, .counts = {SIZE_MAX / 2}}, "counts[0] must be at most");
    refused({.op = Op::scatter, .root = comm.size(), .counts = {1}}, "root must be 0 to");
    comm.barrier("usable");
  });
}

INSTANTIATE_TEST_SUITE_P(All, Requests, testing::ValuesIn(test::group_cases()), test::group_name);

}  // namespace
}  // namespace ds
