/* Trains a perceptron from plain C at every ZeRO stage on two ranks: the loss falls, with the same
 * bits at every stage, in whole calls and in pieces. Proves {engine.pieces}. */
#include <string.h>

#include "support.h"

enum { RANKS = 2, MICROS = 2, STEPS = 30, WEIGHTS = MLP_HIDDEN * MLP_IN };

typedef struct outcome {
  double losses[RANKS][STEPS];
  float weights[RANKS][WEIGHTS];
  int stage;
  int pieces;
} outcome;

static double one_step(ds_engine* engine, int rank, int pieces) {
  mlp_batch batch;
  double loss = 0, sum = 0;
  int m;
  if (!pieces) {
    make_batch(&batch, rank, 0, MICROS);
    check_ok(ds_train_batch(engine, batch_inputs(&batch), 2, NULL, &loss), "train_batch");
    free_batch(&batch);
    return loss;
  }
  for (m = 0; m < MICROS; ++m) {
    make_batch(&batch, rank, m, 1);
    check_ok(ds_forward(engine, batch_inputs(&batch), 2, NULL, &loss), "forward");
    check(loss >= 0, "loss of a micro-step");
    sum += loss;
    check_ok(ds_backward(engine), "backward");
    free_batch(&batch);
  }
  check_ok(ds_step(engine), "step");
  check_ok(ds_engine_get(engine, "loss", &loss), "loss of the step");
  check(sum > 0, "micro-step losses");
  return loss;
}

static void train(int rank, ds_comm* comm, void* data) {
  outcome* out = data;
  char config[512];
  ds_engine* engine;
  double step = 0, lr = 0;
  int32_t weight = -1;
  int s;
  mlp_config(config, sizeof config, out->stage, MICROS, RANKS);
  engine = mlp_engine(comm, config);
  for (s = 0; s < STEPS; ++s) out->losses[rank][s] = one_step(engine, rank, out->pieces);
  check_ok(ds_engine_get(engine, "step", &step), "step");
  check_ok(ds_engine_get(engine, "lr", &lr), "lr");
  check(step == STEPS && lr == 0.01, "steps and learning rate");
  check_ok(ds_engine_param_find(engine, "fc1.weight", &weight), "find");
  check_ok(ds_engine_read(engine, weight, "master", out->weights[rank], WEIGHTS), "read");
  ds_engine_destroy(engine);
}

static outcome results[5];

int main(void) {
  int stage, s;
  for (stage = 0; stage < 5; ++stage) {
    char name[32] = "api_train_0";
    outcome* out = &results[stage];
    name[strlen(name) - 1] = (char)('0' + stage);
    /* The last run is stage 3 in pieces. */
    out->stage = stage % 4 + (stage == 4 ? 3 : 0);
    out->pieces = stage == 4;
    run_ranks(name, RANKS, train, out);
    check(out->losses[0][STEPS - 1] < 0.5 * out->losses[0][0], "the loss falls to half");
    for (s = 0; s < STEPS; ++s)
      check(out->losses[0][s] == out->losses[1][s], "one loss on all ranks");
    check(memcmp(out->weights[0], out->weights[1], sizeof out->weights[0]) == 0,
          "one weight on all ranks");
    check(memcmp(out->losses, results[0].losses, sizeof out->losses) == 0,
          "losses have stage 0's bits");
    check(memcmp(out->weights, results[0].weights, sizeof out->weights) == 0,
          "weights have stage 0's bits");
  }
  return 0;
}
