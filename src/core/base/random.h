#pragma once
#include <array>
#include <cstdint>

namespace ds {

// Computes a block of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). It is a pure function of counter and key, so neither recomputation nor the layout of
// ranks can change the random numbers.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The random words of one operation, named by (seed, step, leaf, op). block(index) returns the four
// words from word 4 * index on; dropout and stochastic rounding use word e % 4 of block e / 4 for
// element e of a tensor.
struct RandomStream {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t leaf = 0;
  // Only the low 16 bits are used.
  uint32_t op = 0;
  std::array<uint32_t, 4> block(uint64_t index) const;
};

// Returns the stream from which parameter `param` is initialized. No two parameters share a stream,
// and none shares one with a dropout of a model, whose op is 32768 or more. Each block of 32768
// parameters uses one leaf: the first block uses leaf 0, and later blocks use the leaves from
// UINT32_MAX downwards, which no micro-step reaches.
RandomStream init_stream(uint64_t seed, uint32_t param);

// Maps a random word to a uniform number in [0, 1) with 24 bits.
inline float uniform01(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Returns an element of a standard normal tensor by Box-Muller in f64. Its last bits may depend on
// the C library, which computes the logarithm and the cosine.
double normal_element(const RandomStream& stream, uint64_t element);

}  // namespace ds
