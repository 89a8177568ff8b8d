#pragma once
#include <array>
#include <cstdint>

namespace ds {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a pure
// function of counter and key, so recomputation and rank layout cannot change what is drawn.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Draws of one operation: the four words numbered `index` of the stream (seed, step, leaf, op).
// Element e of a tensor uses word e % 4 of block e / 4.
struct RandomStream {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t leaf = 0;
  uint32_t op = 0;  // only its low 16 bits count
  std::array<uint32_t, 4> block(uint64_t index) const;
};

// What parameter `param` is drawn from at the start of a run. No two parameters share a stream, and
// none shares that of a dropout of a model (op from 32768 on): every 32768 parameters take one leaf
// from the last one down, which no micro-step has, and the first 32768 take leaf 0.
RandomStream init_stream(uint64_t seed, uint32_t param);

// Uniform in [0, 1) with 24 bits.
inline float uniform01(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Element e of a standard normal tensor (Box-Muller on f64, the same bits everywhere).
double normal_element(const RandomStream& stream, uint64_t element);

}  // namespace ds
