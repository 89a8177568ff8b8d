#define _GNU_SOURCE
/* Proves {descriptors.numbers}: if the host program has closed its standard descriptors, libds
 * keeps no descriptor with their numbers, so that text printed by the host or the library ends up
 * in no file, segment or socket. A run has the same bits as with open descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

/* The descriptor to which this test writes its messages. */
enum { LOG = 20 };

/* Returns whether the closed descriptors are still closed. If not, prints the first open one. */
static int still_closed(const char* when) {
  int fd;
  for (fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) {
      dprintf(LOG, "%s: libds has taken descriptor %d\n", when, fd);
      return 0;
    }
  }
  return 1;
}

/* The descriptors that were open at the start. All later ones must close on exec. */
static char open_before[256];

static int closed_on_exec(const char* when) {
  int fd;
  for (fd = 3; fd < (int)sizeof open_before; ++fd) {
    int flags = fcntl(fd, F_GETFD);
    if (flags == -1 || open_before[fd] || fd == LOG || (flags & FD_CLOEXEC)) continue;
    dprintf(LOG, "%s: descriptor %d stays open on exec\n", when, fd);
    return 0;
  }
  return 1;
}

static ds_status quiet_progress(const ds_run_progress* now, void* user_data) {
  (void)now;
  if (user_data && (!still_closed("in a run") || !closed_on_exec("in a run"))) exit(1);
  return DS_OK;
}

/* Trains on a text and returns the hash of the last checkpoint. */
static void train(const char* folder, const char* name, int closed, char* hash, size_t hash_size) {
  char config[2048], run[600], *info = NULL, *at;
  ds_status status;
  snprintf(run, sizeof run, "%s/%s", folder, name);
  snprintf(
      config, sizeof config,
      "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
      "{\"lr\": 0.01}}, \"model\": {\"family\": \"gpt\", \"layers\": 1, \"hidden\": 32, \"heads\": "
      "2}, \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
      "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
      "\"%s\"}}, \"csv_monitor\": {\"enabled\": true}, \"tensorboard\": {\"enabled\": true}, "
      "\"data\": {\"paths\": [\"%s/text\"], \"heldout\": 0.2}, \"run\": {\"dir\": \"%s\", "
      "\"steps\": 6, \"save_every\": 3, \"sequence\": 16, \"sample_tokens\": 4, \"threads\": 2, "
      "\"eval_samples\": 2}}",
      folder, folder, folder, run);
  status = ds_run_train(NULL, config, NULL, 1, NULL, quiet_progress, NULL, closed ? run : NULL);
  if (status == DS_OK) status = ds_checkpoint_info(run, &info);
  at = status == DS_OK ? strstr(info, "\"payload_hash\": \"") : NULL;
  if (!at) {
    dprintf(LOG, "%s: %s\n", name, ds_last_error_message());
    exit(1);
  }
  snprintf(hash, hash_size, "%.32s", at + strlen("\"payload_hash\": \""));
  ds_text_destroy(info);
}

typedef struct task {
  const char* url;
  int rank;
  ds_status status;
} task;

/* Keeps the two ranks together while one of them looks at the descriptors. */
static pthread_barrier_t quiet;

static void* join(void* arg) {
  task* self = arg;
  ds_comm_options options;
  ds_comm* comm = NULL;
  float one = 1, sum = 0;
  ds_comm_options_init(&options, sizeof options);
  options.rank = self->rank;
  options.size = 2;
  options.join_ms = options.timeout_ms = 20000;
  self->status = ds_comm_create(self->url, &options, &comm);
  if (self->status == DS_OK) self->status = ds_comm_all_reduce(comm, &one, 1, DS_DTYPE_F32, &sum);
  if (self->status == DS_OK && sum != 2) self->status = DS_ERROR_INTERNAL;
  if (self->status != DS_OK) dprintf(LOG, "%s: %s\n", self->url, ds_last_error_message());
  /* A descriptor that libds opens has a low number for a moment, so no call may be running while
   * rank 0 looks. */
  pthread_barrier_wait(&quiet);
  if (self->rank == 0 && self->status == DS_OK &&
      (!still_closed(self->url) || !closed_on_exec(self->url)))
    self->status = DS_ERROR_INTERNAL;
  pthread_barrier_wait(&quiet);
  ds_comm_destroy(comm);
  return NULL;
}

/* Forms a group of two ranks, which sum a number, over shared memory or sockets. */
static void meet(const char* url) {
  task tasks[2] = {{NULL, 0, DS_OK}, {NULL, 1, DS_OK}};
  pthread_t other;
  tasks[0].url = tasks[1].url = url;
  if (pthread_barrier_init(&quiet, NULL, 2) != 0) exit(1);
  if (pthread_create(&other, NULL, join, &tasks[1]) != 0) exit(1);
  join(&tasks[0]);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&quiet);
  if (tasks[0].status == DS_ERROR_UNSUPPORTED && strncmp(url, "tcp", 3) == 0) return;
  if (tasks[0].status != DS_OK || tasks[1].status != DS_OK) exit(1);
}

int main(int argc, char** argv) {
  char folder[512], path[600], command[600], url[700], open_hash[64], closed_hash[64];
  FILE* text;
  int i;
  snprintf(folder, sizeof folder, "%s/closed_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(folder) != NULL, "a folder");
  snprintf(path, sizeof path, "%s/text", folder);
  text = fopen(path, "w");
  check(text != NULL, "a text");
  for (i = 0; i < 400; ++i)
    fprintf(text, "line %d about shards and granules: %d\n", i, i * 7919 % 1000);
  fclose(text);
  for (i = 0; i < (int)sizeof open_before; ++i) open_before[i] = fcntl(i, F_GETFD) != -1;
  check(dup2(2, LOG) == LOG, "a log");
  train(folder, "open", 0, open_hash, sizeof open_hash);
  for (i = 0; i <= 2; ++i) close(i);
  train(folder, "closed", 1, closed_hash, sizeof closed_hash);
  if (!still_closed("after a run")) return 1;
  if (strcmp(open_hash, closed_hash) != 0) {
    dprintf(LOG, "open %s, closed %s\n", open_hash, closed_hash);
    return 1;
  }
  snprintf(url, sizeof url, "shm://closed-%d", (int)getpid());
  meet(url);
  snprintf(url, sizeof url, "tcp://%s/meet", folder);
  /* Has an effect only if this build has TCP. */
  meet(url);
  if (!still_closed("at the end")) return 1;
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command) == 0 ? 0 : 1;
}
