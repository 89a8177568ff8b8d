// Continues tokens greedily by llama.cpp's library, in f32: caches in f32, no flash attention, one
// thread. usage: llama_host MODEL.gguf ADAPTER.gguf|- COUNT ID... Prints a line for each of COUNT
// tokens: its id, and how far its logit is above the next one.
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

int fail(const char* what) {
  std::fprintf(stderr, "llama_host: %s\n", what);
  return 1;
}

// Keeps errors only.
void log(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

llama_context* new_context(llama_model* model, int positions) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(positions);
  params.n_batch = params.n_ubatch = params.n_ctx;
  params.n_seq_max = 1;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.swa_full = true;
  params.no_perf = true;
  return llama_init_from_model(model, params);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return fail("usage: llama_host MODEL.gguf ADAPTER.gguf|- COUNT ID...");
  llama_log_set(log, nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(arguments[1], llama_model_default_params());
  if (model == nullptr) return fail("the model cannot be loaded");
  const int tokens = std::atoi(arguments[3]);
  std::vector<llama_token> batch;
  for (int i = 4; i < count; ++i) batch.push_back(std::atoi(arguments[i]));
  llama_context* context = new_context(model, static_cast<int>(batch.size()) + tokens);
  if (context == nullptr) return fail("the context cannot be created");
  if (std::strcmp(arguments[2], "-") != 0) {
    llama_adapter_lora* adapter = llama_adapter_lora_init(model, arguments[2]);
    float scale = 1;
    if (adapter == nullptr || llama_set_adapters_lora(context, &adapter, 1, &scale) != 0)
      return fail("the adapter cannot be loaded");
  }
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int i = 0; i < tokens; ++i) {
    if (llama_decode(context,
                     llama_batch_get_one(batch.data(), static_cast<int32_t>(batch.size()))) != 0)
      return fail("the tokens cannot be computed");
    const float* logits = llama_get_logits_ith(context, -1);
    const float* best = std::max_element(logits, logits + vocabulary);
    float next = -1e30f;
    for (const float* other = logits; other < logits + vocabulary; ++other)
      if (other != best) next = std::max(next, *other);
    std::printf("%d %.9g\n", static_cast<int>(best - logits), static_cast<double>(*best - next));
    batch = {static_cast<llama_token>(best - logits)};
  }
  return 0;
}
