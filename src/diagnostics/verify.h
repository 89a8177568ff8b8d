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
  std::string title;  // what ran: family, ranks, stage, tier
  std::vector<Finding> findings;
  int failed() const;   // findings beyond their tolerance
  int refused() const;  // places that were not compared
  std::string text() const;
  Json json() const;
};

// Computes what `golden` records and compares. Collective: all ranks pass equal arguments and get
// equal reports. With W ranks every rank takes the batch of adamw, sgd and bf16; leaf l of a step
// of accum and bf16_accum takes micro-batch l mod their number, in as many leaves as make all of
// them count alike. A kind that is asked for and not recorded is DS_ERROR_NOT_FOUND. NaN in a run
// fails its kind. A text that libds cannot continue (DS_ERROR_UNSUPPORTED) is named in the report,
// and an error when "greedy" was asked for.
VerifyReport verify(const VerifySubject& subject, const Golden& golden,
                    const VerifyRequest& options, Communicator& comm);

// The model and the numbers of a Hugging Face folder.
VerifyReport verify_folder(const std::string& folder, const VerifyRequest& options,
                           Communicator& comm);

}  // namespace ds
