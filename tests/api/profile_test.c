/* Prints the profile of a step from C, on two ranks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static const char* model;

static void profile(int rank, ds_comm* comm, void* data) {
  char* text = NULL;
  (void)rank;
  (void)data;
  check_ok(ds_run_profile(comm, NULL, model, "{\"steps\": 1, \"sequence\": 16, \"threads\": 1}",
                          DS_FORMAT_TEXT, &text),
           "profile");
  check(strstr(text, "2 x 1 threads, 1 x 4 x 16 tokens a rank, bf16, stage 0; mean of 1 steps") !=
            NULL,
        "the title says what ran");
  check(strstr(text, "\ncomp     linear ") != NULL, "a line of linear");
  check(strstr(text, "\ncomm     all_reduce ") != NULL ||
            strstr(text, "\ncomm     reduce_scatter ") != NULL,
        "a line of collectives");
  ds_text_destroy(text);
}

/* Proves {run.profile.model}. */
int main(int argc, char** argv) {
  char folder[4096], *text = NULL;
  check(argc == 3, "arguments: BUILD_FOLDER MODELS");
  snprintf(folder, sizeof folder, "%s/gpt2", argv[2]);
  model = folder;
  run_ranks("profile", 2, profile, NULL);
  check_error(ds_run_profile(NULL, NULL, NULL, NULL, DS_FORMAT_TEXT, &text),
              DS_ERROR_INVALID_ARGUMENT, "config or model must be given");
  check_error(ds_run_profile(NULL, NULL, model, "{\"step\": 1}", DS_FORMAT_TEXT, &text),
              DS_ERROR_CONFIG, "did you mean steps?");
  check_error(ds_run_profile(NULL, NULL, "nowhere", NULL, DS_FORMAT_TEXT, NULL),
              DS_ERROR_INVALID_ARGUMENT, "out_text");
  check_error(ds_run_profile(NULL, NULL, "nowhere", NULL, DS_FORMAT_TEXT, &text),
              DS_ERROR_NOT_FOUND, "nowhere/config.json");
  return 0;
}
