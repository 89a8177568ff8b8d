#define _POSIX_C_SOURCE 200809L
/* Tests ways in which a run ends before its last step or fails at its end: callbacks, a signal,
 * non-finite losses, a bar that is not met. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "support.h"

static char base[512], text_file[700];

typedef struct record {
  pthread_t thread;
  int steps, batches, stop_batch, skips;
} record;

static ds_status batch(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                       size_t tokens_count, void* user_data) {
  record* seen = user_data;
  size_t i;
  check(pthread_equal(seen->thread, pthread_self()), "on the thread inside the call");
  check((step == seen->steps || seen->skips) && micro_step == 0,
        "the batch is of the step after the steps that were made");
  for (i = 0; i < tokens_count; ++i) tokens[i] = targets[i] = 'a' + (int32_t)(i % 4);
  return ++seen->batches == seen->stop_batch ? DS_ERROR_IO : DS_OK;
}

/* The learning rates that a callback sets, and those that the steps used. */
typedef struct rates {
  double set[8], had[8];
} rates;
static ds_status set_rate(const ds_run_progress* now, void* user_data) {
  rates* of = user_data;
  of->had[now->step] = now->lr;
  if (now->step == 1) check(*now->next_lr == 0.01, "the schedule's");
  if (of->set[now->step] != 0) *now->next_lr = of->set[now->step];
  return DS_OK;
}

static ds_status progress(const ds_run_progress* now, void* user_data) {
  record* seen = user_data;
  check(pthread_equal(seen->thread, pthread_self()) && now->step == ++seen->steps, "step by step");
  return DS_OK;
}

/* Writes the configuration of a run in the folder `name`, with additional members. */
static void configure(char* config, size_t size, const char* name, const char* optimizer,
                      const char* run, const char* more) {
  snprintf(config, size,
           "{\"train_batch_size\": 2, \"optimizer\": %s, \"model\": {\"family\": \"gpt\", "
           "\"layers\": 1, \"hidden\": 16, \"heads\": 2, \"vocab\": 256, \"positions\": 8}, "
           "\"run\": {\"dir\": \"%s/%s\", \"sequence\": 8, \"sample_tokens\": 0, %s}%s}",
           optimizer, base, name, run, more);
}

static const char* const adam = "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}";

static void expect_step(const char* name, const char* step) {
  char folder[700], *text = NULL;
  snprintf(folder, sizeof folder, "%s/%s", base, name);
  check_ok(ds_checkpoint_info(folder, &text), "what was saved");
  check(strstr(text, step) != NULL, step);
  ds_text_destroy(text);
}

/* Proves {run.batch.stop}, {run.batch.step}, {run.progress.step}, {run.train.user} and
 * {threads.callbacks}: the callback refuses the fourth batch, three steps are saved, and the run
 * continues with `resume`. */
static void batches(void) {
  char config[2048], folder[700];
  record seen = {pthread_self(), 0, 0, 4, 0};
  configure(config, sizeof config, "batches", adam, "\"steps\": 6", "");
  check_error(ds_run_train(NULL, config, NULL, 2, batch, progress, NULL, &seen), DS_ERROR_USER,
              "a callback asked to stop after step 3; saved in");
  check(seen.steps == 3 && seen.batches == 4, "a batch for each step");
  expect_step("batches", "\"step\": 3,");
  snprintf(folder, sizeof folder, "%s/batches", base);
  seen.stop_batch = -1;
  check_ok(ds_run_train(NULL, NULL, folder, 2, batch, progress, NULL, &seen), "resume");
  check(seen.steps == 6, "the rest");
  expect_step("batches", "\"step\": 6,");
}

static volatile int32_t stop;

static void on_alarm(int number) {
  (void)number;
  stop = 1;
}

/* Proves {run.train.stop}: a signal handler sets the flag in the middle of a long run. */
static void signals(void) {
  char config[2048];
  record seen = {pthread_self(), 0, 0, -1, 0};
  struct sigaction action;
  struct itimerval soon;
  memset(&action, 0, sizeof action);
  memset(&soon, 0, sizeof soon);
  action.sa_handler = on_alarm;
  soon.it_value.tv_usec = 300000;
  check(sigaction(SIGALRM, &action, NULL) == 0, "a handler");
  configure(config, sizeof config, "signals", adam, "\"steps\": 1000000", "");
  check(setitimer(ITIMER_REAL, &soon, NULL) == 0, "a timer");
  check_error(ds_run_train(NULL, config, NULL, 2, batch, progress, &stop, &seen), DS_ERROR_USER,
              "the stop flag asked to stop after step");
  check(seen.steps < 1000000, "long before the end");
  if (seen.steps > 0) {
    char step[40];
    snprintf(step, sizeof step, "\"step\": %d,", seen.steps);
    expect_step("signals", step);
  }
}

/* Proves {run.train.numeric}: first two steps in a row have no finite loss, then the last step
 * ruins a model. */
static void not_finite(void) {
  char config[2048];
  record seen = {pthread_self(), 0, 0, -1, 1};
  static const char* const huge = "{\"type\": \"SGD\", \"params\": {\"lr\": 1e31}}";
  configure(config, sizeof config, "skipped", huge, "\"steps\": 50, \"max_skipped_steps\": 2", "");
  check_error(ds_run_train(NULL, config, NULL, 2, batch, progress, NULL, &seen), DS_ERROR_NUMERIC,
              "run.max_skipped_steps is 2; saved after step 3 in");
  expect_step("skipped", "\"step\": 3,");
  configure(config, sizeof config, "destroyed", huge, "\"steps\": 1", text_file);
  check_error(ds_run_train(NULL, config, NULL, 2, NULL, NULL, NULL, NULL), DS_ERROR_NUMERIC,
              "held-out loss after step 1 is not finite");
  expect_step("destroyed", "\"step\": 1,");
}

/* Proves {run.train.bars} and {run.train.ok}. */
static void bars(void) {
  char config[2048];
  configure(config, sizeof config, "bars", adam, "\"steps\": 1, \"bars\": [\"gzip\"]", text_file);
  check_error(ds_run_train(NULL, config, NULL, 2, NULL, NULL, NULL, NULL), DS_ERROR_CONFIG,
              "run.bars");
  check(strstr(ds_last_error_message(), "not below gzip") != NULL, "the bar is named");
  expect_step("bars", "\"step\": 1,");
  configure(config, sizeof config, "no_bars", adam, "\"steps\": 1", text_file);
  check_ok(ds_run_train(NULL, config, NULL, 2, NULL, NULL, NULL, NULL), "without a bar");
  expect_step("no_bars", "\"step\": 1,");
}

/* Proves {run.progress.lr} and {run.progress.lr_invalid}. */
static void schedules(void) {
  char config[2048];
  rates of = {{0, 0.5, 0, 0.25, NAN, 0, 0, 0}, {0}};
  static const double had[] = {0, 0.01, 0.5, 0.5, 0.25, 0.01, 0.01};
  int i;
  configure(config, sizeof config, "schedules", adam, "\"steps\": 6", text_file);
  check_ok(ds_run_train(NULL, config, NULL, 2, NULL, set_rate, NULL, &of), "rates of a callback");
  for (i = 1; i <= 6; ++i) check(of.had[i] == had[i], "the rate of a step");
  of.set[2] = -0.5;
  configure(config, sizeof config, "negative", adam, "\"steps\": 6", text_file);
  check_error(ds_run_train(NULL, config, NULL, 2, NULL, set_rate, NULL, &of),
              DS_ERROR_INVALID_ARGUMENT, "next_lr must be finite and at least 0, or NaN, got -0.5");
}

int main(int argc, char** argv) {
  char path[600], command[600];
  FILE* text;
  int i;
  snprintf(base, sizeof base, "%s/run_ends_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(base) != NULL, "a folder");
  snprintf(path, sizeof path, "%s/text", base);
  text = fopen(path, "w");
  check(text != NULL, "a text");
  for (i = 0; i < 400; ++i)
    fprintf(text, "line %d about ranks and steps: %d\n", i, i * 7919 % 1000);
  fclose(text);
  snprintf(text_file, sizeof text_file, ", \"data\": {\"paths\": [\"%s\"], \"heldout\": 0.2}",
           path);
  batches();
  signals();
  not_finite();
  bars();
  schedules();
  snprintf(command, sizeof command, "rm -rf '%s'", base);
  check(system(command) == 0, "clean up");
  return 0;
}
