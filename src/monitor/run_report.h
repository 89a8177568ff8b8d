#pragma once
#include <string>

#include "monitor/run_record.h"

namespace ds {

// One HTML document with everything inside (style, charts, a short script for values under the
// pointer), which loads nothing: first what there is to know in tiles, then loss with held-out text
// and baselines, samples, throughput, learning rate, gradient norm, memory per tier against plan
// and budget, time per queue and its overlap, the timeline of one step, communication and its log,
// configuration. Each part names the steps and ranks that it covers; parts without data are left
// out. For phones and desks, light and dark; complete without the script.
std::string report_html(const RunSummary& summary);

// Writes report_html / the Chrome trace of the spans (core/base/trace.h). Throw DS_ERROR_IO.
void write_report(const std::string& path, const RunSummary& summary);
void write_trace(const std::string& path, const RankSpans& spans);

}  // namespace ds
