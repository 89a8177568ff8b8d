#pragma once
#include <vector>

#include "comm/communicator.h"
#include "core/base/trace.h"
#include "monitor/run_record.h"

namespace ds {

// Returns the spans of all ranks, on every rank and in rank order. Collective.
RankSpans gather_spans(Communicator& comm, const std::vector<Trace::Span>& mine);

}  // namespace ds
