#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/program/program.h"
#include "kernels/kernel.h"

namespace ds::test {

// The kernel "tag": the bytes of every output are a function of the attributes, the output's index
// and all bytes of the inputs; attribute "updates" has a bit for each output whose old bytes count
// as input too. Any wrong byte that is read shows in all that depends on it. Elements of f32
// outputs are integers below 2^20, so that sums over ranks are exact.
const InstrDef& tag_instruction();  // its row in the table
KernelRegistry tag_kernels();

// A program of tags, copies, collectives and file transfers on all six queues, drawn by `seed`:
// about `length` instructions on persistent and transient buffers of all tiers. Equal for all ranks
// but for the rank. Offsets and waits are still to come.
Program random_program(uint64_t seed, int rank, int world, int length);

using Bytes = std::vector<std::byte>;

// What the persistent buffers of a program hold at first, by buffer; empty for the others.
std::vector<Bytes> first_contents(const Program& program);

// The persistent buffers of every rank after `runs` runs of the ranks' programs, computed here:
// issue order, each buffer in memory of its own, no queues.
std::vector<std::vector<Bytes>> interpret(const std::vector<Program>& ranks, int runs);

}  // namespace ds::test
