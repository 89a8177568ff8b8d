#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "tools/compare.h"

namespace ds {

struct VerifyRequest {
  int stage = 0;
  Tier tier = Tier::device;  // of states, and in stage 3 of parameters
  bool f32 = true, bf16 = true;
  std::vector<std::string> kinds;  // those of verify_kinds() to run; empty: all that are recorded
  std::string nvme_path = ".";     // folder of the scratch file of tier nvme
  int threads = 0;                 // compute threads a rank; 0: cores / ranks
  bool json = false;               // form of the report at the C interface
};

// {"stage", "tier": "device"|"cpu"|"nvme", "dtype": "f32"|"bf16"|"both", "kinds", "nvme_path", "threads",
// "format": "text"|"json"}; unknown
// keys and values are DS_ERROR_CONFIG.
VerifyRequest verify_request(const Json& document);

// "logits", "loss", "grad", "adamw", "accum", "sgd", "final_params", "greedy", "bf16", "bf16_accum".
const std::vector<std::string>& verify_kinds();

// What is verified: a graph of any batch shape, and its weights.
struct VerifySubject {
  std::function<HfModel(int64_t bound, int64_t seq)> build;  // with an input mask where batches hide tokens
  // Puts the weights into an engine: by load_weights, which takes a folder, or by writes. Collective.
  std::function<void(StateStore&, const std::function<void(const std::string&)>& load_weights)> load;
  std::map<std::string, std::string> stored = {};  // names of tensors in files, and the parameters they are

  // The parameter that the record calls `name`: by its own name, or by that of its tensor in the files.
  const std::string& param(const std::string& name) const;
};

struct VerifyReport {
  std::string title;  // what ran: family, ranks, stage, tier
  std::vector<Finding> findings;
  int failed() const;   // findings beyond their tolerance
  int refused() const;  // places that were not compared
  std::string text() const;
  Json json() const;
};

// Computes what `golden` records and compares. Collective: all ranks pass equal arguments and get equal
// reports. With W ranks every rank takes the batch of adamw, sgd and bf16; leaf l of a step of accum and
// bf16_accum takes micro-batch l mod their number, in as many leaves as make all of them count alike. A kind
// that is asked for and not recorded is DS_ERROR_NOT_FOUND. NaN in a run fails its kind. A text that libds
// cannot continue (DS_ERROR_UNSUPPORTED) is named in the report, and an error when "greedy" was asked for.
VerifyReport verify(const VerifySubject& subject, const Golden& golden, const VerifyRequest& options,
                    Communicator& comm);

// The model and the numbers of a Hugging Face folder.
VerifyReport verify_folder(const std::string& folder, const VerifyRequest& options, Communicator& comm);

}  // namespace ds
