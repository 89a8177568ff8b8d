/* Creates, uses and destroys handles 10,000 times, every tenth time also a plan and an engine: the
 * process must not grow or leave descriptors open. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { CYCLES = 10000, WARM = 1000 };

/* Returns the process's anonymous pages (those without a file) in KiB. */
static long anonymous(void) {
  char line[256];
  long kib = -1;
  FILE* file = fopen("/proc/self/status", "r");
  check(file != NULL, "/proc/self/status");
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "RssAnon: %ld kB", &kib) == 1) break;
  }
  fclose(file);
  check(kib >= 0, "RssAnon");
  return kib;
}

static int descriptors(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  check(folder != NULL, "/proc/self/fd");
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

static void cycle(const char* config, int with_engine) {
  const int64_t dims[2] = {6, 4};
  ds_comm* comm = NULL;
  ds_tensor* tensor = NULL;
  ds_graph* graph = mlp_graph();
  ds_plan* plan = NULL;
  ds_engine* engine = NULL;
  char* text = NULL;
  float one = 1, sum = 0;
  check_ok(ds_comm_create("self", NULL, &comm), "comm");
  check_ok(ds_comm_all_reduce(comm, &one, 1, DS_DTYPE_F32, &sum), "sum");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &tensor), "tensor");
  check_ok(ds_graph_print(graph, &text), "text");
  ds_text_destroy(text);
  if (with_engine) {
    mlp_batch batch;
    double loss = 0;
    make_batch(&batch, 0, 0, 1);
    check_ok(ds_plan_create(config, graph, 0, 1, &plan), "plan");
    check_ok(ds_engine_create(comm, config, graph, NULL, &engine), "engine");
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "a step");
    check_error(ds_backward(engine), DS_ERROR_STATE, "ds_backward must follow");
    free_batch(&batch);
  }
  ds_comm_destroy(comm);
  ds_tensor_destroy(tensor);
  ds_graph_destroy(graph);
  ds_plan_destroy(plan);
  ds_engine_destroy(engine);
}

int main(void) {
  char config[512];
  int n, before = 0;
  long kib = 0;
  mlp_config(config, sizeof config, 3, 1, 1);
  for (n = 0; n < CYCLES + WARM; ++n) {
    if (n == WARM) {
      kib = anonymous();
      before = descriptors();
    }
    cycle(config, n % 10 == 0);
  }
  check(descriptors() == before, "descriptors stay open");
#ifndef DS_SANITIZED /* a sanitizer keeps freed memory */
  if (anonymous() > kib + 1024)
    fprintf(stderr, "%ld KiB at first, %ld at the end\n", kib, anonymous());
  check(anonymous() <= kib + 1024, "the process grows");
#endif
  return 0;
}
