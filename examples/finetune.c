/* Fine-tunes a model on a text in memory: opens a model folder or a GGUF file, adds a low-rank
 * adapter (LoRA), trains it, and generates before and after. The run folder gets the adapter as
 * PEFT saves it, in RUN/model. Usage: finetune MODEL RUN */
#include <ds.h>
#include <stdio.h>

static const char* config =
    "{\"model\": {\"folder\": \"%s\"}, \"run\": {\"dir\": \"%s\", \"sequence\": 16, \"steps\": 40},"
    " \"adapter\": {\"r\": 8, \"lora_alpha\": 16, \"target_modules\": \"all-linear\"},"
    " \"data\": {\"text\": \"%s\", \"heldout\": 0}, \"train_micro_batch_size_per_gpu\": 2,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}";

static const char* text =
    "The tide comes in, the tide goes out. The boats rise with the water and wait. The tide comes "
    "in, the tide goes out. The bell on the pier counts the waves, and nobody else does.";

typedef struct losses {
  double first, last;
} losses;

/* Called after each step. Another status than DS_OK would stop the run. */
static ds_status show(const ds_run_progress* now, void* user_data) {
  losses* seen = user_data;
  if (now->step == 1) seen->first = now->loss;
  seen->last = now->loss;
  if (now->step % 10 == 0) printf("step %d loss %.2f\n", (int)now->step, now->loss);
  return DS_OK;
}

static ds_status say(const char* when, const char* model) {
  char* words = NULL;
  ds_status status = ds_run_generate(NULL, model, "The tide",
                                     "{\"tokens\": 12, \"temperature\": 0}", NULL, NULL, &words);
  if (!status) printf("%s: %s\n", when, words);
  ds_text_destroy(words);
  return status;
}

int main(int argc, char** argv) {
  char filled[4096];
  losses seen = {0, 0};
  if (argc != 3) return fprintf(stderr, "usage: finetune MODEL RUN\n"), 2;
  if (snprintf(filled, sizeof filled, config, argv[1], argv[2], text) >= (int)sizeof filled)
    return 2;
  ds_status status = say("before", argv[1]);
  if (!status) status = ds_run_train(NULL, filled, NULL, 2, NULL, show, NULL, &seen);
  if (!status) status = say("after", argv[2]);
  if (status) fprintf(stderr, "%s: %s\n", ds_status_name(status), ds_last_error_message());
  return status || seen.last >= seen.first;
}
