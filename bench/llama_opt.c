// Trains a GGUF model of f32 with llama.cpp's llama_opt for bench/llama_opt.py, which compiles this
// file against llama.cpp:
//   llama_opt MODEL.gguf THREADS TOKENS WORDS
// Prints "ready", then makes an AdamW step on 1 x TOKENS random tokens below WORDS for every line
// of standard input and prints its seconds. All matrices but the embedding are trained, as
// llama_opt_init does.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "ggml-opt.h"
#include "llama.h"

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void only_errors(enum ggml_log_level level, const char* text, void* unused) {
  (void)unused;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

// Returns a data set of one row of random tokens, each with the next one as its label.
static ggml_opt_dataset_t random_tokens(int64_t tokens, int64_t words) {
  ggml_opt_dataset_t set =
      ggml_opt_dataset_init(GGML_TYPE_I32, GGML_TYPE_I32, tokens, tokens, 1, 1);
  int32_t* data = ggml_opt_dataset_data(set)->data;
  int32_t* labels = ggml_opt_dataset_labels(set)->data;
  srand(1);
  for (int64_t i = 0; i < tokens; ++i) data[i] = (int32_t)(rand() % words);
  for (int64_t i = 0; i < tokens; ++i) labels[i] = data[(i + 1) % tokens];
  return set;
}

// The context has the length of the row, so that a step is one batch and gradients reach K and V.
static struct llama_context* open_context(struct llama_model* model, int threads, int64_t tokens) {
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t)tokens;
  params.n_threads = params.n_threads_batch = threads;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  return llama_init_from_model(model, params);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int64_t tokens = atoll(argv[3]), words = atoll(argv[4]);
  llama_log_set(only_errors, NULL);
  llama_backend_init();
  struct llama_model_params model_params = llama_model_default_params();
  model_params.load_mode = LLAMA_LOAD_MODE_NONE;  // the weights are written to
  struct llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return 1;
  struct llama_context* context = open_context(model, atoi(argv[2]), tokens);
  if (!context) return 1;
  struct ggml_opt_optimizer_params rates = ggml_opt_get_default_optimizer_params(NULL);
  rates.adamw.alpha = 1e-4f;
  rates.adamw.wd = 0.01f;
  struct llama_opt_params options = {0,      llama_opt_param_filter_all,
                                     NULL,   ggml_opt_get_constant_optimizer_params,
                                     &rates, GGML_OPT_OPTIMIZER_TYPE_ADAMW};
  llama_opt_init(context, model, options);
  ggml_opt_dataset_t set = random_tokens(tokens, words);
  ggml_opt_result_t result = ggml_opt_result_init();
  for (int step = -2; step < 0 || getchar() == '\n'; ++step) {
    const double begin = seconds();
    llama_opt_epoch(context, set, result, NULL, 1, NULL, NULL);
    if (step >= 0) printf("%.6f\n", seconds() - begin);
    if (step == -1) printf("ready\n");
    fflush(stdout);
  }
  double loss = 0;
  ggml_opt_result_loss(result, &loss, NULL);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("llama_opt: mean loss %.3f peakRSS %.2f GiB\n", loss, (double)usage.ru_maxrss / (1 << 20));
  return 0;
}
