#pragma once
#include <string>

#include "monitor/record.h"

namespace ds {

// One HTML document with everything inside (style, charts as SVG, a short script for values under the
// pointer): loss with held-out text and baselines, throughput, learning rate, gradient norm, memory per tier
// against plan, communication and its log, time per queue and its overlap, configuration. Parts without data
// are left out. Readable without the script.
std::string report_html(const RunSummary& summary);

// Writes report_html / the Chrome trace of the spans (core/base/trace.h). Throw DS_ERROR_IO.
void write_report(const std::string& path, const RunSummary& summary);
void write_trace(const std::string& path, const RankSpans& spans);

}  // namespace ds
