/* Verifies a model folder from C against the recorded numbers in it, on two ranks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static const char* model;

static void verify(int rank, ds_comm* comm, void* data) {
  char* text = NULL;
  int32_t failed = -1;
  (void)rank;
  (void)data;
  check_ok(ds_run_verify(comm, model, "{\"stage\": 3, \"kinds\": [\"logits\", \"loss\"]}",
                         DS_FORMAT_TEXT, &failed, &text),
           "verify");
  check(failed == 0, "the reference model passes");
  check(strstr(text, "passed: 2 comparisons") != NULL, "the report says so");
  ds_text_destroy(text);
}

int main(int argc, char** argv) {
  char folder[4096], *text = NULL;
  int32_t failed = -1;
  check(argc == 3, "arguments: BUILD_FOLDER MODELS");
  snprintf(folder, sizeof folder, "%s/gpt2", argv[2]);
  model = folder;
  run_ranks("verify", 2, verify, NULL);
  check_ok(ds_run_verify(NULL, model, "{\"kinds\": [\"loss\"]}", DS_FORMAT_JSON, &failed, &text),
           "verify as JSON");
  check(strstr(text, "\"failed\": 0") != NULL, "JSON");
  ds_text_destroy(text);
  check_error(ds_run_verify(NULL, model, "{\"kind\": []}", DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_CONFIG, "did you mean kinds?");
  check_error(ds_run_verify(NULL, "nowhere", NULL, DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_NOT_FOUND, "nowhere/golden.json");
  check_error(ds_run_verify(NULL, model, NULL, DS_FORMAT_TEXT, NULL, &text),
              DS_ERROR_INVALID_ARGUMENT, "out_failed");
  check_error(ds_run_verify(NULL, "nowhere", NULL, DS_FORMAT_TEXT, &failed, NULL),
              DS_ERROR_INVALID_ARGUMENT, "out_text");
  check_error(ds_run_verify(NULL, model, "{\"tier\": \"nvme\", \"nvme_path\": \"no/such\"}",
                            DS_FORMAT_TEXT, &failed, &text),
              DS_ERROR_NOT_FOUND, "no/such");
  return 0;
}
