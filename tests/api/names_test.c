#define _POSIX_C_SOURCE 200809L
/* Tests names of graphs, inputs and parameters. Every accepted name is kept by the text form of a
 * graph, and 64 of them by a checkpoint. Every other name is refused by the first call, and all
 * handles remain usable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

enum { TRIES = 3000, MOST = 64 };

static uint64_t state = 20261122;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

/* Draws a name from pieces that are special in some format, and from arbitrary bytes. */
static void draw_name(char* name) {
  static const char* const pieces[] = {"a",
                                       "w",
                                       "layer.3",
                                       "0",
                                       ".",
                                       "/",
                                       "\\",
                                       "'",
                                       "`",
                                       "->",
                                       ":",
                                       ",",
                                       "[",
                                       "]",
                                       "(",
                                       ")",
                                       "!",
                                       "#",
                                       "$",
                                       "&",
                                       "*",
                                       "<=",
                                       "\xc3\xa9",
                                       "\xe4\xb8\xad",
                                       "\xf0\x9f\x98\x80",
                                       "\xe2\x80\xa8",
                                       "\xc2\xa0",
                                       "\xef\xbb\xbf",
                                       "grad",
                                       "output",
                                       "__metadata__",
                                       "n<=4",
                                       "\\u0041",
                                       "\\n",
                                       "param",
                                       "=",
                                       "%",
                                       ";",
                                       "{",
                                       "}",
                                       "\"",
                                       " ",
                                       "\t",
                                       "\n",
                                       "\r",
                                       "\x01",
                                       "\x7f",
                                       "\xc2\x85",
                                       "\xff",
                                       "\xc3",
                                       "\xed\xa0\x80",
                                       "\xc0\x80"};
  enum { ALL = sizeof pieces / sizeof *pieces, HARMLESS = 35 };
  uint32_t i, parts = 1 + draw(4), bound = draw(3) ? HARMLESS : ALL;
  name[0] = '\0';
  for (i = 0; i < parts; ++i) {
    if (draw(12)) {
      strcat(name, pieces[draw(bound)]);
    } else {
      size_t end = strlen(name);
      name[end] = (char)(1 + draw(255));
      name[end + 1] = '\0';
    }
  }
}

/* Returns whether a graph with this name, an input of the same name and a parameter named after it
 * is accepted. An accepted graph must be printed and parsed again. */
static int survives_text(const char* name) {
  const int64_t dims[] = {-1, 2}, square[] = {2, 2};
  char *text = NULL, *again = NULL;
  ds_graph *graph = NULL, *parsed = NULL;
  ds_status made = ds_graph_create(name, 4, &graph), first, second;
  int32_t pair[2], loss = -1;
  char other[64];
  if (!graph) {
    check_error(made, DS_ERROR_INVALID_ARGUMENT, "graph name must ");
    check_ok(ds_graph_create("g", 4, &graph), "graph");
  }
  snprintf(other, sizeof other, "%s.2", name);
  first = ds_graph_input(graph, name, DS_DTYPE_F32, dims, 2, &pair[0]);
  second = ds_graph_param(graph, other, square, 2, "normal", 0.5, &pair[1]);
  check(first == made, "one rule for graphs and inputs");
  check(first != DS_OK || second == DS_OK, "one rule for inputs and parameters");
  if (first == DS_OK) {
    check_ok(ds_graph_op(graph, "linear", pair, 2, NULL, &pair[1]), "linear");
    check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, &loss), "loss");
    check_ok(ds_graph_output(graph, name, loss), "one rule for inputs and outputs");
    check_ok(ds_graph_print(graph, &text), "print");
    check_ok(ds_graph_parse(text, &parsed), text);
    check_ok(ds_graph_print(parsed, &again), "print again");
    check(strcmp(text, again) == 0 && strstr(text, name) != NULL, "the same text");
    ds_text_destroy(text);
    ds_text_destroy(again);
    ds_graph_destroy(parsed);
  }
  ds_graph_destroy(graph);
  return first == DS_OK;
}

static ds_engine* delegate(char names[][64], int count) {
  const int64_t dims[1] = {3};
  char config[512];
  ds_engine* engine = NULL;
  int i;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "delegate");
  for (i = 0; i < count; ++i) {
    int32_t param = -1;
    check_ok(ds_engine_param_add(engine, names[i], DS_DTYPE_NONE, dims, 1, &param), names[i]);
    check(param == i, "numbers in order");
  }
  check_ok(ds_engine_start(engine), "start");
  return engine;
}

/* Parameters with these names must be loaded again from a checkpoint and a model folder, each by
 * its name. */
static void survive_files(char names[][64], int count, const char* folder) {
  ds_engine *saved = delegate(names, count), *loaded;
  char model[600], command[700];
  int i;
  for (i = 0; i < count; ++i) {
    float values[3];
    values[0] = values[1] = values[2] = (float)i;
    check_ok(ds_engine_write(saved, i, "master", values, 3), "write");
  }
  snprintf(model, sizeof model, "%s/model", folder);
  check_ok(ds_checkpoint_save(saved, folder, NULL), "save");
  check_ok(ds_checkpoint_save_model(saved, model, NULL), "save model");
  ds_engine_destroy(saved);
  for (i = 0; i < 2; ++i) {
    int param;
    loaded = delegate(names, count);
    check_ok(i == 0 ? ds_checkpoint_load(loaded, folder, NULL, NULL)
                    : ds_checkpoint_load_model(loaded, model),
             "load");
    for (param = 0; param < count; ++param) {
      float values[3] = {-1, -1, -1};
      int32_t found = -1;
      check_ok(ds_engine_param_find(loaded, names[param], &found), names[param]);
      check_ok(ds_engine_read(loaded, found, "master", values, 3), "read");
      check(found == param && values[0] == (float)param && values[2] == (float)param, names[param]);
    }
    ds_engine_destroy(loaded);
  }
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  check(system(command) == 0, "clean up");
}

static ds_graph* one_parameter(const char* name, int32_t* x, int32_t* loss) {
  const int64_t dims[] = {-1, 2}, square[] = {2, 2};
  ds_graph* graph = NULL;
  int32_t pair[2];
  check_ok(ds_graph_create("g", MLP_ROWS, &graph), "graph");
  check_ok(ds_graph_input(graph, "x", DS_DTYPE_F32, dims, 2, x), "x");
  pair[0] = *x;
  check_ok(ds_graph_param(graph, name, square, 2, "normal", 0.5, &pair[1]), "parameter");
  check_ok(ds_graph_op(graph, "linear", pair, 2, NULL, &pair[1]), "linear");
  check_ok(ds_graph_op(graph, "mse", pair, 2, NULL, loss), "loss");
  check_ok(ds_graph_output(graph, "loss", *loss), "output");
  return graph;
}

/* Names derived from a name of maximum length are longer still, but must also survive the text
 * form. */
static void longest_name(const char* name, const char* config) {
  char* text = NULL;
  int32_t x = -1, loss = -1, grad = -1;
  ds_graph *graph = one_parameter(name, &x, &loss), *parsed = NULL;
  ds_engine* engine = NULL;
  check_ok(ds_engine_create(NULL, config, graph, NULL, &engine), "engine");
  check_ok(ds_graph_grad(graph, loss, &x, 1, &grad), "gradients");
  check_ok(ds_graph_print(graph, &text), "print");
  check_ok(ds_graph_parse(text, &parsed), "parse");
  ds_text_destroy(text);
  ds_engine_destroy(engine);
  ds_graph_destroy(parsed);
  ds_graph_destroy(graph);
}

/* Proves {names.form}. */
static void refusals(void) {
  static const char* const bad[][2] = {{"", "must not be empty"},
                                       {"a b", "not contain blanks"},
                                       {"a\nb", "not contain control characters, got 'a\\nb'"},
                                       {"a\xff", "must be UTF-8, got 'a\\xff'"},
                                       {"a\xc2\x9b", "not contain control characters"},
                                       {"100%", "any of %{}=;\""},
                                       {"__metadata__", "which safetensors files reserve"}};
  const int64_t dims[1] = {3};
  char config[512], longest[514];
  ds_engine* engine = NULL;
  ds_graph* graph = NULL;
  int32_t param = -1;
  size_t i;
  mlp_config(config, sizeof config, 0, 1, 1);
  check_ok(ds_engine_create(NULL, config, NULL, NULL, &engine), "delegate");
  memset(longest, 'x', sizeof longest);
  longest[513] = '\0';
  for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
    check_error(ds_graph_create(bad[i][0], 4, &graph), DS_ERROR_INVALID_ARGUMENT, bad[i][1]);
    check_error(ds_engine_param_add(engine, bad[i][0], DS_DTYPE_NONE, dims, 1, &param),
                DS_ERROR_INVALID_ARGUMENT, bad[i][1][0] == 'm' && i == 0 ? "empty" : bad[i][1]);
  }
  check_error(ds_graph_create(longest, 4, &graph), DS_ERROR_INVALID_ARGUMENT,
              "at most 512 bytes, got 513");
  longest[512] = '\0';
  check_ok(ds_graph_create(longest, 4, &graph), "the longest name");
  ds_graph_destroy(graph);
  longest_name(longest, config);
  check_error(ds_graph_parse("graph a\x01 n<=4\n", &graph), DS_ERROR_INVALID_ARGUMENT,
              "control characters");
  check_error(ds_graph_parse("graph g n<=4\ninput %x f32[n]\n%y{ = relu %x -> f32[n]\n", &graph),
              DS_ERROR_INVALID_ARGUMENT, "line 3: value name must not contain blanks");
  check(param == -1, "nothing was added");
  check_ok(ds_engine_param_add(engine, "fine", DS_DTYPE_NONE, dims, 1, &param),
           "the engine is usable");
  check(param == 0, "the first");
  ds_engine_destroy(engine);
}

int main(int argc, char** argv) {
  static char names[MOST][64];
  char folder[512];
  int tries, kept = 0, refused = 0, i;
  snprintf(folder, sizeof folder, "%s/names_XXXXXX", argc > 1 ? argv[1] : ".");
  check(mkdtemp(folder) != NULL, "a folder");
  refusals();
  for (tries = 0; tries < TRIES; ++tries) {
    char name[64];
    draw_name(name);
    if (!survives_text(name)) {
      ++refused;
      continue;
    }
    for (i = 0; i < kept && strcmp(names[i], name) != 0; ++i) continue;
    if (i == kept && kept < MOST) strcpy(names[kept++], name);
  }
  check(kept == MOST && refused > TRIES / 10, "both kinds of names were drawn");
  survive_files(names, kept, folder);
  return 0;
}
