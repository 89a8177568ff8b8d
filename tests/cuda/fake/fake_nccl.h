#pragma once
#include <cstdint>

// What tests ask of the fake NCCL. They find these by dlsym in the file that DS_NCCL names.
extern "C" {

// What a communicator takes of its GPU by its first call, as the library makes its buffers late.
constexpr int64_t kFakeNcclBytes = 6 << 20;

// Injects one error; R is a rank of its communicator, K counts that rank's calls in this process
// from here on, from 1. "join:R": it never joins. "call:R:K": its call K is refused. "async:R:K":
// call K has an error later, and its stream waits. "late:R:K": it has it when it is in its stream.
// "hang:R:K": its stream waits at call K. "part:R:K": its send or receive K is refused.
// "wrong:R:K": what call K receives has another byte. "": none. DS_FAKE_NCCL_FAIL does the same
// when the library is opened.
void fake_nccl_fail(const char* error);
// Since then: calls that streams were given, bytes that they received from other ranks,
// communicators that were aborted, and what no caller may do: a call before the last one was in its
// stream, an end before its work has finished or in a group.
void fake_nccl_counts(int64_t out[4]);
// Communicators that were made and neither destroyed nor aborted.
int64_t fake_nccl_live();
}
