#define _POSIX_C_SOURCE 200809L
/* Tests how groups form and end: ranks that do not fit together, calls that differ, ranks that make
 * no progress, and groups that are destroyed before their started collectives have ended. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support.h"

static void pause_ms(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Arguments of a thread that joins a group, and the resulting status and message. */
typedef struct joiner {
  int rank, size;
  const char* name;
  ds_status status;
  char message[512];
} joiner;

static void* join_in(void* arg) {
  joiner* self = arg;
  ds_comm_options options;
  ds_comm* comm = NULL;
  char url[128];
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = self->rank, options.size = self->size, options.join_ms = 400;
  snprintf(url, sizeof url, "threads://%s", self->name);
  self->status = ds_comm_create(url, &options, &comm);
  snprintf(self->message, sizeof self->message, "%s", ds_last_error_message());
  check((self->status == DS_OK) == (comm != NULL), "a comm, or an error");
  ds_comm_destroy(comm);
  return NULL;
}

/* Proves {comm.create.refused}; builds_test.cpp proves it for versions. */
static void joining(void) {
  joiner missing = {0, 2, "api_missing", DS_OK, ""};
  joiner twice[2] = {{1, 3, "api_twice", DS_OK, ""}, {1, 3, "api_twice", DS_OK, ""}};
  joiner sizes[2] = {{0, 2, "api_sizes", DS_OK, ""}, {1, 3, "api_sizes", DS_OK, ""}};
  pthread_t other;
  join_in(&missing);
  check(missing.status == DS_ERROR_COMM && strstr(missing.message, "within 400 ms"),
        "a rank is missing");
  check(pthread_create(&other, NULL, join_in, &twice[1]) == 0, "a thread");
  join_in(&twice[0]);
  pthread_join(other, NULL);
  check(twice[0].status == DS_ERROR_COMM && twice[1].status == DS_ERROR_COMM, "a rank twice");
  check(strstr(twice[0].message, "rank 1 has joined already") ||
            strstr(twice[1].message, "rank 1 has joined already"),
        "one of the two is told");
  check(pthread_create(&other, NULL, join_in, &sizes[1]) == 0, "a thread");
  join_in(&sizes[0]);
  pthread_join(other, NULL);
  check(sizes[0].status == DS_ERROR_COMM && sizes[1].status == DS_ERROR_COMM, "two sizes");
}

/* Proves {collective.order} and {collective.failure}: if calls differ, both ranks get an error that
 * names both calls. */
static void differ(int rank, ds_comm* comm, void* data) {
  char byte = 0;
  (void)data;
  check_ok(ds_comm_barrier(comm), "the same call");
  check_error(rank == 0 ? ds_comm_barrier(comm) : ds_comm_broadcast(comm, &byte, 1, 0),
              DS_ERROR_COMM, "ranks differ");
  check(strstr(ds_last_error_message(), "barrier") && strstr(ds_last_error_message(), "broadcast"),
        "both calls are named");
  check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "");
}

/* Proves {collective.failure}: rank 1 does nothing for longer than the timeout, then gets the error
 * as well. */
static void stand_still(int rank, ds_comm* comm, void* data) {
  (void)data, (void)comm;
  ds_comm_options options;
  ds_comm* own = NULL;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = rank, options.size = 2, options.timeout_ms = 300;
  check_ok(ds_comm_create("threads://api_still_within", &options, &own), "join");
  check_ok(ds_comm_barrier(own), "both are here");
  if (rank == 1) pause_ms(1200);
  check_error(ds_comm_barrier(own), DS_ERROR_COMM, "progress for 300 ms");
  ds_comm_destroy(own);
}

/* Proves {collective.failure}: rank 1 leaves. */
static void leave(int rank, ds_comm* comm, void* data) {
  (void)data;
  check_ok(ds_comm_barrier(comm), "both are here");
  if (rank == 0) check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "rank 1 has left");
}

/* Proves {comm.send.both}. */
static void send_both(int rank, ds_comm* comm, void* data) {
  char byte = 0;
  (void)data;
  check_error(ds_comm_send(comm, &byte, 1, 1 - rank), DS_ERROR_COMM, "send 0 to 1");
  check(strstr(ds_last_error_message(), "send 1 to 0") != NULL, "both directions are named");
}

/* Proves {comm.receive.size}. */
static void sizes_of_a_message(int rank, ds_comm* comm, void* data) {
  char bytes[5] = "";
  (void)data;
  check_error(rank == 0 ? ds_comm_send(comm, bytes, 4, 1) : ds_comm_receive(comm, bytes, 5, 0),
              DS_ERROR_COMM, "of 4 bytes");
  check(strstr(ds_last_error_message(), "of 5 bytes") != NULL, "both sizes are named");
}

/* Proves {comm.split.abort}: aborting the whole group ends its split groups of one and two
 * ranks. */
static void abort_of_groups(int rank, ds_comm* comm, void* data) {
  ds_comm* group = NULL;
  (void)data;
  check_ok(ds_comm_split(comm, rank == 2, 0, &group), "split");
  check_ok(ds_comm_barrier(comm), "all are in");
  if (rank == 1) check_ok(ds_comm_abort(comm, "the disk is full"), "abort");
  if (rank == 0) check_error(ds_comm_barrier(group), DS_ERROR_COMM, "the disk is full");
  if (rank != 0) check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "the disk is full");
  ds_comm_destroy(group);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int called, started;

static int add(int* number, int amount) {
  int now;
  pthread_mutex_lock(&lock);
  now = *number += amount;
  pthread_mutex_unlock(&lock);
  return now;
}

/* Proves {comm.barrier}: when a rank returns, all ranks have called. */
static void barrier(int rank, ds_comm* comm, void* data) {
  int round;
  (void)data;
  for (round = 1; round <= 20; ++round) {
    if (round % 3 == rank) pause_ms(3);
    add(&called, 1);
    check_ok(ds_comm_barrier(comm), "barrier");
    check(add(&called, 0) >= 3 * round, "every rank has called it");
    check_ok(ds_comm_barrier(comm), "before the next round");
  }
}

static ds_comm_call sum_of(const void* const* in, const size_t* count, void* const* out) {
  ds_comm_call call;
  check_ok(ds_comm_call_init(&call, sizeof call), "call");
  call.dtype = DS_DTYPE_F32, call.ins = in, call.counts = count, call.outs = out;
  return call;
}

/* Proves {comm.submit.start}, {comm.test} and {comm.submit.direct}: rank 0's start returns
 * before rank 1 has started, because rank 1 waits for it; the direct call has its result when it
 * returns. */
static void start_returns(int rank, ds_comm* comm, void* data) {
  float value = 2, sum = 0;
  const void* in = &value;
  void* out = &sum;
  size_t one = 1;
  int32_t done = -1;
  ds_work* work = NULL;
  ds_comm_call call = sum_of(&in, &one, &out);
  (void)data;
  while (rank == 1 && add(&started, 0) == 0) pause_ms(1);
  check_ok(ds_comm_submit(comm, &call, &work), "start");
  if (rank == 0) {
    check_ok(ds_work_test(work, &done), "test");
    check(done == 0, "rank 1 has not started it");
    add(&started, 1);
  }
  check_ok(ds_work_wait(work), "wait");
  check(sum == 4, "the sum");
  check_ok(ds_work_test(work, &done), "test");
  check(done == 1, "it has ended");
  ds_work_destroy(work);
  sum = 0;
  check_ok(ds_comm_submit(comm, &call, NULL), "direct");
  check(sum == 4, "the sum of the direct call");
}

/* Proves {comm.submit.order} and {comm.submit.loan}: each started sum uses the result of the
 * previous one, and a direct collective, even of a group split from this one, waits for all of
 * them. */
static void start_order(int rank, ds_comm* comm, void* data) {
  float value = 1;
  const void* in = &value;
  void* place = &value;
  size_t one = 1;
  int i, round;
  ds_comm* group = NULL;
  ds_comm_call call = sum_of(&in, &one, &place);
  (void)data;
  check_ok(ds_comm_split(comm, 0, -rank, &group), "split");
  for (round = 0; round < 2; ++round) {
    value = 1;
    for (i = 0; i < 8; ++i) {
      ds_work* work = NULL;
      check_ok(ds_comm_submit(i % 2 ? comm : group, &call, &work), "start");
      /* The work continues although its handle is destroyed without a wait. */
      ds_work_destroy(work);
    }
    check_ok(ds_comm_barrier(round == 0 ? comm : group), "a direct collective");
    check(value == 256, "it came after 8 doublings, and the buffer is ours again");
    value = 3;
    check_ok(ds_comm_barrier(comm), "another");
    check(value == 3, "nothing writes there any more");
  }
  ds_comm_destroy(group);
}

/* Proves {comm.submit.abort}, {comm.wait} and {comm.wait.again}: rank 0 starts a collective that
 * rank 1 never calls. */
static void start_aborted(int rank, ds_comm* comm, void* data) {
  ds_work* work = NULL;
  ds_comm_call call;
  int i;
  (void)data;
  check_ok(ds_comm_call_init(&call, sizeof call), "call");
  call.op = DS_COMM_OP_BARRIER;
  check_ok(ds_comm_submit(comm, &call, &work), "start");
  for (i = 0; i < 2; ++i) check_ok(ds_work_wait(work), "one that both have started");
  ds_work_destroy(work);
  if (rank == 1) {
    check_ok(ds_comm_abort(comm, "nobody comes"), "abort");
    return;
  }
  check_ok(ds_comm_submit(comm, &call, &work), "start");
  for (i = 0; i < 2; ++i) check_error(ds_work_wait(work), DS_ERROR_COMM, "nobody comes");
  ds_work_destroy(work);
}

/* Proves {comm.submit.leave} and {comm.submit.loan}: once the destroy function has returned, the
 * caller may free the buffers. */
static void start_and_leave(int rank, ds_comm* comm, void* data) {
  char name[] = "threads://api_leave_within";
  ds_comm_options options;
  ds_comm* own = NULL;
  ds_work* work = NULL;
  int32_t done = -1;
  size_t count = 100000;
  float* values = calloc(count, sizeof *values);
  const void* in = values;
  void* out = values;
  ds_comm_call call = sum_of(&in, &count, &out);
  (void)data;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = rank, options.size = 2;
  check_ok(ds_comm_create(name, &options, &own), "join");
  if (rank == 0) check_ok(ds_comm_submit(own, &call, &work), "start what rank 1 never does");
  ds_comm_destroy(own);
  free(values);
  if (rank == 0) {
    check_ok(ds_work_test(work, &done), "test");
    check(done == 1, "it was given up");
    check_error(ds_work_wait(work), DS_ERROR_COMM, "");
    ds_work_destroy(work);
  }
  check_ok(ds_comm_barrier(comm), "end");
}

/* Proves {comm.submit.refused}: an invalid call is refused, and the group remains usable. */
static void refused(int rank, ds_comm* comm, void* data) {
  float value = 1, sum = 0;
  const void* in = &value;
  void* out = &sum;
  size_t one = 1, blocks[2] = {1, 1};
  ds_work* work = NULL;
  ds_comm_call call = sum_of(&in, &one, &out);
  (void)rank, (void)data;
  call.blocks = blocks, call.blocks_count = 2;
  check_error(ds_comm_submit(comm, &call, &work), DS_ERROR_INVALID_ARGUMENT,
              "only all_gather, reduce_scatter and all_to_all take blocks");
  check(work == NULL, "nothing is started");
  call.blocks = NULL;
  check_ok(ds_comm_submit(comm, &call, &work), "without blocks");
  check_ok(ds_work_wait(work), "wait");
  check(sum == 2, "the sum");
  ds_work_destroy(work);
}

/* Proves {comm.all_reduce} and {comm.all_reduce.in_place}. */
static void sums(int rank, ds_comm* comm, void* data) {
  int32_t most = INT32_MAX, narrow[2] = {5, 6};
  uint8_t byte = 200;
  /* 1.0078125 in bf16. Twice this number is 2.015625. */
  uint16_t half = 0x3f81;
  float wide = 0;
  (void)rank, (void)data;
  check_ok(ds_comm_all_reduce(comm, &most, 1, DS_DTYPE_I32, &most), "i32");
  check(most == -2, "INT32_MAX twice wraps around");
  check_ok(ds_comm_all_reduce(comm, &byte, 1, DS_DTYPE_U8, &byte), "u8");
  check(byte == 144, "400 wraps around");
  check_ok(ds_comm_all_reduce(comm, narrow, 2, DS_DTYPE_I32, narrow), "in place");
  check(narrow[0] == 10 && narrow[1] == 12, "the sums are in the same buffer");
  check_ok(ds_comm_all_reduce(comm, &half, 1, DS_DTYPE_BF16, &wide), "bf16");
  check(wide == 2.015625f, "summed in f32");
}

int main(void) {
  joining();
  run_ranks("api_differ", 2, differ, NULL);
  run_ranks("api_still", 2, stand_still, NULL);
  run_ranks("api_leave", 2, leave, NULL);
  run_ranks("api_send_both", 2, send_both, NULL);
  run_ranks("api_sizes_of_a_message", 2, sizes_of_a_message, NULL);
  run_ranks("api_abort_of_groups", 3, abort_of_groups, NULL);
  run_ranks("api_barrier", 3, barrier, NULL);
  run_ranks("api_start_returns", 2, start_returns, NULL);
  run_ranks("api_start_order", 2, start_order, NULL);
  run_ranks("api_start_aborted", 2, start_aborted, NULL);
  run_ranks("api_start_and_leave", 2, start_and_leave, NULL);
  run_ranks("api_refused", 2, refused, NULL);
  run_ranks("api_sums", 2, sums, NULL);
  return 0;
}
