/* A model folder against its recorded numbers from C, on two ranks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static const char* model;

static void verify(int rank, ds_comm* comm, void* data) {
  char text[4096];
  size_t size = 0;
  int32_t failed = -1;
  (void)rank;
  (void)data;
  check_ok(ds_run_verify(comm, model, "{\"stage\": 3, \"kinds\": [\"logits\", \"loss\"]}", &failed, text,
                         sizeof text, &size),
           "verify");
  check(failed == 0, "the reference model passes");
  check(size == strlen(text) + 1, "size of the report");
  check(strstr(text, "passed: 2 comparisons") != NULL, "the report says so");
}

int main(int argc, char** argv) {
  char folder[4096], text[4096];
  size_t size = 0;
  int32_t failed = -1;
  check(argc == 3, "arguments: BUILD_FOLDER MODELS");
  snprintf(folder, sizeof folder, "%s/gpt2", argv[2]);
  model = folder;
  run_ranks("verify", 2, verify, NULL);
  check_ok(ds_run_verify(NULL, model, "{\"kinds\": [\"loss\"], \"format\": \"json\"}", &failed, text,
                         sizeof text, &size),
           "verify as JSON");
  check(strstr(text, "\"failed\": 0") != NULL, "JSON");
  check_error(ds_run_verify(NULL, model, "{\"kind\": []}", &failed, text, sizeof text, &size),
              DS_ERROR_CONFIG, "did you mean kinds?");
  check_error(ds_run_verify(NULL, "nowhere", NULL, &failed, text, sizeof text, &size), DS_ERROR_NOT_FOUND,
              "nowhere/golden.json");
  check_error(ds_run_verify(NULL, model, NULL, NULL, text, sizeof text, &size), DS_ERROR_INVALID_ARGUMENT,
              "out_failed");
  check_error(ds_run_verify(NULL, "nowhere", NULL, &failed, text, sizeof text, NULL),
              DS_ERROR_INVALID_ARGUMENT, "out_size");
  check_error(ds_run_verify(NULL, model, "{\"tier\": \"nvme\", \"nvme_path\": \"no/such\"}", &failed, text,
                            sizeof text, &size),
              DS_ERROR_NOT_FOUND, "no/such");
  return 0;
}
