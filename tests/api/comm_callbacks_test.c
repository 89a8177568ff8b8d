#define _GNU_SOURCE
/* Tests a comm over collectives that this program implements: its threads are ranks that exchange
 * messages. Proves {comm.callbacks.bits}, {comm.callbacks.submit}, {comm.callbacks.inside},
 * {comm.callbacks.error}, {comm.callbacks.in_place}, {comm.callbacks.destroyed_inside},
 * {comm.callbacks.device}, {comm.callbacks.destroy}, {comm.callbacks.refused},
 * {comm.callbacks.tried} and {comm.callbacks.pairs}. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { RANKS = 3, STEPS = 4, WEIGHTS = MLP_HIDDEN * MLP_IN };

typedef struct letter {
  struct letter* next;
  size_t size;
  char bytes[1];
} letter;

/* The messages in flight from each rank to each other rank, in order. */
typedef struct office {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  letter* letters[RANKS][RANKS];
  int ended;
  /* Number of ranks whose error message named the cause. */
  int named;
  pthread_barrier_t joined;
} office;

typedef struct rank_state {
  office* post;
  int rank;
  /* Number of calls of each callback so far. */
  int works, in_place, destroyed, aborted;
  /* The thread that is in a call on the comm. Callbacks must run on it. */
  pthread_t thread;
  /* If set, the next callback tries to use this comm, or the engine below. */
  ds_comm* inside;
  ds_engine* engine;
  /* If set, the next callback destroys this comm. */
  ds_comm* ends;
  /* If set, the rank that this rank claims to be. */
  int claims;
  /* If set, callbacks return an error. */
  int fails;
  /* If set, all_gather transfers only whole multiples of four bytes. */
  int rounds;
  /* If set, all parts that are sent are damaged. */
  int damages;
} rank_state;

static ds_status post(rank_state* me, const void* data, size_t size, int to) {
  letter *one = calloc(1, sizeof *one + size), **end;
  if (size == 0) return free(one), DS_OK;
  memcpy(one->bytes, data, size);
  if (me->damages) one->bytes[0] ^= 1;
  one->size = size;
  pthread_mutex_lock(&me->post->mutex);
  for (end = &me->post->letters[me->rank][to]; *end; end = &(*end)->next) {
  }
  *end = one;
  pthread_cond_broadcast(&me->post->changed);
  pthread_mutex_unlock(&me->post->mutex);
  return DS_OK;
}

static ds_status take(rank_state* me, void* data, size_t size, int from) {
  letter** first = &me->post->letters[from][me->rank];
  letter* one;
  if (size == 0) return DS_OK;
  pthread_mutex_lock(&me->post->mutex);
  while (!*first && !me->post->ended) pthread_cond_wait(&me->post->changed, &me->post->mutex);
  one = *first;
  if (one) *first = one->next;
  pthread_mutex_unlock(&me->post->mutex);
  if (!one) return DS_ERROR_COMM;
  check(one->size == size, "a letter of the size that is received");
  memcpy(data, one->bytes, size);
  free(one);
  return DS_OK;
}

/* Begins a callback: counts it, checks its thread, and checks that calls of its comm or engine are
 * refused meanwhile. */
static ds_status enter(rank_state* me) {
  ++me->works;
  check(pthread_equal(me->thread, pthread_self()), "a callback runs on the thread inside the call");
  if (me->inside) {
    ds_comm* comm = me->inside;
    me->inside = NULL;
    check_error(ds_comm_barrier(comm), DS_ERROR_STATE, "comm is inside a call");
  }
  if (me->engine) {
    ds_engine* engine = me->engine;
    me->engine = NULL;
    check_error(ds_engine_refresh(engine), DS_ERROR_STATE, "engine is inside a call");
  }
  if (me->ends) {
    ds_comm* comm = me->ends;
    me->ends = NULL;
    ds_comm_destroy(comm);
    ds_comm_destroy(comm);
    check(ds_comm_size(comm) == RANKS && me->destroyed == 0,
          "a comm inside a call lives as long as the call");
  }
  return me->fails ? DS_ERROR_USER : DS_OK;
}

static ds_status all_to_all(const void* const* ins, const size_t* in_sizes, void* const* outs,
                            const size_t* out_sizes, void* user_data) {
  rank_state* me = user_data;
  ds_status status = enter(me);
  int r;
  r = me->claims ? me->claims : me->rank;
  check(ins[r] == NULL && in_sizes[r] == 0 && out_sizes[r] == 0, "its own entries");
  for (r = 0; r < RANKS && status == DS_OK; ++r) status = post(me, ins[r], in_sizes[r], r);
  for (r = 0; r < RANKS && status == DS_OK; ++r) status = take(me, outs[r], out_sizes[r], r);
  return status;
}

static ds_status all_gather(const void* in, size_t in_size, void* out, void* user_data) {
  rank_state* me = user_data;
  ds_status status = enter(me);
  char* blocks = out;
  int r;
  me->in_place += in == blocks + (size_t)me->rank * in_size;
  memmove(blocks + (size_t)me->rank * in_size, in, in_size);
  if (me->rounds) {
    for (r = 0; r < RANKS; ++r)
      memset(blocks + (size_t)r * in_size, 0, r == me->rank ? 0 : in_size);
    in_size = in_size / 4 * 4;
  }
  for (r = 0; r < RANKS && status == DS_OK; ++r) {
    if (r != me->rank) status = post(me, in, in_size, r);
  }
  for (r = 0; r < RANKS && status == DS_OK; ++r) {
    if (r != me->rank) status = take(me, blocks + (size_t)r * in_size, in_size, r);
  }
  return status;
}

static ds_status send(const void* data, size_t data_size, int32_t to, void* user_data) {
  ds_status status = enter(user_data);
  return status == DS_OK ? post(user_data, data, data_size, to) : status;
}

static ds_status receive(void* data, size_t data_size, int32_t from, void* user_data) {
  ds_status status = enter(user_data);
  return status == DS_OK ? take(user_data, data, data_size, from) : status;
}

static void end(const char* reason, void* user_data) {
  rank_state* me = user_data;
  check(reason[0] != '\0', "an abort has a reason");
  ++me->aborted;
  pthread_mutex_lock(&me->post->mutex);
  me->post->ended = 1;
  pthread_cond_broadcast(&me->post->changed);
  pthread_mutex_unlock(&me->post->mutex);
}

static void destroy(void* user_data) { ++((rank_state*)user_data)->destroyed; }

static ds_comm_callbacks callbacks_of(rank_state* me) {
  ds_comm_callbacks out = {sizeof out, all_gather, all_to_all, send, receive, end, destroy, me};
  me->thread = pthread_self();
  return out;
}

/* Creates a comm over these callbacks, as rank `rank` of RANKS. */
static ds_status make(const ds_comm_callbacks* callbacks, int rank, ds_comm** out) {
  ds_comm_options options;
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  options.rank = rank, options.size = RANKS;
  return ds_comm_create_from_callbacks(callbacks, &options, out);
}

static ds_comm* join(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  ds_comm* comm = NULL;
  check_ok(make(&callbacks, me->rank, &comm), "create");
  /* After this barrier, no rank is still joining when the group ends. */
  pthread_barrier_wait(&me->post->joined);
  return comm;
}

/* A function that on_ranks() runs on each rank. */
typedef void body_fn(rank_state* me);
typedef struct start {
  rank_state me;
  body_fn* body;
} start;
static void* run(void* data) {
  ((start*)data)->body(&((start*)data)->me);
  return NULL;
}
/* Runs body on all ranks and returns how many named the cause of an error. */
static int on_ranks(body_fn* body) {
  office post;
  start starts[RANKS];
  pthread_t threads[RANKS];
  int r, to;
  memset(&post, 0, sizeof post);
  pthread_mutex_init(&post.mutex, NULL);
  pthread_cond_init(&post.changed, NULL);
  pthread_barrier_init(&post.joined, NULL, RANKS);
  memset(starts, 0, sizeof starts);
  for (r = 0; r < RANKS; ++r) {
    starts[r].me.post = &post, starts[r].me.rank = r, starts[r].body = body;
    check(pthread_create(&threads[r], NULL, run, &starts[r]) == 0, "a thread");
  }
  for (r = 0; r < RANKS; ++r) pthread_join(threads[r], NULL);
  pthread_barrier_destroy(&post.joined);
  for (r = 0; r < RANKS; ++r) {
    for (to = 0; to < RANKS; ++to) {
      while (post.letters[r][to]) {
        letter* one = post.letters[r][to];
        post.letters[r][to] = one->next;
        free(one);
      }
    }
  }
  return post.named;
}

/* Checks the message of an error. The first rank that sees the cause names it and ends the group;
 * another rank may only see its own callback fail. */
static void names_it(rank_state* me, const char* words) {
  const char* message = ds_last_error_message();
  const int named = strstr(message, words) != NULL;
  check(named || strstr(message, "returned status -9") != NULL, words);
  pthread_mutex_lock(&me->post->mutex);
  me->post->named += named;
  pthread_mutex_unlock(&me->post->mutex);
}

static void collectives(rank_state* me) {
  ds_comm *comm = join(me), *part = NULL;
  float in[4 * RANKS], sums[4 * RANKS], started[4 * RANKS];
  int32_t mine = 7 + me->rank, all[RANKS], swapped[RANKS], done = 0;
  const void* ins = in;
  void* outs = started;
  size_t count = 4 * RANKS;
  ds_comm_call call;
  ds_work* work = NULL;
  int i, works;
  check(ds_comm_rank(comm) == me->rank && ds_comm_size(comm) == RANKS, "rank and size");
  check_ok(ds_comm_all_gather(comm, &mine, sizeof mine, all), "all_gather");
  for (i = 0; i < RANKS; ++i) check(all[i] == 7 + i, "gathered in rank order");
  check_ok(ds_comm_all_gather(comm, &all[me->rank], sizeof mine, all), "all_gather in place");
  check(me->in_place == 1 && all[0] == 7 && all[2] == 9,
        "the callback was given the block of this rank");
  check_ok(ds_comm_all_to_all(comm, all, sizeof all[0], swapped), "all_to_all");
  for (i = 0; i < RANKS; ++i) check(swapped[i] == 7 + me->rank, "this rank's block of every rank");
  for (i = 0; i < 4 * RANKS; ++i) in[i] = (float)(i + 1) / (float)(me->rank + 3);
  check_ok(ds_comm_all_reduce(comm, in, 4 * RANKS, DS_DTYPE_F32, sums), "all_reduce");
  check_ok(ds_comm_call_init(&call, sizeof call), "call");
  call.op = DS_COMM_OP_ALL_REDUCE, call.dtype = DS_DTYPE_F32;
  call.ins = &ins, call.outs = &outs, call.counts = &count;
  check_ok(ds_comm_submit(comm, &call, &work), "submit");
  works = me->works;
  check(memcmp(started, sums, sizeof sums) == 0, "a started collective has ended");
  check_ok(ds_work_test(work, &done), "test");
  check_ok(ds_work_wait(work), "wait");
  check(done == 1 && me->works == works, "nothing was left to do");
  ds_work_destroy(work);
  if (me->rank == 0) check_ok(ds_comm_send(comm, all, sizeof all, 2), "send");
  if (me->rank == 2) check_ok(ds_comm_receive(comm, swapped, sizeof swapped, 0), "receive");
  check(me->rank != 2 || swapped[1] == 8, "what rank 0 has sent");
  check_ok(ds_comm_split(comm, me->rank == 1 ? -1 : 0, -me->rank, &part), "split");
  check((part == NULL) == (me->rank == 1), "rank 1 is in no group");
  if (part) {
    check_ok(ds_comm_all_gather(part, &mine, sizeof mine, all), "all_gather of two");
    check(all[0] == 9 && all[1] == 7, "rank 2 comes first");
  }
  me->inside = comm;
  check_ok(ds_comm_barrier(comm), "a callback tries to use the comm");
  check(me->inside == NULL && me->destroyed == 0, "the callback was called");
  ds_comm_destroy(comm);
  check(me->destroyed == (part ? 0 : 1), "a group of the split still uses the callbacks");
  ds_comm_destroy(part);
  check(me->destroyed == 1 && me->aborted == 0, "destroy was called once");
}

/* Writes the weights after a few steps at ZeRO stage 3, which gathers parameters and reduces
 * gradients. */
static void weights_of(int rank, ds_comm* comm, rank_state* me, float* out) {
  char config[1024];
  ds_engine* engine;
  int32_t param = -1;
  int step;
  mlp_config(config, sizeof config, 3, 1, RANKS);
  engine = mlp_engine(comm, config);
  for (step = 0; step < STEPS; ++step) {
    mlp_batch batch;
    make_batch(&batch, rank, step, 1);
    if (me && step == 1) me->engine = engine;
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, NULL), "train");
    free_batch(&batch);
  }
  check_ok(ds_engine_param_find(engine, "fc1.weight", &param), "find");
  check_ok(ds_engine_read(engine, param, "master", out, WEIGHTS), "weights");
  ds_comm_destroy(comm);
  if (me) check(me->destroyed == 0, "the engine uses the callbacks");
  ds_engine_destroy(engine);
  if (me) check(me->destroyed == 1 && me->engine == NULL, "the engine was the last one");
}

static float over_threads[RANKS][WEIGHTS];
static void train_over_threads(int rank, ds_comm* comm, void* data) {
  (void)data;
  (void)comm;
  weights_of(rank, join_ranks("callbacks-beside", rank, RANKS), NULL, over_threads[rank]);
}
static void train(rank_state* me) {
  float weights[WEIGHTS];
  weights_of(me->rank, join(me), me, weights);
  check(memcmp(weights, over_threads[me->rank], sizeof weights) == 0,
        "the bits of ranks over threads");
}

/* If the callbacks of rank 1 fail, each rank gets a lasting error that names the callback and what
 * it returned. */
static void failing(rank_state* me) {
  ds_comm* comm = join(me);
  int32_t mine = 1, all[RANKS];
  me->fails = me->rank == 1;
  check_error(ds_comm_all_gather(comm, &mine, sizeof mine, all), DS_ERROR_COMM,
              me->rank == 1 ? "the callback all_gather returned status -12"
                            : "the callback all_gather returned status -9");
  me->fails = 0;
  check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "the callback all_gather returned status");
  check(me->aborted == 1, "the other ranks were told once");
  ds_comm_destroy(comm);
  check(me->destroyed == 1, "destroy was called");
}

/* Ranks that call different collectives get an error before any data is transferred. */
static void diverging(rank_state* me) {
  ds_comm* comm = join(me);
  int32_t mine = 1, all[RANKS];
  ds_status status =
      me->rank == 2 ? ds_comm_barrier(comm) : ds_comm_all_gather(comm, &mine, sizeof mine, all);
  check(status == DS_ERROR_COMM, "ranks that differ");
  names_it(me, "barrier");
  ds_comm_destroy(comm);
}

/* Another thread aborts a group whose other ranks do not call. */
static void* end_it(void* comm) {
  check_ok(ds_comm_abort(comm, "enough of this"), "abort");
  return NULL;
}
static void ending(rank_state* me) {
  ds_comm* comm = join(me);
  if (me->rank == 0) {
    pthread_t other;
    check(pthread_create(&other, NULL, end_it, comm) == 0, "a thread");
    check_error(ds_comm_barrier(comm), DS_ERROR_COMM, "enough of this");
    pthread_join(other, NULL);
  }
  ds_comm_destroy(comm);
}

/* If callbacks deliver other bytes than were sent, creating a comm fails on every rank. */
static void damaged(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  ds_comm* comm = NULL;
  callbacks.all_gather = NULL;
  me->damages = me->rank == 1;
  check(make(&callbacks, me->rank, &comm) == DS_ERROR_COMM && comm == NULL, "damaged parts");
  check(me->destroyed == 0, "user_data remains the caller's");
}

/* Creating a comm fails if two threads claim to be rank 1. */
static void twice(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  ds_comm* comm = NULL;
  me->claims = me->rank == 2 ? 1 : me->rank;
  check(make(&callbacks, me->claims, &comm) == DS_ERROR_COMM, "a number that is taken");
  names_it(me, "the data delivered in the place of rank 2 of 3 is from rank 1 of 3");
}

/* Either the ranks' callbacks differ, or all_gather loses bytes. Creating the comm detects both. */
static void refused_together(rank_state* me, ds_comm_callbacks callbacks, const char* words) {
  ds_comm* comm = NULL;
  check(make(&callbacks, me->rank, &comm) == DS_ERROR_COMM && comm == NULL, words);
  names_it(me, words);
  check(me->destroyed == 0, "user_data remains the caller's");
}
static void unlike(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  if (me->rank == 1) callbacks.all_gather = NULL;
  refused_together(me, callbacks, "passes all_gather, but rank 1 does not");
}
static void unlike_pairs(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  if (me->rank != 1) callbacks.send = NULL, callbacks.receive = NULL;
  refused_together(me, callbacks, "rank 1 passes send and receive, but rank ");
}
static void rounding(rank_state* me) {
  me->rounds = 1;
  refused_together(me, callbacks_of(me),
                   "all_gather has delivered wrong bytes instead of the 1 that rank ");
}

/* A callback destroys the comm whose call it serves. */
static void destroying(rank_state* me) {
  ds_comm* comm = join(me);
  me->ends = comm;
  check_ok(ds_comm_barrier(comm), "the call goes on");
  check(me->ends == NULL && me->destroyed == 1, "the comm has ended with the call");
}

static void on_a_device(rank_state* me) {
  ds_comm* comm = join(me);
  ds_graph* graph = mlp_graph();
  ds_engine* engine = NULL;
  char config[1024], *text = NULL;
  mlp_config(config, sizeof config, 0, 1, RANKS);
  check_ok(ds_config_merge(config, "{\"device\": \"separate\"}", &text), "merge");
  check_error(ds_engine_create(comm, text, graph, NULL, &engine), DS_ERROR_UNSUPPORTED,
              "must run them on the caller's");
  ds_text_destroy(text);
  ds_graph_destroy(graph);
  ds_comm_destroy(comm);
}

/* Without callbacks for messages between two ranks, everything else works. */
static void without_pairs(rank_state* me) {
  ds_comm_callbacks callbacks = callbacks_of(me);
  ds_comm *comm = NULL, *part = NULL;
  int32_t word = me->rank;
  callbacks.send = NULL, callbacks.receive = NULL, callbacks.all_gather = NULL,
  callbacks.abort = NULL;
  check_ok(make(&callbacks, me->rank, &comm), "create");
  check_error(ds_comm_send(comm, &word, sizeof word, (me->rank + 1) % RANKS), DS_ERROR_UNSUPPORTED,
              "needs the callbacks send and receive");
  check_error(ds_comm_receive(comm, &word, sizeof word, (me->rank + 1) % RANKS),
              DS_ERROR_UNSUPPORTED, "needs the callbacks send and receive");
  check_error(ds_comm_split(comm, 0, 0, &part), DS_ERROR_UNSUPPORTED,
              "needs the callbacks send and receive");
  check_ok(ds_comm_broadcast(comm, &word, sizeof word, 2), "the comm stays usable");
  check(word == 2, "rank 2's word");
  ds_comm_destroy(comm);
}

static void refusals(void) {
  rank_state me;
  ds_comm_callbacks callbacks;
  ds_comm_options options;
  ds_comm* comm = NULL;
  memset(&me, 0, sizeof me);
  callbacks = callbacks_of(&me);
  check_ok(ds_comm_options_init(&options, sizeof options), "options");
  check_error(ds_comm_create_from_callbacks(NULL, &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "callbacks must not be NULL");
  check_error(ds_comm_create_from_callbacks(&callbacks, &options, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out must not be NULL");
  options.rank = 3, options.size = 3;
  check_error(ds_comm_create_from_callbacks(&callbacks, &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "options.rank must be 0 to 2, got 3");
  callbacks.receive = NULL;
  check_error(
      ds_comm_create_from_callbacks(&callbacks, NULL, &comm), DS_ERROR_INVALID_ARGUMENT,
      "callbacks.send and callbacks.receive must both be given or both be NULL, got only send");
  callbacks = callbacks_of(&me), callbacks.all_to_all = NULL;
  check_error(ds_comm_create_from_callbacks(&callbacks, NULL, &comm), DS_ERROR_INVALID_ARGUMENT,
              "callbacks.all_to_all must not be NULL");
  check(me.destroyed == 0 && me.works == 0, "user_data remains the caller's");
  callbacks = callbacks_of(&me);
  check_ok(ds_comm_create_from_callbacks(&callbacks, NULL, &comm), "one rank");
  check_ok(ds_comm_barrier(comm), "a barrier of one rank");
  ds_comm_destroy(comm);
  check(me.destroyed == 1 && me.works == 0, "one rank needs no callback");
}

int main(void) {
  refusals();
  on_ranks(collectives);
  run_ranks("callbacks", RANKS, train_over_threads, NULL);
  on_ranks(train);
  on_ranks(failing);
  check(on_ranks(diverging) > 0, "what the ranks do is named");
  on_ranks(ending);
  on_ranks(damaged);
  check(on_ranks(twice) > 0, "a number that is taken is named");
  check(on_ranks(unlike) > 0, "unlike callbacks are named");
  check(on_ranks(unlike_pairs) > 0, "unlike pairs are named");
  check(on_ranks(rounding) > 0, "an all_gather that rounds is named");
  on_ranks(destroying);
  on_ranks(on_a_device);
  on_ranks(without_pairs);
  return 0;
}
