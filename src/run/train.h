#pragma once
#include <string>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "run/train_options.h"

namespace ds {

// Trains as config says: data, model, run folder, evaluation, checkpoints, sample, report.
// Collective: every rank passes an equal document and equal options, except for the callbacks. Only
// rank 0 writes files other than checkpoints, weights and flight records.
//
// If the run ends without an error (all steps made, stop flag, callback), a checkpoint of the last
// step is complete on disk. This also holds if run.max_skipped_steps consecutive steps are skipped
// because of NaN or infinity; the run then ends with DS_ERROR_NUMERIC after writing the report. If
// all steps are made, but the held-out loss is not finite, the complete run ends with
// DS_ERROR_NUMERIC; if the loss is not below each of run.bars, it ends with DS_ERROR_CONFIG naming
// loss and bar. A new run that fails before its first step leaves no files.
//
// With `resume`, config is applied to the run's own document by merge_patch() (more steps, another
// stage, but not other data); null changes nothing. A run without a checkpoint begins at step 0.
// Without `resume`, the key run.resume has the same effect if run.dir holds a run that was begun
// with the same value of run.resume.
RunReport train(const Json& config, Communicator& comm, const TrainOptions& options);

}  // namespace ds
