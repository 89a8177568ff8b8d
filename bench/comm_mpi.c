/* The MPI side of bench/comm.py: the same buffers, batches and lines as in bench/comm.cpp, but with
 * MPI's own collectives. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { kGather, kScatter, kReduce, kOps };
static const char* const kNames[kOps] = {"all_gather", "reduce_scatter", "all_reduce"};

static float* make_buffer(int arena, size_t bytes) {
  void* data = arena ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : malloc(bytes);
  if (data == NULL || data == MAP_FAILED) abort();
  if (arena) madvise(data, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) ((float*)data)[i] = 1.f;
  return data;
}

static void end_buffer(int arena, float* data, size_t bytes) {
  if (arena) {
    munmap(data, bytes);
  } else {
    free(data);
  }
}

static void call(int op, const float* in, float* out, size_t bytes, int size) {
  int count = (int)(bytes / sizeof(float)), share = count / size;
  if (op == kGather) MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD);
  if (op == kScatter) MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (op == kReduce) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double best_us(int op, const float* in, float* out, size_t bytes, int size) {
  size_t calls = ((size_t)4 << 20) / bytes;
  calls = calls < 1 ? 1 : calls > 64 ? 64 : calls;
  int batches = bytes >= (64u << 20) ? 2 : bytes >= (1u << 20) ? 5 : 9;
  double best = 0;
  for (int i = -1; i < batches; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (size_t k = 0; k < calls; ++k) call(op, in, out, bytes, size);
    double us = (MPI_Wtime() - begin) * 1e6 / (double)calls;
    if (i == 0 || (i > 0 && us < best)) best = us;
  }
  return best;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int arena = 0; arena < 2; ++arena) {
    for (size_t bytes = 4u << 10; bytes <= (256u << 20); bytes *= 4) {
      float* in = make_buffer(arena, bytes);
      float* out = make_buffer(arena, bytes);
      for (int op = 0; op < kOps; ++op) {
        double us = best_us(op, in, out, bytes, size);
        if (rank == 0) printf("%s %s %zu %.2f\n", kNames[op], arena ? "arena" : "user", bytes, us);
      }
      end_buffer(arena, in, bytes);
      end_buffer(arena, out, bytes);
    }
  }
  MPI_Finalize();
  return 0;
}
