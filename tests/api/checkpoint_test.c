#define _POSIX_C_SOURCE 200809L
/* Tests checkpoints and model folders that are complete, damaged, too many or of another kind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

static char base[512];

typedef struct lines {
  int count;
  char last[512];
} lines;

static void take_line(ds_log_level level, const char* line, void* user_data) {
  lines* seen = user_data;
  if (level < DS_LOG_LEVEL_WARNING) return;
  ++seen->count;
  snprintf(seen->last, sizeof seen->last, "%s", line);
}

/* Creates a delegate engine with parameters of these names and `numel` elements each. */
static ds_engine* engine_of(const char* const* names, int count, int64_t numel) {
  char config[512];
  ds_engine* engine = NULL;
  int32_t param = -1;
  int i;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "engine");
  for (i = 0; i < count; ++i)
    check_ok(ds_engine_param_add(engine, names[i], DS_DTYPE_NONE, &numel, 1, &param), names[i]);
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

static const char* const w_only[] = {"w"};

static void set_w(ds_engine* engine, float value) {
  float values[4];
  int i;
  for (i = 0; i < 4; ++i) values[i] = value;
  check_ok(ds_engine_write(engine, 0, "master", values, 4), "write");
}

static float get_w(ds_engine* engine) {
  float values[4];
  check_ok(ds_engine_read(engine, 0, "master", values, 4), "read");
  return values[3];
}

/* Trains one step whose gradients are 1. */
static void step(ds_engine* engine) {
  const int64_t dims[1] = {4};
  float ones[4] = {1, 1, 1, 1};
  ds_tensor* grad = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, ones, NULL, &grad), "gradient");
  check_ok(ds_grad_ready(engine, 0, grad, NULL), "gradient");
  check_ok(ds_backward(engine), "backward");
  check_ok(ds_step(engine), "step");
  ds_tensor_destroy(grad);
}

/* Writes the path of the newest checkpoint below `folder` to `path`. */
static void newest(const char* folder, char* path, size_t path_size) {
  char *text = NULL, *begin, *end;
  check_ok(ds_checkpoint_info(folder, &text), "info");
  begin = strstr(text, "\"path\": \"");
  check(begin != NULL, "its path");
  begin += strlen("\"path\": \"");
  end = strchr(begin, '"');
  snprintf(path, path_size, "%.*s", (int)(end - begin), begin);
  ds_text_destroy(text);
}

/* Flips the last bit of a file, which is part of a tensor. */
static void flip_last_bit(const char* folder, const char* name) {
  char path[1024];
  int byte;
  FILE* file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "r+b");
  check(file != NULL && fseek(file, -1, SEEK_END) == 0, path);
  byte = fgetc(file);
  check(fseek(file, -1, SEEK_END) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0,
        "a bit");
}

/* Proves {checkpoint.save.complete}, {checkpoint.save.keep} and {checkpoint.load.client}: a saved
 * checkpoint is loaded completely, with its hashes and client text, and at most two checkpoints
 * remain. */
static void complete(const char* folder) {
  ds_engine* engine = engine_of(w_only, 1, 4);
  char first[600], second[600], third[600], *text = NULL;
  set_w(engine, 1);
  step(engine);
  check_error(ds_checkpoint_save(engine, "", NULL), DS_ERROR_INVALID_ARGUMENT,
              "folder must not be empty");
  check_ok(ds_checkpoint_save(engine, folder, NULL), "save without options");
  newest(folder, first, sizeof first);
  check_ok(ds_checkpoint_load(engine, folder, NULL, &text), "load");
  check(strcmp(text, "null") == 0, "no client state");
  ds_text_destroy(text);
  step(engine);
  check_ok(ds_checkpoint_save(engine, folder, "{\"client_state\": [1, {\"a\": \"b\"}]}"),
           "save a second one");
  newest(folder, second, sizeof second);
  check_ok(ds_checkpoint_load(engine, folder, NULL, &text), "load");
  check(strcmp(text, "[1, {\"a\": \"b\"}]") == 0, "the client's state");
  ds_text_destroy(text);
  check(access(first, F_OK) == 0, "keep 0 leaves all");
  step(engine);
  check_ok(ds_checkpoint_save(engine, folder, "{\"keep\": 2}"), "save a third one");
  newest(folder, third, sizeof third);
  check(strcmp(first, second) != 0 && strcmp(second, third) != 0, "three checkpoints");
  check(access(first, F_OK) != 0 && access(second, F_OK) == 0 && access(third, F_OK) == 0,
        "two are left");
  ds_engine_destroy(engine);
}

/* Saves on a separate thread while training continues. */
static void started(const char* folder) {
  ds_engine* engine = engine_of(w_only, 1, 4);
  check_ok(ds_checkpoint_wait(engine), "nothing to wait for");
  set_w(engine, 7);
  check_ok(ds_checkpoint_save(engine, folder, "{\"async\": true, \"tag\": \"thread\"}"), "start");
  set_w(engine, 8);
  check_ok(ds_checkpoint_wait(engine), "wait");
  check_ok(ds_checkpoint_load(engine, folder, "{\"tag\": \"thread\"}", NULL), "load");
  check(get_w(engine) == 7, "the values of then");
  check_ok(ds_checkpoint_save(engine, folder, "{\"async\": true}"),
           "start one that nobody waits for");
  ds_engine_destroy(engine);
}

/* Converts a checkpoint into a model folder and into DeepSpeed's layout, and back. */
static void converted(const char* folder) {
  char model[700], universal[700], back[700], path[600], *text = NULL;
  snprintf(model, sizeof model, "%s_model", folder);
  snprintf(universal, sizeof universal, "%s_universal", folder);
  snprintf(back, sizeof back, "%s_back", folder);
  check_ok(ds_checkpoint_convert(folder, model, "{\"to\": \"fp32\"}", NULL), "to f32");
  check_ok(ds_checkpoint_convert(folder, universal, "{\"to\": \"universal\"}", &text),
           "to universal");
  check(strstr(text, "\"form\": \"libds\"") && strstr(text, "\"tensors\": 1"), text);
  ds_text_destroy(text);
  check_ok(ds_checkpoint_convert(universal, back, NULL, &text), "back");
  check(strstr(text, "\"form\": \"universal\"") != NULL, text);
  ds_text_destroy(text);
  newest(back, path, sizeof path);
  check_error(ds_checkpoint_convert(folder, back, "{\"to\": \"bf16\"}", &text), DS_ERROR_CONFIG,
              "options.to");
  check(text == NULL, "no report of a refusal");
  check_error(ds_checkpoint_convert(NULL, back, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "from must not be NULL");
  check_error(ds_checkpoint_convert(folder, model, "{\"to\": \"fp32\"}", NULL),
              DS_ERROR_INVALID_ARGUMENT, "empty");
}

/* Proves {checkpoint.load.damaged}, {checkpoint.load.refused}, {checkpoint.load.corrupt} and
 * {checkpoint.info.corrupt}; also {runtime.log}: the warning goes to stderr unless a callback
 * receives the log lines. */
static void damaged(const char* folder) {
  ds_engine* engine = engine_of(w_only, 1, 4);
  char path[600], name[700], text[512] = "", *info = NULL;
  lines seen = {0, ""};
  int saved = dup(STDERR_FILENO);
  FILE* file;
  double steps = 0, expected;
  set_w(engine, 5);
  check_ok(ds_engine_get(engine, "step", &expected), "step");
  newest(folder, path, sizeof path);
  flip_last_bit(path, "master.safetensors");
  check_ok(ds_log_set_fn(take_line, &seen), "take the lines");
  snprintf(name, sizeof name, "%s/master.safetensors", path);
  check_error(ds_checkpoint_load(engine, path, NULL, NULL), DS_ERROR_CORRUPT, name);
  check(strstr(ds_last_error_message(), "'w'") != NULL, "the tensor is named");
  check_ok(ds_engine_get(engine, "step", &steps), "step");
  check(get_w(engine) == 5 && steps == expected, "a refused load changes nothing");
  step(engine);
  check_error(ds_checkpoint_info(path, &info), DS_ERROR_CORRUPT, name);
  check(strstr(ds_last_error_message(), "'w'") != NULL && info == NULL, "the tensor that differs");
  check_ok(ds_checkpoint_load(engine, folder, NULL, NULL), "the one before");
  check(seen.count == 1 && strstr(seen.last, path) && strstr(seen.last, "skipped"),
        "with a warning");
  check_ok(ds_engine_get(engine, "step", &steps), "step");
  check(steps == 2, "the second of three");
  check_ok(ds_log_set_fn(NULL, NULL), "nobody takes them");
  snprintf(name, sizeof name, "%s/stderr", base);
  check(freopen(name, "w", stderr) != NULL, "a file for stderr");
  check_ok(ds_checkpoint_load(engine, folder, NULL, NULL), "again");
  fflush(stderr);
  dup2(saved, STDERR_FILENO);
  file = fopen(name, "r");
  check(file && fread(text, 1, sizeof text - 1, file) > 0, "lines on stderr");
  fclose(file);
  check(seen.count == 1 && strstr(text, "libds: warning: ") && strstr(text, path),
        "the warning is there");
  ds_engine_destroy(engine);
}

/* Proves {checkpoint.load.none}. */
static void none(void) {
  ds_engine* engine = engine_of(w_only, 1, 4);
  char path[600];
  set_w(engine, 7);
  check_error(ds_checkpoint_load(engine, base, NULL, NULL), DS_ERROR_NOT_FOUND, base);
  snprintf(path, sizeof path, "%s/nowhere", base);
  check_error(ds_checkpoint_load(engine, path, NULL, NULL), DS_ERROR_NOT_FOUND, path);
  check(get_w(engine) == 7, "nothing has changed");
  ds_engine_destroy(engine);
}

/* Proves {checkpoint.load.frozen}: an engine that never froze a parameter adopts the frozen set of
 * the checkpoint. Another engine keeps its frozen set and logs this. */
static void frozen(void) {
  static const char* const two[] = {"w", "v"};
  ds_engine *saved = engine_of(two, 2, 4), *loaded = engine_of(two, 2, 4);
  lines seen = {0, ""};
  int32_t param = 0;
  float before;
  char folder[600];
  snprintf(folder, sizeof folder, "%s/frozen", base);
  check_ok(ds_engine_freeze(saved, &param, 1, 1), "freeze");
  check_ok(ds_checkpoint_save(saved, folder, NULL), "save");
  check_ok(ds_log_set_fn(take_line, &seen), "take the lines");
  check_ok(ds_checkpoint_load(loaded, folder, NULL, NULL), "load");
  before = get_w(loaded);
  check_ok(ds_backward(loaded), "backward");
  check_ok(ds_step(loaded), "step");
  check(get_w(loaded) == before && seen.count == 0, "the parameter is frozen");
  check_ok(ds_engine_freeze(loaded, &param, 1, 0), "train it");
  check_ok(ds_checkpoint_load(loaded, folder, NULL, NULL), "load again");
  check(seen.count == 1 && strstr(seen.last, "frozen"), "a warning");
  before = get_w(loaded);
  step(loaded);
  check(get_w(loaded) != before, "this engine's own setting stands");
  check_ok(ds_log_set_fn(NULL, NULL), "reset");
  ds_engine_destroy(saved);
  ds_engine_destroy(loaded);
}

/* Proves {checkpoint.load_model}, {checkpoint.load_model.none}, {checkpoint.load_model.config}
 * and {checkpoint.load_model.corrupt}. */
static void model(void) {
  static const char *const both[] = {"w", "v"}, *const other[] = {"v"};
  ds_engine *engine = engine_of(w_only, 1, 4), *more = engine_of(both, 2, 4),
            *less = engine_of(other, 1, 4), *longer = engine_of(w_only, 1, 5);
  char folder[600], file[700];
  float moments[4], same[4];
  double steps = 0;
  snprintf(folder, sizeof folder, "%s/model", base);
  snprintf(file, sizeof file, "%s/model.safetensors", folder);
  check_error(ds_checkpoint_load_model(engine, folder), DS_ERROR_NOT_FOUND, folder);
  set_w(engine, 2);
  check_error(ds_checkpoint_save_model(engine, folder, ""), DS_ERROR_INVALID_ARGUMENT,
              "like must not be empty");
  check_ok(ds_checkpoint_save_model(engine, folder, NULL), "save the model");
  step(engine);
  check(get_w(engine) != 2, "a step");
  check_ok(ds_engine_read(engine, 0, "exp_avg", moments, 4), "moments");
  check_ok(ds_checkpoint_load_model(engine, folder), "load the model");
  check(get_w(engine) == 2, "its weights");
  check_ok(ds_engine_read(engine, 0, "exp_avg", same, 4), "moments");
  check_ok(ds_engine_get(engine, "step", &steps), "step");
  check(memcmp(moments, same, sizeof same) == 0 && moments[0] != 0 && steps == 1,
        "they and the step stay");
  check_error(ds_checkpoint_load_model(more, folder), DS_ERROR_CONFIG, "'v'");
  check_error(ds_checkpoint_load_model(less, folder), DS_ERROR_CONFIG, "");
  check_error(ds_checkpoint_load_model(longer, folder), DS_ERROR_CONFIG, "'w'");
  check(truncate(file, 70) == 0, "cut short");
  check_error(ds_checkpoint_load_model(engine, folder), DS_ERROR_CORRUPT, file);
  ds_engine_destroy(engine);
  ds_engine_destroy(more);
  ds_engine_destroy(less);
  ds_engine_destroy(longer);
}

int main(int argc, char** argv) {
  char folder[600], command[600];
  snprintf(base, sizeof base, "%s/checkpoint_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(base) != NULL, "a folder");
  none();
  snprintf(folder, sizeof folder, "%s/run", base);
  complete(folder);
  converted(folder);
  damaged(folder);
  snprintf(folder, sizeof folder, "%s/thread", base);
  started(folder);
  frozen();
  model();
  snprintf(command, sizeof command, "rm -rf '%s'", base);
  check(system(command) == 0, "clean up");
  return 0;
}
