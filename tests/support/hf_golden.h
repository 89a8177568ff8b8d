#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/interpret.h"

namespace ds::test {

// Reads all tensors of a safetensors file.
std::map<std::string, Tensor> read_tensors(const std::string& path);

// A folder with a Hugging Face model and reference results that make.py recorded: inputs and
// results of one batch in golden.safetensors, losses and tolerances in golden.json.
struct HfGolden {
  explicit HfGolden(const std::string& folder);

  int64_t rows() const { return inputs.at("input_ids").numel(); }
  int64_t seq() const { return inputs.at("input_ids").dims().at(1); }
  // Returns the values of the batch for the model's input of this name.
  Tensor input(const HfModel& model, const std::string& name) const;
  // Builds the model for this batch, with its bound and sequence length.
  HfModel build() const;
  // Sets inputs and parameters of `run`, an interpreter of the model's graph in any element type.
  void fill(Interpreter& run, const HfModel& model) const;

  std::string folder;
  Json numbers;
  // All tensors of golden.safetensors.
  std::map<std::string, Tensor> inputs;
  // The tensors of model.safetensors.
  std::map<std::string, Tensor> weights;
};

// Returns the names of folders in tests/data/models, without variants such as llama_dynamic.
std::vector<std::string> golden_models();
std::string golden_path(const std::string& name);

// Returns the largest |a - b|, over the elements for which keep(e) is true if `keep` is given.
double largest_distance(const Tensor& a, const Tensor& b,
                        const std::function<bool(int64_t)>& keep = {});

}  // namespace ds::test
