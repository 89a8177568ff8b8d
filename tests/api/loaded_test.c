/* A program that creates an engine, in native or delegate mode, must not load the libraries that
 * only texts or archives need. */
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { NUMEL = 64 };

static const char* const of_text[] = {"/libds_text", "/libpcre2", "/libutf8proc",
                                      "/libsentencepiece"};

/* Returns whether this process has mapped a file whose path contains `part`. */
static int is_loaded(const char* part) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  check(maps != NULL, "/proc/self/maps");
  while (fgets(line, sizeof line, maps)) found |= strstr(line, part) != NULL;
  fclose(maps);
  return found;
}

static void check_not_loaded(const char* after) {
  size_t i;
  char what[128];
  for (i = 0; i < sizeof of_text / sizeof *of_text; ++i) {
    snprintf(what, sizeof what, "%s is not loaded after %s", of_text[i], after);
    check(!is_loaded(of_text[i]), what);
  }
  snprintf(what, sizeof what, "/libz is not loaded after %s", after);
  check(!is_loaded("/libz."), what);
}

static void train(ds_comm* comm, const char* folder) {
  char config[512];
  mlp_batch batch;
  ds_engine* engine;
  double loss = 0;
  mlp_config(config, sizeof config, 2, 1, 1);
  engine = mlp_engine(comm, config);
  make_batch(&batch, 0, 0, 1);
  check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "a step");
  check_ok(ds_checkpoint_save(engine, folder, NULL), "save");
  check_ok(ds_checkpoint_wait(engine), "saved");
  check_ok(ds_checkpoint_load(engine, folder, NULL, NULL), "load");
  free_batch(&batch);
  ds_engine_destroy(engine);
}

static void delegate(ds_comm* comm) {
  const char* config =
      "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
      "{\"lr\": 0.5}}, \"zero_optimization\": {\"stage\": 3, "
      "\"stage3_param_persistence_threshold\": 0}}";
  const int64_t dims[1] = {NUMEL};
  float ones[NUMEL];
  ds_engine* engine = NULL;
  ds_tensor* grad = NULL;
  int32_t param = -1;
  int i;
  for (i = 0; i < NUMEL; ++i) ones[i] = 1.0f;
  check_ok(ds_engine_create(comm, config, NULL, NULL, &engine), "create");
  check_ok(ds_engine_param_add(engine, "w", DS_DTYPE_NONE, dims, 1, &param), "parameter");
  check_ok(ds_engine_start(engine), "start");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, ones, NULL, &grad), "gradient tensor");
  check_ok(ds_gather_params(engine, &param, 1, NULL), "gather");
  check_ok(ds_grad_ready(engine, param, grad, NULL), "gradient");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_release_params(engine, &param, 1, NULL), "release");
  check_ok(ds_step(engine), "step");
  ds_tensor_destroy(grad);
  ds_engine_destroy(engine);
}

/* Reads a text, which loads such a library; shows that is_loaded() can detect one. */
static void tokenize(const char* folder) {
  char path[512], tokens[512], config[1200], *about = NULL;
  FILE* file;
  snprintf(path, sizeof path, "%s/loaded_test.txt", folder);
  snprintf(tokens, sizeof tokens, "%s/loaded_test.tokens", folder);
  file = fopen(path, "w");
  check(file != NULL && fputs("a text", file) >= 0 && fclose(file) == 0, "a text");
  snprintf(config, sizeof config, "{\"data\": {\"paths\": \"%s\", \"tokenizer\": \"bytes\"}}",
           path);
  check_ok(ds_run_tokenize(config, tokens, NULL, &about), "tokenize");
  ds_text_destroy(about);
  check(is_loaded("/libds_text") && is_loaded("/libpcre2") && is_loaded("/libutf8proc"),
        "libds_text.so and its libraries are loaded by a text");
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  char checkpoint[512];
  ds_comm* comm = NULL;
  check_not_loaded("start");
  check_ok(ds_comm_create("self", NULL, &comm), "comm");
  snprintf(checkpoint, sizeof checkpoint, "%s/loaded_checkpoint", folder);
  train(comm, checkpoint);
  check_not_loaded("a step and a checkpoint");
  delegate(comm);
  check_not_loaded("a delegated step");
  ds_comm_destroy(comm);
  tokenize(folder);
  return 0;
}
