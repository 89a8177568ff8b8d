#ifndef DS_TESTS_API_SUPPORT_H
#define DS_TESTS_API_SUPPORT_H

#include <ds.h>

/* Ends the program with `what` and the last message of ds.h if `ok` is 0. */
void check(int ok, const char* what);
void check_ok(ds_status status, const char* what);
/* Checks that the call has returned `wanted`, with a message that contains `words`. */
void check_error(ds_status status, ds_status wanted, const char* words);

/* Runs body(rank, comm, data) on `size` threads, each a rank of the group threads://name. */
typedef void rank_fn(int rank, ds_comm* comm, void* data);
void run_ranks(const char* name, int size, rank_fn* body, void* data);
/* Returns the device under test, whose memory is not the host's: DS_TEST_DEVICE if set, or else
 * "separate". */
const char* test_device(void);
ds_comm* join_ranks(const char* name, int rank, int size);

/* A two-layer perceptron, 4 -> 8 -> 2, with a mean-square loss; inputs "x" and "y". */
enum { MLP_IN = 4, MLP_HIDDEN = 8, MLP_OUT = 2, MLP_ROWS = 6, MLP_PARAMS = 4 };
ds_graph* mlp_graph(void);
/* Writes the configuration of a ZeRO stage: `accumulation` micro-steps on `size` ranks. */
void mlp_config(char* buffer, size_t buffer_size, int stage, int accumulation, int size);
ds_engine* mlp_engine(ds_comm* comm, const char* config);

/* Inputs of one rank for `micros` micro-steps; the tensors that make_batch creates refer to memory
 * in `batch`. */
typedef struct mlp_batch {
  float x[4 * MLP_ROWS * MLP_IN];
  float y[4 * MLP_ROWS * MLP_OUT];
  ds_tensor* tensors[2];
} mlp_batch;
void make_batch(mlp_batch* batch, int rank, int first_micro, int micros);
void free_batch(mlp_batch* batch);
const ds_tensor* const* batch_inputs(const mlp_batch* batch);

#endif
