#pragma once
#include <string>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "run/train_options.h"

namespace ds {

// The url of the group that a run joins, before there is one: key `communicator` of config, else of
// the run that `resume` names, where this host sees its folder, else "env". DS_ERROR_CONFIG when it
// is no text.
std::string run_communicator(const Json& config, const std::string& resume);

// Trains as config says: data, model, run folder, evaluation, checkpoints, sample, report.
// Collective: every rank passes an equal document and equal options but for the callbacks. Only
// rank 0 writes outside of checkpoints. However the run ends without an error (all steps done, stop
// flag, callback), a checkpoint of the last step is complete on disk; the same when
// run.max_skipped_steps in a row are skipped for NaN or infinity, which ends with DS_ERROR_NUMERIC
// after the report. Where all steps are done and the held-out loss is not below each of run.bars,
// the complete run ends with DS_ERROR_CONFIG that names loss and bar; with DS_ERROR_NUMERIC when
// that loss is not finite. A new run that fails before its first step leaves nothing. With `resume`
// config is laid over the run's own by merge_patch (more steps, another stage; not other data);
// null: nothing changes. A run without any checkpoint begins at step 0. Without `resume`, key
// run.resume has the same effect for a run in run.dir that was begun with the same text there.
RunReport train(const Json& config, Communicator& comm, const TrainOptions& options);

}  // namespace ds
