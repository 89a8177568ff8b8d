/* Runs the audit of a step from C, on two ranks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static const char config[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3},"
    " \"model\": {\"family\": \"gpt\", \"layers\": 1, \"hidden\": 16, \"heads\": 2},"
    " \"run\": {\"sequence\": 16, \"threads\": 1}}";

static void audit(int rank, ds_comm* comm, void* data) {
  char* text = NULL;
  int32_t failed = -1;
  (void)rank;
  (void)data;
  check_ok(ds_run_audit(comm, config, "{\"steps\": 1, \"top\": 4}", DS_FORMAT_TEXT, &failed, &text),
           "audit");
  check(failed == 0, "nothing has failed");
  check(
      strstr(text, "audit of step 1: gpt, 2 x 1 threads, 1 x 1 x 16 tokens a rank of random ids") !=
          NULL,
      "the title says what ran");
  check(strstr(text, "\npassed: ") != NULL, "every rank gets the verdict");
  ds_text_destroy(text);
}

int main(void) {
  char* text = NULL;
  int32_t failed = 0;
  run_ranks("audit", 2, audit, NULL);
  check_error(ds_run_audit(NULL, NULL, NULL, DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_INVALID_ARGUMENT, "config");
  check_error(ds_run_audit(NULL, config, NULL, DS_FORMAT_TEXT, NULL, &text),
              DS_ERROR_INVALID_ARGUMENT, "out_failed");
  check_error(ds_run_audit(NULL, config, "{\"step\": 1}", DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_CONFIG, "did you mean steps?");
  check_error(ds_run_audit(NULL, "{\"run\": {\"stepz\": 1}}", NULL, DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_CONFIG, "stepz");
  check_error(ds_run_audit(NULL, config, NULL, (ds_format)2, &failed, &text),
              DS_ERROR_INVALID_ARGUMENT, "format must be text (0) or JSON (1), got 2");
  check(text == NULL, "no text");
  return 0;
}
