#pragma once
// How a device function is declared, for nvcc. tests/cuda/lane/shim.h says the same words for g++.
#ifdef __CUDACC__
#define DS_DEVICE static __device__ __forceinline__
// An entry whose threads meet, of at most `threads` a block, and one whose threads do not know each
// other. Its argument is `a`.
#define DS_BLOCK_KERNEL(name, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const Args a)
#define DS_LOOP_KERNEL(name, Args) \
  extern "C" __global__ void __launch_bounds__(256) name(const Args a)
// Shared memory of the launch, as an array of T.
#define DS_SHARED(T, name)                                          \
  extern __shared__ __align__(16) unsigned char ds_shared_memory[]; \
  T* const name = reinterpret_cast<T*>(ds_shared_memory)
#endif
