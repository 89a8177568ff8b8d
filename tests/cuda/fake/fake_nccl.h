#pragma once
#include <cstdint>

// Functions of the fake NCCL for tests, which find them by dlsym in the library that DS_NCCL names.
extern "C" {

// Bytes that a communicator allocates on its GPU at its first call; NCCL also allocates its buffers
// late.
constexpr int64_t kFakeNcclBytes = 6 << 20;

// Injects one error. R is a rank of a communicator, and K numbers that rank's calls in this process
// from now on, starting at 1. "join:R": the rank never joins. "call:R:K": call K is refused.
// "async:R:K": call K fails later, and its stream waits. "late:R:K": call K fails when it is
// already in its stream. "hang:R:K": the stream waits at call K. "part:R:K": send or receive K is
// refused. "wrong:R:K": call K receives a wrong byte. "": no error. DS_FAKE_NCCL_FAIL injects an
// error when the library is opened.
void fake_nccl_fail(const char* error);
// Writes counts since the last fake_nccl_fail(): enqueued calls, bytes received from other ranks,
// aborted communicators, and misuses (a call before the previous one was enqueued; destroying a
// communicator before its work has finished or within a group).
void fake_nccl_counts(int64_t out[4]);
// Returns the number of communicators that were created and neither destroyed nor aborted.
int64_t fake_nccl_live();
}
