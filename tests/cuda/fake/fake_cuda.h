#pragma once
#include <cstdint>

// Functions of the fake driver for tests, in addition to those of CUDA's driver API. Tests find
// them by dlsym in the library that DS_CUDA_DRIVER names.
extern "C" {

// Injects one error and resets the counts. "memory:K": the K-th cuMemCreate is out of memory.
// "launch:K": the K-th launch fails when its stream reaches it, and so does everything after it.
// "lost:K": from the K-th call of any function on, the device is gone. "capture:K": the K-th
// captured work is refused, and its capture with it. "instantiate:K": the K-th graph is out of
// memory. "replay:K": the K-th launch of a graph fails. "enter:K": from the K-th time on, no
// context can be made current. "": no error, and the device works again.
void fake_cuda_fail(const char* error);
// Writes counts since the last fake_cuda_fail(): calls of cuMemCreate, launches (including those of
// graphs), calls of any function but cuEventQuery, captured works, created graphs, launches of
// graphs, and marks; then the number of existing graphs.
void fake_cuda_counts(int64_t out[8]);
// Writes what has been allocated and not freed: device bytes, and objects (address ranges, streams,
// events, modules, pinned ranges, retained contexts, graphs).
void fake_cuda_live(int64_t* bytes, int64_t* objects);
// Makes each stream sleep for up to `us` microseconds before about one task in four. 0 ends this.
void fake_cuda_jitter(int64_t us);
// For fakes of libraries: returns the address at which host code can access a byte of device
// memory. Returns a host address unchanged.
void* fake_cuda_reach(void* address);
// For fakes of libraries: allocates bytes of a GPU, or frees them if `bytes` is negative. Returns
// false if the GPU has too little memory left.
bool fake_cuda_take(int gpu, int64_t bytes);
// Returns the number of the calling thread's GPU.
int fake_cuda_gpu();
// Enqueues body(data) in a stream. If the stream is being captured, body runs in each launch of the
// graph. Calls end(data) after the last run.
void fake_cuda_enqueue(void* stream, void (*body)(void*), void (*end)(void*), void* data);
}
