#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/attrs.h"
#include "core/graph/graph.h"

namespace ds::bench {

// One kernel on operands of constant shapes, in the order of docs/reference/ops.md.
struct Job {
  // SHAPE/OP[/CASE]/DTYPE; OP/CASE for a job of document_jobs().
  std::string name;
  std::string op;
  Attrs attrs;
  std::vector<TensorType> in, out;
  // Integer operands are below this bound; 0 means the size of the vocabulary.
  int64_t ids = 0;
};

// The sizes from which the operands of a training step are made.
struct Shape {
  const char* name;
  int64_t rows, width, heads, seq, vocab;
  // The number of elements of a launch that updates parameters.
  int64_t elements;
};

// "gpt2": GPT-2 124M on 4 x 512 tokens. "main": the 7M GPT of bench_train_small on 8 x 128 tokens.
const std::vector<Shape>& shapes();

// Returns attention over one row of documents, and its gradient. Operand 1 of the first and 2 of
// the second is begin.
std::vector<Job> document_jobs(DType dtype, int64_t rows);

// Returns jobs for every op that has an optimized kernel, in bf16 and f32, except the ops that
// kernels_bench.cpp leaves out.
std::vector<Job> jobs(const Shape& shape);

}  // namespace ds::bench
