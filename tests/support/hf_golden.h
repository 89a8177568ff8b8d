#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/interpret.h"

namespace ds::test {

// All tensors of a safetensors file.
std::map<std::string, Tensor> read_tensors(const std::string& path);

// A folder with a Hugging Face model and what it computes, made by the reference's make.py: inputs
// and results of one batch in golden.safetensors, losses and tolerances in golden.json.
struct HfGolden {
  explicit HfGolden(const std::string& folder);

  int64_t rows() const { return inputs.at("input_ids").numel(); }
  int64_t seq() const { return inputs.at("input_ids").dims().at(1); }
  // What the model's input of this name holds for the batch.
  Tensor input(const HfModel& model, const std::string& name) const;
  // The model for this batch; bound and sequence are the batch's.
  HfModel build() const;
  // Inputs and parameters of `run`, whose graph is the model's (of any element type).
  void fill(Interpreter& run, const HfModel& model) const;

  std::string folder;
  Json numbers;
  std::map<std::string, Tensor> inputs;   // of golden.safetensors, all of it
  std::map<std::string, Tensor> weights;  // of model.safetensors
};

// Folders of tests/data/models.
std::vector<std::string> golden_models();
std::string golden_path(const std::string& name);

// Largest |a - b|, over the elements where keep(e) if given.
double largest_distance(const Tensor& a, const Tensor& b,
                        const std::function<bool(int64_t)>& keep = {});

}  // namespace ds::test
