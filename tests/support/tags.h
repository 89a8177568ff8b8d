#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/program/program.h"
#include "kernels/kernel.h"

namespace ds::test {

// The op "tag". Each of its outputs is a function of the attributes, the output's index and all
// bytes of the inputs. Attribute "updates" has a bit for each output whose old bytes are an input
// as well. A wrong byte anywhere therefore changes every later result that depends on it. Elements
// of f32 outputs are integers below 2^20, so that sums over ranks are exact. tag_instruction()
// returns the op's row in the table of instructions.
const InstrDef& tag_instruction();
KernelRegistry tag_kernels();

// Draws a program of tags, copies, collectives and file transfers on all six queues, with about
// `length` instructions on persistent and transient buffers of all tiers. The programs of all ranks
// are equal except for the rank. They have neither offsets nor waits yet.
Program random_program(uint64_t seed, int rank, int world, int length);

using Bytes = std::vector<std::byte>;

// Returns the initial contents of a program's persistent buffers, by buffer. Entries of transient
// buffers are empty.
std::vector<Bytes> first_contents(const Program& program);

// Returns the persistent buffers of every rank after `runs` runs of the ranks' programs, computed
// in issue order, without queues and with separate memory for each buffer.
std::vector<std::vector<Bytes>> interpret(const std::vector<Program>& ranks, int runs);

}  // namespace ds::test
