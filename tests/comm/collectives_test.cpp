#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport/transport.h"
#include "support/groups.h"

// Compares collectives with a plain oracle, bit for bit, over transports, group sizes and awkward
// payload sizes.
namespace ds {
namespace {

class Collectives : public testing::TestWithParam<test::GroupCase> {
 protected:
  void on_all(const std::function<void(Communicator&)>& body) { test::on_group(GetParam(), body); }
};

// Returns sizes around those at which a payload, or one rank's share of it among w ranks, needs two
// chunks of half a buffer.
std::vector<size_t> payloads(int w) {
  size_t half = kSlotBytes / 2, share = half / static_cast<size_t>(w);
  return {0, 1, 3, 255, share - 1, share + 9, 2 * half + 77};
}

unsigned char byte_of(int from, int to, size_t i) {
  return static_cast<unsigned char>(static_cast<size_t>(from * 37 + to * 11 + 5) + i * 131 +
                                    (i >> 9));
}

// Returns values whose f32 sum depends on the order of addition.
template <typename T>
T value_of(int rank, size_t i) {
  size_t mix = (i * 2654435761u + static_cast<size_t>(rank) * 40503u) % 1000003u;
  float base = (static_cast<float>(mix) / 1000003.f - 0.5f) * (rank % 2 == 0 ? 1.f : 1024.f);
  if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(base) * 1.0000000123;
  else
    return T(base);
}

// Computes the sum in the documented order, independently of src: as a tree over the next power of
// two, without the missing ranks.
template <typename Wire, typename Sum>
Sum oracle(int first, int span, int ranks, size_t i) {
  if (span == 1) return static_cast<Sum>(value_of<Wire>(first, i));
  Sum left = oracle<Wire, Sum>(first, span / 2, ranks, i);
  if (first + span / 2 >= ranks) return left;
  return left + oracle<Wire, Sum>(first + span / 2, span / 2, ranks, i);
}

TEST_P(Collectives, AllGatherAndBroadcastDeliverEveryPayload) {
  on_all([](Communicator& comm) {
    auto w = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
    std::vector<size_t> sizes = payloads(comm.size());
    // Large enough for several rounds, both when peers read in place and when ranks outnumber
    // cores, so that equal payloads are staged.
    if (w == 2 || GetParam().cores == 2) sizes.push_back((size_t{9} << 20) + 3);
    for (size_t bytes : sizes) {
      std::vector<unsigned char> in(bytes), expected(bytes * w), out(bytes * w, 0xee);
      for (size_t i = 0; i < bytes; ++i) in[i] = byte_of(comm.rank(), 0, i);
      for (size_t i = 0; i < bytes * w; ++i)
        expected[i] = byte_of(static_cast<int>(i / bytes), 0, i % bytes);
      comm.all_gather(in.data(), out.data(), bytes, "apart");
      ASSERT_TRUE(out == expected) << bytes;
      std::fill(out.begin(), out.end(), 0xee);
      if (bytes != 0) std::memcpy(out.data() + me * bytes, in.data(), bytes);
      comm.all_gather(out.data() + me * bytes, out.data(), bytes, "in place");
      ASSERT_TRUE(out == expected) << bytes;
      int root = comm.size() - 1;
      comm.broadcast(in.data(), bytes, root, "last");
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(in[i], byte_of(root, 0, i));
    }
  });
}

TEST_P(Collectives, AllToAllDeliversEveryBlock) {
  on_all([](Communicator& comm) {
    int w = comm.size();
    for (size_t bytes : payloads(w)) {
      std::vector<unsigned char> in, expected, out(bytes * static_cast<size_t>(w), 0xee);
      for (int r = 0; r < w; ++r) {
        for (size_t i = 0; i < bytes; ++i) in.push_back(byte_of(comm.rank(), r, i));
        for (size_t i = 0; i < bytes; ++i) expected.push_back(byte_of(r, comm.rank(), i));
      }
      comm.all_to_all(in.data(), out.data(), bytes, "blocks");
      ASSERT_TRUE(out == expected) << bytes;
    }
  });
}

template <typename Wire, typename Sum>
void check_sums(Communicator& comm, DType wire) {
  int w = comm.size(), span = 1;
  while (span < w) span *= 2;
  size_t half = kSlotBytes / 2 / sizeof(Wire) / static_cast<size_t>(w);
  for (size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{257}, half + 3,
                       wire == DS_DTYPE_F32 ? 5 * half + 1 : 7}) {
    std::vector<Wire> in(count * static_cast<size_t>(w));
    std::vector<Sum> expected(in.size()), all(in.size(), Sum{7}), own(count, Sum{7});
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = value_of<Wire>(comm.rank(), i);
      expected[i] = oracle<Wire, Sum>(0, span, w, i);
    }
    auto same = [](const Sum* a, const Sum* b, size_t n) {
      return n == 0 || std::memcmp(a, b, n * sizeof(Sum)) == 0;
    };
    comm.reduce_scatter(in.data(), own.data(), count, wire, "sums");
    size_t at = static_cast<size_t>(comm.rank()) * count;
    ASSERT_TRUE(same(own.data(), expected.data() + at, count)) << dtype_name(wire) << " " << count;
    comm.all_reduce(in.data(), all.data(), in.size(), wire, "sums");
    ASSERT_TRUE(same(all.data(), expected.data(), in.size())) << dtype_name(wire) << " " << count;
    if constexpr (std::is_same_v<Wire, Sum>) {
      comm.all_reduce(in.data(), in.data(), in.size(), wire, "in place");
      ASSERT_TRUE(same(in.data(), expected.data(), in.size())) << dtype_name(wire) << " " << count;
    }
  }
}

TEST_P(Collectives, ReductionsAddInTheOrderOfTheTree) {
  on_all([](Communicator& comm) {
    check_sums<float, float>(comm, DS_DTYPE_F32);
    check_sums<bf16, float>(comm, DS_DTYPE_BF16);
    check_sums<double, double>(comm, DS_DTYPE_F64);
  });
}

TEST_P(Collectives, CountsReceivedBytes) {
  on_all([](Communicator& comm) {
    std::vector<float> in(64), out(64 * 8);
    comm.all_gather(in.data(), out.data(), 256, "a");
    comm.reduce_scatter(in.data(), out.data(), 8, DS_DTYPE_F32, "b");
    comm.barrier("c");
    auto counts = comm.counts();
    EXPECT_EQ(counts["all_gather"].bytes, 256 * (comm.size() - 1));
    EXPECT_EQ(counts["reduce_scatter"].bytes, 32 * (comm.size() - 1));
    EXPECT_EQ(counts["barrier"].calls, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Collectives, testing::ValuesIn(test::group_cases()),
                         test::group_name);

}  // namespace
}  // namespace ds
