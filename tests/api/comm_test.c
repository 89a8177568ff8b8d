/* Collectives between threads, and a group that is aborted. */
#include <string.h>

#include "support.h"

enum { RANKS = 3 };

static void collectives(int rank, ds_comm* comm, void* data) {
  float in[RANKS * 2], sums[RANKS * 2], part[2];
  double wide = 0.25 * (rank + 1), wide_sum = 0;
  int32_t mine = 100 + rank, all[RANKS], swapped[RANKS], blocks[RANKS], word = rank == 1 ? 77 : 0;
  uint16_t half[2] = {0x3f80, 0x4000}; /* 1 and 2 in bf16 */
  int i;
  (void)data;
  check(ds_comm_rank(comm) == rank && ds_comm_size(comm) == RANKS, "rank and size");
  check_ok(ds_comm_all_gather(comm, &mine, sizeof mine, all), "all_gather");
  for (i = 0; i < RANKS; ++i) check(all[i] == 100 + i, "gathered in rank order");
  for (i = 0; i < RANKS * 2; ++i) in[i] = (float)(rank + 1) * (float)(i + 1);
  check_ok(ds_comm_all_reduce(comm, in, RANKS * 2, DS_DTYPE_F32, sums), "all_reduce");
  for (i = 0; i < RANKS * 2; ++i) check(sums[i] == 6.0f * (float)(i + 1), "sum of 1, 2 and 3 times");
  check_ok(ds_comm_reduce_scatter(comm, in, 2, DS_DTYPE_F32, part), "reduce_scatter");
  check(part[0] == sums[rank * 2] && part[1] == sums[rank * 2 + 1], "this rank's part of the sum");
  check_ok(ds_comm_all_reduce(comm, half, 2, DS_DTYPE_BF16, part), "bf16");
  check(part[0] == 3.0f && part[1] == 6.0f, "bf16 is summed in f32");
  check_ok(ds_comm_all_reduce(comm, &wide, 1, DS_DTYPE_F64, &wide_sum), "f64");
  check(wide_sum == 1.5, "f64 is summed in f64");
  for (i = 0; i < RANKS; ++i) blocks[i] = 10 * rank + i;
  check_ok(ds_comm_all_to_all(comm, blocks, sizeof blocks[0], swapped), "all_to_all");
  for (i = 0; i < RANKS; ++i) check(swapped[i] == 10 * i + rank, "block of every rank");
  check_ok(ds_comm_broadcast(comm, &word, sizeof word, 1), "broadcast");
  check(word == 77, "rank 1's word");
  check_error(ds_comm_broadcast(comm, &word, sizeof word, RANKS), DS_ERROR_INVALID_ARGUMENT,
              "root must be 0 to 2, got 3");
  check_error(ds_comm_all_reduce(comm, in, 1, DS_DTYPE_I32, sums), DS_ERROR_INVALID_ARGUMENT,
              "dtype must be f32");
  check_error(ds_comm_all_gather(comm, NULL, 4, all), DS_ERROR_INVALID_ARGUMENT,
              "in must not be NULL with 4 bytes");
  check_ok(ds_comm_barrier(comm), "barrier");
}

static void aborted(int rank, ds_comm* comm, void* data) {
  (void)data;
  check_ok(ds_comm_barrier(comm), "a barrier before");
  if (rank == 1) check_ok(ds_comm_abort(comm, "out of coffee"), "abort");
  check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "out of coffee");
  check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "out of coffee");
}

int main(void) {
  ds_comm* alone = NULL;
  float one = 1, sum = 0;
  run_ranks("api_comm_collectives", RANKS, collectives, NULL);
  run_ranks("api_comm_aborted", 2, aborted, NULL);
  check_ok(ds_comm_create("self", NULL, &alone), "self");
  check_ok(ds_comm_all_reduce(alone, &one, 1, DS_DTYPE_F32, &sum), "alone");
  check(sum == 1.0f && ds_comm_size(alone) == 1, "one rank");
  ds_comm_destroy(alone);
  return 0;
}
