#pragma once
#include <cstdint>

// What tests ask of the fake driver beside the driver's own functions. They find these by dlsym in
// the file that DS_CUDA_DRIVER names.
extern "C" {

// Injects one error and counts calls from 1 again. "memory:K": the K-th cuMemCreate has no memory.
// "launch:K": the K-th launch fails when its stream comes to it, and with it everything later.
// "lost:K": from the K-th call of any function on, the device is gone. "capture:K": the K-th work
// that a stream captures is refused, and with it the capture. "instantiate:K": the K-th graph has
// no memory. "replay:K": the K-th launch of a graph fails. "enter:K": from the K-th time on no
// context becomes current. "": none, and what failed works again.
void fake_cuda_fail(const char* error);
// Calls of cuMemCreate, launches (those of graphs too), calls of any function but cuEventQuery,
// works that were captured, graphs made, launches of graphs, and marks since then; and graphs that
// there are.
void fake_cuda_counts(int64_t out[8]);
// What was taken and not given back: bytes of the device, and objects (ranges of addresses,
// streams, events, modules, pinned ranges, retained contexts, graphs).
void fake_cuda_live(int64_t* bytes, int64_t* objects);
// From now on a stream sleeps before about one task in four, for up to so many microseconds. 0: it
// does not.
void fake_cuda_jitter(int64_t us);
// Where host code finds a byte of the device's memory, for fakes of libraries; the address itself
// where it is of the host.
void* fake_cuda_reach(void* address);
// Takes bytes of a GPU for a fake of a library; fewer than none: gives them back. False: it has not
// so many.
bool fake_cuda_take(int gpu, int64_t bytes);
// The number of the GPU that the calling thread's context is of.
int fake_cuda_gpu();
// Runs body(data) at its place in the order of a stream, again and again where the stream is
// captured; end(data) when it has run for the last time.
void fake_cuda_enqueue(void* stream, void (*body)(void*), void (*end)(void*), void* data);
}
