#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "diagnostics/compare.h"
#include "diagnostics/golden.h"
#include "diagnostics/verify_request.h"

namespace ds {

struct VerifyReport {
  // A line about the verified setting: ranks, stage, tier and, if it is not the CPU, device.
  std::string title;
  std::vector<Finding> findings;
  // Returns the number of findings beyond their tolerance.
  int failed() const;
  // Returns the number of places that were not compared.
  int refused() const;
  std::string text() const;
  Json json() const;
};

// Computes the numbers that `golden` records, and compares them. Collective: all ranks must pass
// equal arguments, and get equal reports. In adamw, sgd and bf16, every rank trains on the same
// batch. In accum and bf16_accum, leaf l of a step has micro-batch l modulo their number, and a
// step has so many leaves that each micro-batch occurs equally often. Throws DS_ERROR_NOT_FOUND if
// a requested kind is not recorded. NaN in a run fails its kind. A text that libds cannot continue
// (DS_ERROR_UNSUPPORTED) is listed in the report or, if kinds were requested, is an error.
VerifyReport verify(const VerifySubject& subject, const Golden& golden,
                    const VerifyRequest& options, Communicator& comm);

// Verifies the model in a Hugging Face folder with the numbers that are recorded there.
VerifyReport verify_folder(const std::string& folder, const VerifyRequest& options,
                           Communicator& comm);

}  // namespace ds
