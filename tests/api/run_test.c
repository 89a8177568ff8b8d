#define _POSIX_C_SOURCE 200809L
/* Tests training runs from C with the caller's own data: progress, a callback that stops the run,
 * resuming, and text generation. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

typedef struct record {
  int batches, steps, stop_at;
  double first, last;
} record;

static ds_status batch(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                       size_t tokens_count, void* user_data) {
  record* seen = user_data;
  size_t i;
  (void)step;
  (void)micro_step;
  ++seen->batches;
  for (i = 0; i < tokens_count; ++i) {
    tokens[i] = 'a' + (int32_t)(i % 4);
    targets[i] = 'a' + (int32_t)((i + 1) % 4);
  }
  return DS_OK;
}

static ds_status progress(const ds_run_progress* now, void* user_data) {
  record* seen = user_data;
  check(now->struct_size == sizeof *now && now->lr > 0 && now->grad_norm > 0, "numbers of a step");
  check(now->samples == 4 * now->step + 4 * (now->step > 30 ? now->step - 30 : 0), "samples taken");
  check(now->loss_scale == 1, "no loss scale");
  if (seen->steps++ == 0) seen->first = now->loss;
  seen->last = now->loss;
  return now->step == seen->stop_at ? DS_ERROR_USER : DS_OK;
}

static const char* const greedy = "{\"tokens\": 10, \"temperature\": 0}";

static ds_status add_text(const char* part, void* user_data) {
  strcat(user_data, part);
  return DS_OK;
}

static ds_status stop_text(const char* part, void* user_data) {
  add_text(part, user_data);
  return strlen(user_data) < 3 ? DS_OK : DS_ERROR_USER;
}

/* New members are added at the end of the struct, so that programs built earlier find the old
 * members at their offsets. */
typedef char next_lr_stands[offsetof(ds_run_progress, next_lr) == 64 ? 1 : -1];

/* Proves {run.progress.stop}, {run.progress.samples}, {run.communicator}, {run.train.ok},
 * {run.train.user}, {run.train.stop}, {run.train.state}, {run.tokenize.stop} and
 * {run.generate.stop}. */
int main(int argc, char** argv) {
  char config[1024], folder[512], patch[2048], parts[256] = "", *early = NULL, *text = NULL,
                                               *again = NULL;
  record seen = {0, 0, 30, 0, 0};
  volatile int32_t stop = 0;
  snprintf(folder, sizeof folder, "%s/run_test_folder_%d", argc > 1 ? argv[1] : ".", (int)getpid());
  snprintf(config, sizeof config,
           "{\"train_batch_size\": 4, \"communicator\": \"env:shm\", \"optimizer\": {\"type\": "
           "\"AdamW\", \"params\": {\"lr\": 0.01}}, \"model\": {\"family\": \"gpt\", \"layers\": "
           "1, \"hidden\": 32, \"heads\": 2, \"vocab\": 256, \"positions\": 16}, \"run\": "
           "{\"dir\": \"%s\", \"steps\": 40, \"sequence\": 16, \"sample_tokens\": 0}}",
           folder);
  check_error(ds_run_train(NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "config");
  check_error(ds_run_train(NULL, config, NULL, 3, NULL, NULL, NULL, NULL),
              DS_ERROR_INVALID_ARGUMENT, "quiet must be 0 to 2, got 3");
  check_error(ds_run_train(NULL, config, NULL, 2, batch, progress, &stop, &seen), DS_ERROR_USER,
              "after step 30");
  check(seen.steps == 30 && seen.batches >= 30, "a step and a batch at a time");
  check(seen.last < 0.5 * seen.first, "the loss falls");
  stop = 1;
  check_error(ds_run_train(NULL, NULL, folder, 2, batch, progress, &stop, &seen), DS_ERROR_USER,
              "the stop flag asked to stop after step 30; saved in");
  snprintf(patch, sizeof patch,
           "{\"run\": {\"dir\": \"%s_early\"}, \"data\": {\"paths\": [\"%s/config.json\"]}}",
           folder, folder);
  check_ok(ds_config_merge(config, patch, &early), "merge");
  check_error(ds_run_train(NULL, early, NULL, 2, NULL, NULL, &stop, NULL), DS_ERROR_STATE,
              "the stop flag was set before the run began: nothing was created");
  ds_text_destroy(early);
  stop = 0;
  seen.stop_at = -1;
  check_ok(
      ds_run_train(NULL, "{\"train_batch_size\": 8}", folder, 2, batch, progress, &stop, &seen),
      "resume with another batch");
  check(seen.steps == 40, "only the missing steps are made");
  /* Proves {config.describe.refused}. */
  int32_t refused = -1;
  check_ok(ds_config_describe("{\"train_batch_size\": 3, \"zero_optimization\": {\"stag\": 1}}", 2,
                              DS_FORMAT_TEXT, &refused, &text),
           "describe");
  check(refused == 2 && strstr(text, "did you mean zero_optimization.stage?") != NULL,
        "both are told");
  ds_text_destroy(text);
  check_ok(ds_config_describe(config, 1, DS_FORMAT_JSON, &refused, &text), "describe");
  check(refused == 0 && strstr(text, "\"refusals\": []") != NULL, "a good one");
  ds_text_destroy(text);
  /* Proves {config.describe.origins}. */
  check_ok(ds_config_describe("{\"train_batch_size\": 4, \"zero_optimization\": {\"stage\": 7}}", 2,
                              DS_FORMAT_JSON, &refused, &text),
           "describe");
  check(refused == 1 && strstr(text, "\"zero_optimization.stage\": \"refused\"") != NULL &&
            strstr(text, "\"train_batch_size\": \"config\"") != NULL &&
            strstr(text, "\"train_micro_batch_size_per_gpu\": \"derived\"") != NULL &&
            strstr(text, "\"gradient_clipping\": \"default\"") != NULL,
        "each value has its origin");
  ds_text_destroy(text);
  check_error(ds_config_describe("{", 1, DS_FORMAT_TEXT, NULL, &text), DS_ERROR_CONFIG, "config");
  check_error(ds_config_describe(config, 0, DS_FORMAT_TEXT, NULL, &text), DS_ERROR_INVALID_ARGUMENT,
              "size must be at least 1 rank, got 0");
  snprintf(patch, sizeof patch,
           "{\"train_batch_size\": 1, \"data\": {\"paths\": [\"%s/config.json\"]}}", folder);
  snprintf(parts, sizeof parts, "%.200s/t.tokens", folder);
  stop = 1;
  check_error(ds_run_tokenize(patch, parts, &stop, &text), DS_ERROR_USER, "a stop was requested");
  stop = 0;
  check(access(parts, F_OK) != 0, "nothing is written");
  check_ok(ds_run_tokenize(patch, parts, &stop, &text), "tokenize");
  check(strstr(text, "t.tokens: ") != NULL && strstr(text, " tokens of 1 files") != NULL,
        "the line describes it");
  ds_text_destroy(text);
  check_error(ds_run_tokenize(NULL, parts, NULL, &text), DS_ERROR_INVALID_ARGUMENT, "config");
  check_error(ds_run_tokenize(patch, NULL, NULL, &text), DS_ERROR_INVALID_ARGUMENT, "path");
  parts[0] = '\0';
  check_ok(ds_run_communicator(NULL, folder, &text), "communicator");
  check(strcmp(text, "env:shm") == 0, "of the run");
  ds_text_destroy(text);
  check_ok(ds_run_communicator("{\"communicator\": \"self\"}", folder, &text), "communicator");
  check(strcmp(text, "self") == 0, "the configuration's word counts before the run's");
  ds_text_destroy(text);
  check_ok(ds_run_communicator(NULL, "nowhere/at/all", &text), "communicator");
  check(strcmp(text, "env") == 0, "the environment's");
  ds_text_destroy(text);
  check_error(ds_run_communicator("{\"communicator\": 3}", NULL, &text), DS_ERROR_CONFIG,
              "communicator: expected a string, got 3");
  check_error(ds_run_communicator("{\"communicator\": \"\"}", NULL, &text), DS_ERROR_CONFIG,
              "communicator: must not be empty");
  check_error(ds_run_communicator(NULL, "", &text), DS_ERROR_INVALID_ARGUMENT,
              "resume must not be empty");
  check_error(ds_run_train(NULL, NULL, "", 2, NULL, NULL, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "resume must not be empty");
  check_error(ds_run_profile(NULL, NULL, "", NULL, DS_FORMAT_TEXT, &text),
              DS_ERROR_INVALID_ARGUMENT, "model must not be empty");
  check_error(ds_run_verify(NULL, folder, "{\"device\": \"\"}", DS_FORMAT_TEXT, &refused, &text),
              DS_ERROR_CONFIG, "options.device: must not be empty");
  check_error(ds_run_generate(NULL, folder, "a", "{\"device\": \"\"}", NULL, NULL, &text),
              DS_ERROR_CONFIG, "options.device: must not be empty");
  check_ok(ds_run_generate(NULL, folder, "abcdab", greedy, NULL, NULL, &text), "generate");
  check(strncmp(text, "cdabcdabcd", 10) == 0, "the pattern goes on");
  check_ok(ds_run_generate(NULL, folder, "abcdab", greedy, add_text, parts, &again),
           "generate again");
  check(strcmp(text, again) == 0 && strcmp(text, parts) == 0, "the same text, also part by part");
  ds_text_destroy(text);
  ds_text_destroy(again);
  parts[0] = '\0';
  check_error(ds_run_generate(NULL, folder, "abcdab", greedy, stop_text, parts, &text),
              DS_ERROR_USER, "a callback asked to stop after 3 tokens");
  check(text == NULL && strcmp(parts, "cda") == 0, "the text ends at once");
  /* The call is refused before anything is computed, so the callback gets no text. */
  parts[0] = '\0';
  check_error(ds_run_generate(NULL, folder, "abcdab", greedy, add_text, parts, NULL),
              DS_ERROR_INVALID_ARGUMENT, "out_text");
  check(parts[0] == '\0', "nothing was computed");
  check_error(ds_run_generate(NULL, "nowhere/at/all", "a", NULL, NULL, NULL, &text),
              DS_ERROR_NOT_FOUND, "nowhere/at/all");
  return 0;
}
