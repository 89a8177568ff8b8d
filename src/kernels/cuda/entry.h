#pragma once
// The macros that declare device functions, for nvcc. tests/cuda/lane/shim.h defines the same
// macros for g++.
#ifdef __CUDACC__
#define DS_DEVICE static __device__ __forceinline__
// Both macros declare an entry whose argument is `a`. A block kernel has blocks of at most
// `threads` threads, which use barriers. The threads of a loop kernel are independent of each
// other.
#define DS_BLOCK_KERNEL(name, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const Args a)
#define DS_LOOP_KERNEL(name, Args) \
  extern "C" __global__ void __launch_bounds__(256) name(const Args a)
// Declares the launch's dynamic shared memory as an array of T.
#define DS_SHARED(T, name)                                          \
  extern __shared__ __align__(16) unsigned char ds_shared_memory[]; \
  T* const name = reinterpret_cast<T*>(ds_shared_memory)
#endif
