#pragma once
#include <vector>

#include "comm/communicator.h"
#include "core/base/trace.h"
#include "monitor/run_record.h"

namespace ds {

// All ranks' spans on every rank, in rank order. Collective.
RankSpans gather_spans(Communicator& comm, const std::vector<Trace::Span>& mine);

}  // namespace ds
