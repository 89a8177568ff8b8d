/* Tests statuses, messages, texts, options and NULL arguments. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Proves {strings.owned} and {runtime.text_destroy}: two texts exist at the same time, and each is
 * freed. */
static void texts(void) {
  char *text = NULL, *json = NULL;
  check_ok(ds_env_report(DS_FORMAT_TEXT, &text), "report");
  check(strstr(text, "kernels") && strstr(text, "linear"), "kernels are listed");
  check_ok(ds_env_report(DS_FORMAT_JSON, &json), "report as JSON");
  check(json[0] == '{' && strstr(json, "\"instruction_sets\": ") && strstr(json, "\"linear\": "),
        "its members");
  check(text != json, "each call has a text of its own");
  ds_text_destroy(text);
  check(strstr(json, "\"linear\": ") != NULL, "freeing one leaves the other");
  check_error(ds_env_report((ds_format)2, &text), DS_ERROR_INVALID_ARGUMENT,
              "format must be text (0) or JSON (1), got 2");
  check(text == NULL, "no text after an error");
  check_error(ds_env_report(DS_FORMAT_TEXT, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out_text must not be NULL");
  ds_text_destroy(json);
  ds_text_destroy(NULL);
}

static void option_structs(void) {
  struct newer {
    ds_comm_options options;
    int64_t unknown;
  } newer;
  ds_comm_options options;
  ds_comm* comm = NULL;
  memset(&newer, 0xff, sizeof newer);
  check_ok(ds_comm_options_init(&newer.options, sizeof newer), "a newer struct");
  check(newer.options.struct_size == sizeof newer && newer.unknown == 0, "unknown fields become 0");
  check(newer.options.size == 1 && newer.options.join_ms == 60000, "defaults");
  check_ok(ds_comm_create("self", &newer.options, &comm), "newer options");
  ds_comm_destroy(comm);
  newer.unknown = 1;
  check_error(ds_comm_create("self", &newer.options, &comm), DS_ERROR_UNSUPPORTED, "newer struct");
  memset(&options, 0, sizeof options);
  check_error(ds_comm_create("self", &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "struct_size must be at least");
  /* An older program passes a smaller struct: the missing options have their defaults. */
  options.struct_size = offsetof(ds_comm_options, timeout_ms);
  options.size = 1;
  options.timeout_ms = -1;
  check_ok(ds_comm_create("self", &options, &comm), "older options");
  ds_comm_destroy(comm);
  /* This size ends inside a member. */
  options.struct_size = offsetof(ds_comm_options, timeout_ms) + 3;
  check_error(ds_comm_create("self", &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "options.struct_size must be a multiple of 8");
  options.struct_size = sizeof options;
  check_error(ds_comm_create("self", &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "options.timeout_ms must be positive");
  options.timeout_ms = 1;
  options.rank = 3;
  check_error(ds_comm_create("self", &options, &comm), DS_ERROR_INVALID_ARGUMENT,
              "options.rank must be 0 to 0, got 3");
  check_error(ds_comm_create("carrier-pigeon://x", NULL, &comm), DS_ERROR_INVALID_ARGUMENT,
              "carrier-pigeon");
}

/* Proves {status.returned}, {ownership.null}, {comm.rank} and {comm.size}: without a handle, a call
 * that returns a status reports that, and other calls return the value that ds.h names. */
static void nulls(void) {
  ds_comm* comm = NULL;
  ds_graph* graph = NULL;
  ds_plan* plan = NULL;
  ds_engine* engine = NULL;
  ds_tensor* tensor = NULL;
  int32_t number = 0;
  double loss = 0;
  float value = 0;
  char* text = NULL;
  check_error(ds_comm_create(NULL, NULL, &comm), DS_ERROR_INVALID_ARGUMENT, "url must not be NULL");
  check_error(ds_comm_create("self", NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out must not be NULL");
  check_error(ds_comm_barrier(NULL), DS_ERROR_INVALID_ARGUMENT, "comm must not be NULL");
  check_error(ds_comm_all_gather(NULL, &value, 4, &value), DS_ERROR_INVALID_ARGUMENT,
              "comm must not be NULL");
  check_error(ds_graph_create(NULL, 1, &graph), DS_ERROR_INVALID_ARGUMENT, "name must not be NULL");
  check_error(ds_graph_output(NULL, "loss", 0), DS_ERROR_INVALID_ARGUMENT,
              "graph must not be NULL");
  check_error(ds_graph_parse(NULL, &graph), DS_ERROR_INVALID_ARGUMENT, "text must not be NULL");
  check_error(ds_plan_create(NULL, NULL, 0, 1, &plan), DS_ERROR_INVALID_ARGUMENT,
              "config must not be NULL");
  check_error(ds_plan_print(NULL, &text), DS_ERROR_INVALID_ARGUMENT, "plan must not be NULL");
  check_error(ds_engine_create(NULL, NULL, NULL, NULL, &engine), DS_ERROR_INVALID_ARGUMENT,
              "config must not be NULL");
  check_error(ds_engine_create(NULL, "{}", NULL, NULL, NULL), DS_ERROR_INVALID_ARGUMENT,
              "out must not be NULL");
  check_error(ds_train_batch(NULL, NULL, 0, NULL, &loss), DS_ERROR_INVALID_ARGUMENT,
              "engine must not be NULL");
  check_error(ds_backward(NULL), DS_ERROR_INVALID_ARGUMENT, "engine must not be NULL");
  check_error(ds_engine_param_find(NULL, "w", &number), DS_ERROR_INVALID_ARGUMENT,
              "engine must not be NULL");
  check_error(ds_engine_read(NULL, 0, "master", &value, 1), DS_ERROR_INVALID_ARGUMENT,
              "engine must not");
  check_error(ds_checkpoint_save(NULL, "x", NULL), DS_ERROR_INVALID_ARGUMENT,
              "engine must not be NULL");
  check_error(ds_checkpoint_info(NULL, &text), DS_ERROR_INVALID_ARGUMENT, "path must not be NULL");
  check_error(ds_tensor_create(DS_DTYPE_F32, NULL, 2, NULL, NULL, NULL, &tensor),
              DS_ERROR_INVALID_ARGUMENT, "dims must not be NULL");
  check_error(ds_tensor_copy(NULL, NULL, NULL), DS_ERROR_INVALID_ARGUMENT, "to must not be NULL");
  check_error(ds_tensor_from_dlpack(NULL, NULL, NULL, &tensor), DS_ERROR_INVALID_ARGUMENT,
              "exactly one of managed and versioned must be given, got none");
  check(!comm && !graph && !plan && !engine && !tensor, "nothing was made");
  check(ds_comm_rank(NULL) == -1 && ds_comm_size(NULL) == -1 && ds_engine_param_count(NULL) == -1,
        "-1 for NULL");
  check(ds_engine_state_name(NULL, 0) == NULL, "NULL for NULL");
  ds_last_error_details(NULL, NULL, NULL);
  ds_comm_destroy(NULL);
  ds_work_destroy(NULL);
  ds_text_destroy(NULL);
  ds_graph_destroy(NULL);
  ds_plan_destroy(NULL);
  ds_engine_destroy(NULL);
  ds_tensor_destroy(NULL);
}

typedef struct lines {
  pthread_t thread;
  int count;
  char last[256];
} lines;

static void take_line(ds_log_level level, const char* line, void* user_data) {
  lines* seen = user_data;
  check(level >= DS_LOG_LEVEL_DEBUG && level <= DS_LOG_LEVEL_ERROR, "a level");
  check(pthread_equal(seen->thread, pthread_self()), "on the thread inside the call");
  ++seen->count;
  snprintf(seen->last, sizeof seen->last, "%s", line);
}

/* Proves {runtime.log} and {threads.callbacks}; checkpoint_test.c tests the lines that are printed
 * by default. */
static void log_lines(void) {
  char config[512];
  lines seen = {pthread_self(), 0, ""};
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_log_set_fn(take_line, &seen), "set");
  ds_engine_destroy(mlp_engine(NULL, config));
  check(seen.count == 1 && strstr(seen.last, "rank 0 of 1: plan "), "the line of a new engine");
  check_ok(ds_log_set_fn(NULL, NULL), "reset");
  ds_engine_destroy(mlp_engine(NULL, config));
  check(seen.count == 1, "no line after the reset");
}

static void* other_thread(void* data) {
  check(strcmp(ds_last_error_message(), "") == 0, "no message of another thread");
  check_error(ds_comm_barrier(NULL), DS_ERROR_INVALID_ARGUMENT, "comm must not be NULL");
  (void)data;
  return NULL;
}

/* Proves {runtime.last_error}: each thread has its own message, and a call that succeeds does not
 * change it. */
static void messages_of_threads(void) {
  ds_comm_options options;
  pthread_t thread;
  check_error(ds_comm_create(NULL, NULL, NULL), DS_ERROR_INVALID_ARGUMENT, "out must not be NULL");
  check(pthread_create(&thread, NULL, other_thread, NULL) == 0, "a thread");
  pthread_join(thread, NULL);
  check_ok(ds_comm_options_init(&options, sizeof options), "a call that succeeds");
  check(strcmp(ds_last_error_message(), "out must not be NULL") == 0, "this thread's message");
}

/* Proves {runtime.version} and {runtime.status_name}. */
int main(void) {
  char version[32];
  check(strcmp(ds_last_error_message(), "") == 0, "no message before any error");
  snprintf(version, sizeof version, "%d.%d.%d", DS_VERSION_MAJOR, DS_VERSION_MINOR,
           DS_VERSION_PATCH);
  check(strcmp(ds_version(), version) == 0, "the header's version is the library's");
  check(strcmp(ds_status_name(DS_OK), "ok") == 0, "name of DS_OK");
  check(strcmp(ds_status_name(DS_ERROR_NUMERIC), "numeric") == 0, "name of DS_ERROR_NUMERIC");
  check(strcmp(ds_status_name((ds_status)99), "unknown") == 0, "name of no status");
  messages_of_threads();
  texts();
  option_structs();
  nulls();
  log_lines();
  return 0;
}
