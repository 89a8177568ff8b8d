/* Tests collectives between threads, and a group that is aborted. */
#include <string.h>

#include "support.h"

enum { RANKS = 3 };

/* Proves {comm.rank}, {comm.size}, {comm.all_gather}, {comm.all_reduce}, {comm.reduce_scatter},
 * {comm.all_to_all} and {comm.broadcast}. */
static void collectives(int rank, ds_comm* comm, void* data) {
  float in[RANKS * 2], sums[RANKS * 2], part[2];
  double wide = 0.25 * (rank + 1), wide_sum = 0;
  int32_t mine = 100 + rank, all[RANKS], swapped[RANKS], blocks[RANKS], word = rank == 1 ? 77 : 0;
  /* The numbers 1 and 2 in bf16. */
  uint16_t half[2] = {0x3f80, 0x4000};
  int i;
  (void)data;
  check(ds_comm_rank(comm) == rank && ds_comm_size(comm) == RANKS, "rank and size");
  check_ok(ds_comm_all_gather(comm, &mine, sizeof mine, all), "all_gather");
  for (i = 0; i < RANKS; ++i) check(all[i] == 100 + i, "gathered in rank order");
  for (i = 0; i < RANKS * 2; ++i) in[i] = (float)(rank + 1) * (float)(i + 1);
  check_ok(ds_comm_all_reduce(comm, in, RANKS * 2, DS_DTYPE_F32, sums), "all_reduce");
  for (i = 0; i < RANKS * 2; ++i)
    check(sums[i] == 6.0f * (float)(i + 1), "sum of 1, 2 and 3 times");
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
  check_error(ds_comm_all_reduce(comm, in, 1, DS_DTYPE_NONE, sums), DS_ERROR_INVALID_ARGUMENT,
              "dtype must be f32");
  check_error(ds_comm_all_gather(comm, NULL, 4, all), DS_ERROR_INVALID_ARGUMENT,
              "in must not be NULL with 4 bytes");
  check_ok(ds_comm_barrier(comm), "barrier");
}

/* Returns the description of a call with one buffer. */
static ds_comm_call one_buffer(ds_comm_op op, ds_dtype dtype, ds_reduce_op reduce, int32_t root,
                               const void* const* in, const size_t* count, void* const* out) {
  ds_comm_call call;
  check_ok(ds_comm_call_init(&call, sizeof call), "call");
  check(call.dtype == DS_DTYPE_U8 && call.buffers_count == 1 && call.blocks == NULL, "defaults");
  call.op = op, call.dtype = dtype, call.reduce = reduce, call.root = root;
  call.ins = in, call.counts = count, call.outs = out;
  return call;
}

static ds_status reduce(ds_comm* comm, ds_comm_op op, const void* in, size_t count, ds_dtype dtype,
                        ds_reduce_op how, int32_t root, void* out) {
  ds_comm_call call = one_buffer(op, dtype, how, root, &in, &count, &out);
  return ds_comm_submit(comm, &call, NULL);
}

/* Calls a collective of bytes that has a root. */
static ds_status move(ds_comm* comm, ds_comm_op op, const void* in, size_t size, int32_t root,
                      void* out) {
  ds_comm_call call = one_buffer(op, DS_DTYPE_U8, DS_REDUCE_OP_SUM, root, &in, &size, &out);
  return ds_comm_submit(comm, &call, NULL);
}

static ds_status in_blocks(ds_comm* comm, ds_comm_op op, ds_dtype dtype, const void* in,
                           const size_t* blocks, const size_t* out_blocks, size_t blocks_count,
                           void* out) {
  ds_comm_call call = one_buffer(op, dtype, DS_REDUCE_OP_SUM, 0, &in, NULL, &out);
  call.blocks = blocks, call.out_blocks = out_blocks, call.blocks_count = blocks_count;
  return ds_comm_submit(comm, &call, NULL);
}

static void reductions(int rank, ds_comm* comm, void* data) {
  int32_t number = rank == 1 ? -5 : rank, most = 0, whole[RANKS] = {1, 10, 100}, part = 0;
  float value = (float)(3 * rank), mean = 0;
  size_t counts[RANKS] = {1, 0, 2};
  double wide[3] = {1, 2, 3}, some[2] = {0, 0};
  (void)data;
  check_ok(
      reduce(comm, DS_COMM_OP_ALL_REDUCE, &number, 1, DS_DTYPE_I32, DS_REDUCE_OP_MAX, 0, &most),
      "max");
  check(most == 2, "the largest of 0, -5 and 2");
  check_ok(reduce(comm, DS_COMM_OP_REDUCE, &value, 1, DS_DTYPE_F32, DS_REDUCE_OP_MEAN, 2,
                  rank == 2 ? &mean : NULL),
           "mean");
  check(rank != 2 || mean == 3.0f, "the mean of 0, 3 and 6 at rank 2");
  check_ok(
      reduce(comm, DS_COMM_OP_REDUCE_SCATTER, whole, 1, DS_DTYPE_I32, DS_REDUCE_OP_SUM, 0, &part),
      "own sum");
  check(part == 3 * whole[rank], "three times this rank's element");
  check_ok(
      in_blocks(comm, DS_COMM_OP_REDUCE_SCATTER, DS_DTYPE_F64, wide, counts, NULL, RANKS, some),
      "own sums");
  check(some[0] == (rank == 0   ? 3.0
                    : rank == 2 ? 6.0
                                : 0.0) &&
            some[1] == (rank == 2 ? 9.0 : 0.0),
        "1, 0 and 2");
  check_error(
      reduce(comm, DS_COMM_OP_ALL_REDUCE, &number, 1, DS_DTYPE_I32, DS_REDUCE_OP_MEAN, 0, &most),
      DS_ERROR_INVALID_ARGUMENT, "mean needs type f32");
  check_error(
      reduce(comm, DS_COMM_OP_ALL_REDUCE, &number, 1, DS_DTYPE_I32, (ds_reduce_op)4, 0, &most),
      DS_ERROR_INVALID_ARGUMENT, "op must be sum");
  check_error(in_blocks(comm, DS_COMM_OP_REDUCE_SCATTER, DS_DTYPE_F64, wide, counts, NULL, 2, some),
              DS_ERROR_INVALID_ARGUMENT, "call.blocks_count must be 3, got 2");
}

/* Proves {comm.send}, and {comm.submit.unequal} with blocks of unequal size. */
static void blocks(int rank, ds_comm* comm, void* data) {
  unsigned char mine[RANKS], all[RANKS * RANKS], swapped[RANKS * RANKS], root[RANKS], one = 0;
  size_t sizes[RANKS] = {1, 2, 3}, ones[RANKS] = {1, 1, 1}, own[RANKS];
  int i;
  (void)data;
  for (i = 0; i < RANKS; ++i) mine[i] = (unsigned char)(10 * rank + i);
  check_ok(in_blocks(comm, DS_COMM_OP_ALL_GATHER, DS_DTYPE_U8, mine, sizes, NULL, RANKS, all),
           "all_gather");
  check(all[0] == 0 && all[1] == 10 && all[2] == 11 && all[3] == 20 && all[5] == 22,
        "1, 2 and 3 bytes");
  check_ok(in_blocks(comm, DS_COMM_OP_ALL_TO_ALL, DS_DTYPE_U8, mine, ones, ones, RANKS, swapped),
           "all_to_all");
  for (i = 0; i < RANKS; ++i) check(swapped[i] == 10 * i + rank, "block of every rank");
  check_ok(move(comm, DS_COMM_OP_GATHER, mine, 1, 1, rank == 1 ? root : NULL), "gather");
  check(rank != 1 || (root[0] == 0 && root[1] == 10 && root[2] == 20), "gathered at rank 1");
  check_ok(move(comm, DS_COMM_OP_SCATTER, rank == 1 ? root : NULL, 1, 1, &one), "scatter");
  check(one == 10 * rank, "scattered from rank 1");
  if (rank == 0) check_ok(ds_comm_send(comm, mine, 2, 2), "send");
  if (rank == 2) check_ok(ds_comm_receive(comm, swapped, 2, 0), "receive");
  check(rank != 2 || (swapped[0] == 0 && swapped[1] == 1), "rank 0's bytes");
  check_error(ds_comm_send(comm, mine, 1, rank), DS_ERROR_INVALID_ARGUMENT, "one of the group's");
  check_ok(ds_comm_barrier(comm), "barrier");
  check_error(in_blocks(comm, DS_COMM_OP_ALL_TO_ALL, DS_DTYPE_U8, mine, ones, NULL, RANKS, swapped),
              DS_ERROR_INVALID_ARGUMENT, "an all_to_all with blocks needs out_blocks");
  check_error(in_blocks(comm, DS_COMM_OP_ALL_GATHER, DS_DTYPE_U8, mine, ones, ones, RANKS, swapped),
              DS_ERROR_INVALID_ARGUMENT, "only an all_to_all with blocks takes out_blocks");
  check_error(in_blocks(comm, DS_COMM_OP_GATHER, DS_DTYPE_U8, mine, ones, NULL, RANKS, swapped),
              DS_ERROR_INVALID_ARGUMENT,
              "only all_gather, reduce_scatter and all_to_all take blocks");
  check_error(move(comm, DS_COMM_OP_GATHER, mine, 1, RANKS, root), DS_ERROR_INVALID_ARGUMENT,
              "root must be 0 to 2, got 3");
  check_error(move(comm, DS_COMM_OP_ALL_GATHER, mine, (size_t)-1, 0, root),
              DS_ERROR_INVALID_ARGUMENT, "counts[0] must be at most");
  for (i = 0; i < RANKS; ++i) own[i] = rank == 0 && i == 1 ? 2 : 1;
  check_error(in_blocks(comm, DS_COMM_OP_ALL_TO_ALL, DS_DTYPE_U8, mine, own, ones, RANKS, swapped),
              DS_ERROR_COMM, "rank 0 sends 2 bytes to rank 1, which expects 1");
}

/* Proves {comm.split}. */
static void groups(int rank, ds_comm* comm, void* data) {
  ds_comm* pair = NULL;
  ds_comm* none = NULL;
  int32_t got[2] = {-1, -1}, mine = rank;
  (void)data;
  check_ok(ds_comm_split(comm, rank == 1 ? 5 : 0, -rank, &pair), "split");
  check(ds_comm_size(pair) == (rank == 1 ? 1 : 2), "ranks 0 and 2, and rank 1");
  check_ok(ds_comm_all_gather(pair, &mine, sizeof mine, got), "gather in the group");
  check(rank == 1 ? got[0] == 1 : got[0] == 2 && got[1] == 0, "ordered by key");
  check_ok(ds_comm_split(comm, -1, 0, &none), "in no group");
  check(none == NULL, "no group");
  ds_comm_destroy(pair);
}

static ds_status submit_list(ds_comm* comm, ds_comm_op op, ds_dtype dtype, ds_reduce_op how,
                             int32_t root, const void* const* ins, const size_t* counts,
                             size_t buffers_count, void* const* outs) {
  ds_comm_call call = one_buffer(op, dtype, how, root, ins, counts, outs);
  call.buffers_count = buffers_count;
  return ds_comm_submit(comm, &call, NULL);
}

/* Proves {comm.submit.direct}: the results are available when a call without out_work returns. */
static void lists(int rank, ds_comm* comm, void* data) {
  float a[2] = {1, 2}, b[1] = {10}, sum_a[2], sum_b[1], part[2] = {0, 0}, six[RANKS] = {1, 2, 3};
  unsigned char mine = (unsigned char)rank, all[RANKS], words[3] = {0, 0, 0};
  const void *ins[2], *one[1], *table[2];
  void *outs[2], *place[1], *parts[2], *datas[2];
  size_t counts[2] = {2, 1}, single[1] = {1}, ones[2] = {1, 1}, sizes[2] = {1, 2};
  int i;
  (void)data;
  ins[0] = a, ins[1] = b, outs[0] = sum_a, outs[1] = sum_b, one[0] = &mine, place[0] = all;
  table[0] = six, table[1] = six, parts[0] = &part[0], parts[1] = &part[1];
  check_ok(submit_list(comm, DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, ins, counts,
                       2, outs),
           "sums");
  check(sum_a[0] == 3 && sum_a[1] == 6 && sum_b[0] == 30, "both buffers");
  check_ok(submit_list(comm, DS_COMM_OP_ALL_GATHER, DS_DTYPE_U8, DS_REDUCE_OP_SUM, 0, one, single,
                       1, place),
           "gather");
  for (i = 0; i < RANKS; ++i) check(all[i] == i, "gathered in rank order");
  check_ok(submit_list(comm, DS_COMM_OP_REDUCE_SCATTER, DS_DTYPE_F32, DS_REDUCE_OP_MEAN, 0, table,
                       ones, 2, parts),
           "own means");
  check(part[0] == six[rank] && part[1] == six[rank], "this rank's means");
  sum_a[0] = sum_b[0] = -1;
  check_ok(submit_list(comm, DS_COMM_OP_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_MAX, 1, ins, counts, 2,
                       rank == 1 ? outs : NULL),
           "the largest at rank 1");
  check(rank == 1 ? sum_a[0] == 1 && sum_b[0] == 10 : sum_a[0] == -1 && sum_b[0] == -1,
        "of both buffers");
  check_ok(submit_list(comm, DS_COMM_OP_SCATTER, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 2,
                       rank == 2 ? table : NULL, ones, 2, parts),
           "blocks of rank 2");
  check(part[0] == six[rank] && part[1] == six[rank], "this rank's blocks");
  if (rank == 1) words[0] = 5, words[1] = 6, words[2] = 7;
  datas[0] = words, datas[1] = words + 1;
  check_ok(submit_list(comm, DS_COMM_OP_BROADCAST, DS_DTYPE_U8, DS_REDUCE_OP_SUM, 1, NULL, sizes, 2,
                       datas),
           "words");
  check(words[0] == 5 && words[1] == 6 && words[2] == 7, "rank 1's words");
  outs[1] = NULL;
  check_error(submit_list(comm, DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, ins,
                          counts, 2, outs),
              DS_ERROR_INVALID_ARGUMENT, "call.outs[1] must not be NULL with 1 elements");
  check_error(submit_list(comm, DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, ins, NULL,
                          2, outs),
              DS_ERROR_INVALID_ARGUMENT, "call.counts must not be NULL with buffers_count 2");
  check_error(submit_list(comm, DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, NULL,
                          counts, 2, outs),
              DS_ERROR_INVALID_ARGUMENT, "call.ins must not be NULL with buffers_count 2");
  check_ok(submit_list(comm, DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, NULL, NULL,
                       0, NULL),
           "none");
  check_error(ds_comm_submit(comm, NULL, NULL), DS_ERROR_INVALID_ARGUMENT, "call must not be NULL");
}

/* Proves {comm.submit.copied}, {comm.submit.refused}, {comm.test} and {comm.work_destroy}: the
 * barrier whose handle was destroyed still runs, or else the gather after it would not end. */
static void started(int rank, ds_comm* comm, void* data) {
  float value = 1, sum = 0;
  int32_t done = -1, word = rank == 2 ? 9 : 0, i;
  unsigned char mine[RANKS] = {0, 1, 2}, all[RANKS * RANKS];
  const void *in = &value, *bytes = mine;
  void *out = &sum, *place = &word, *table = all, *nothing = NULL;
  size_t one = 1, sizes[RANKS] = {1, 2, 3};
  ds_work* works[4] = {NULL, NULL, NULL, NULL};
  ds_work* none = (ds_work*)&done;
  ds_comm_call call;
  (void)data;
  call = one_buffer(DS_COMM_OP_ALL_REDUCE, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, &in, &one, &out);
  check_ok(ds_comm_submit(comm, &call, &works[0]), "start a sum");
  call = one_buffer(DS_COMM_OP_BROADCAST, DS_DTYPE_I32, DS_REDUCE_OP_SUM, 2, NULL, &one, &place);
  check_ok(ds_comm_submit(comm, &call, &works[1]), "start a broadcast");
  call = one_buffer(DS_COMM_OP_BARRIER, DS_DTYPE_NONE, DS_REDUCE_OP_SUM, 0, NULL, NULL, NULL);
  check_ok(ds_comm_submit(comm, &call, &works[2]), "start a barrier");
  /* The barrier continues although its handle is destroyed without a wait. */
  ds_work_destroy(works[2]);
  call = one_buffer(DS_COMM_OP_ALL_GATHER, DS_DTYPE_U8, DS_REDUCE_OP_SUM, 0, &bytes, NULL, &table);
  call.blocks = sizes, call.blocks_count = RANKS;
  check_ok(ds_comm_submit(comm, &call, &works[3]), "start a gather of blocks");
  /* Both were copied by the call, so they may be overwritten. */
  memset(&call, 0xff, sizeof call), memset(sizes, 0, sizeof sizes);
  check_ok(ds_work_wait(works[3]), "wait");
  check(word == 9 && sum == 3, "ended in order");
  check(all[0] == 0 && all[2] == 1 && all[5] == 2, "1, 2 and 3 bytes");
  check_ok(ds_work_test(works[0], &done), "test");
  check(done == 1, "has ended");
  call = one_buffer((ds_comm_op)9, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, &in, &one, &out);
  check_error(ds_comm_submit(comm, &call, &none), DS_ERROR_INVALID_ARGUMENT,
              "call.op must be one of ds_comm_op, 0 to 8, got 9");
  check(none == NULL, "nothing was started");
  call = one_buffer(DS_COMM_OP_ALL_GATHER, DS_DTYPE_F32, DS_REDUCE_OP_SUM, 0, &in, &one, &nothing);
  check_error(ds_comm_submit(comm, &call, &none), DS_ERROR_INVALID_ARGUMENT,
              "call.outs[0] must not be NULL with 1 elements");
  check_error(ds_work_wait(NULL), DS_ERROR_INVALID_ARGUMENT, "work must not be NULL");
  for (i = 0; i < 4; ++i) {
    if (i != 2) ds_work_destroy(works[i]);
  }
  check_ok(ds_comm_barrier(comm), "a call after it");
}

/* Proves {comm.log.state}. */
static void telling(int rank, ds_comm* comm, void* data) {
  char* text = NULL;
  (void)rank, (void)data;
  check_error(ds_comm_log(comm, DS_FORMAT_TEXT, &text), DS_ERROR_STATE, "was not started");
  check_ok(ds_comm_log_start(comm), "log");
  check_ok(ds_comm_barrier(comm), "barrier");
  check_ok(ds_comm_log(comm, DS_FORMAT_TEXT, &text), "table");
  check(strstr(text, "barrier") && strstr(text, "bus GB/s"), "a row of the barrier");
  ds_text_destroy(text);
  check_ok(ds_comm_log(comm, DS_FORMAT_JSON, &text), "the table as JSON");
  check(strstr(text, "\"operation\": \"barrier\"") && strstr(text, "\"calls\": "),
        "an object of the barrier");
  ds_text_destroy(text);
  check_ok(ds_comm_flight_record(comm, DS_FORMAT_TEXT, &text), "record");
  check(strstr(text, "ds_comm_barrier") && strstr(text, "done") && strstr(text, "no failure"),
        "the barrier");
  ds_text_destroy(text);
  check_ok(ds_comm_flight_record(comm, DS_FORMAT_JSON, &text), "the record as JSON");
  check(strstr(text, "\"label\": \"ds_comm_barrier\"") && strstr(text, "\"ended_by\": null"),
        "its members");
  ds_text_destroy(text);
}

/* Proves {comm.abort} and {collective.failure}. */
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
  run_ranks("api_comm_reductions", RANKS, reductions, NULL);
  run_ranks("api_comm_blocks", RANKS, blocks, NULL);
  run_ranks("api_comm_groups", RANKS, groups, NULL);
  run_ranks("api_comm_lists", RANKS, lists, NULL);
  run_ranks("api_comm_started", RANKS, started, NULL);
  run_ranks("api_comm_telling", RANKS, telling, NULL);
  run_ranks("api_comm_aborted", 2, aborted, NULL);
  check_ok(ds_comm_create("self", NULL, &alone), "self");
  check_ok(ds_comm_all_reduce(alone, &one, 1, DS_DTYPE_F32, &sum), "alone");
  check(sum == 1.0f && ds_comm_size(alone) == 1, "one rank");
  ds_comm_destroy(alone);
  return 0;
}
