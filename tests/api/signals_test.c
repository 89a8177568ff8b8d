#define _GNU_SOURCE
/* A host program that leaves SIGPIPE and SIGXFSZ at their defaults must survive a closed standard
 * output and a file size limit, and libds must leave its signal handlers and mask unchanged. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support.h"

static ds_status batch(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                       size_t tokens_count, void* user_data) {
  size_t i;
  (void)step, (void)micro_step, (void)user_data;
  for (i = 0; i < tokens_count; ++i) tokens[i] = targets[i] = 'a' + (int32_t)(i % 4);
  return DS_OK;
}

static void check_untouched(void) {
  static const int numbers[] = {SIGPIPE, SIGXFSZ};
  sigset_t mask, pending;
  size_t i;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  for (i = 0; i < 2; ++i) {
    struct sigaction action;
    sigaction(numbers[i], NULL, &action);
    check(action.sa_handler == SIG_DFL, "the disposition is the host's");
    check(!sigismember(&mask, numbers[i]), "the mask is the host's");
    check(!sigismember(&pending, numbers[i]), "no signal is left");
  }
}

static void allow_files_of(rlim_t bytes) {
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
}

int main(int argc, char** argv) {
  char config[1024], folder[512];
  int pipes[2], out = dup(STDOUT_FILENO);
  snprintf(folder, sizeof folder, "%s/signals_test_folder_%d", argc > 1 ? argv[1] : ".",
           (int)getpid());
  snprintf(config, sizeof config,
           "{\"train_batch_size\": 4, \"steps_per_print\": 1, \"model\": {\"family\": \"gpt\", "
           "\"layers\": 1, \"hidden\": 32, \"heads\": 2, \"positions\": 16}, \"run\": {\"dir\": "
           "\"%s\", \"steps\": 4, \"save_every\": 2, \"sequence\": 16, \"sample_tokens\": 0}}",
           folder);
  /* The parent process of this test may have changed the handlers. */
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);

  check(pipe(pipes) == 0, "a pipe");
  close(pipes[0]);
  dup2(pipes[1], STDOUT_FILENO);
  close(pipes[1]);
  check_ok(ds_run_train(NULL, config, NULL, 1, batch, NULL, NULL, NULL),
           "a closed standard output");
  check_untouched();
  dup2(out, STDOUT_FILENO);

  /* This limit is smaller than a checkpoint. */
  allow_files_of(20 << 10);
  check_error(ds_run_train(NULL, "{\"run\": {\"steps\": 8}}", folder, 2, batch, NULL, NULL, NULL),
              DS_ERROR_IO, "step 8 is not saved");
  check_untouched();
  check(strstr(ds_last_error_message(), "the last checkpoint is") != NULL, "what is saved");
  allow_files_of(0);
  check_error(ds_run_train(NULL, NULL, folder, 2, batch, NULL, NULL, NULL), DS_ERROR_IO,
              "File too large");
  check_untouched();
  allow_files_of(RLIM_INFINITY);
  check_ok(ds_run_train(NULL, "{\"run\": {\"steps\": 8}}", folder, 2, batch, NULL, NULL, NULL),
           "resume");
  return 0;
}
