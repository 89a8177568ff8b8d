#pragma once
#include <string>

#include "monitor/run_record.h"

namespace ds {

// Returns a self-contained HTML document: style, charts and a short script, which shows values
// under the pointer, are included, and nothing is loaded. It begins with tiles of facts, then shows
// the loss with held-out loss and baselines, samples, throughput, learning rate, gradient norm,
// memory of each tier against plan and budget, busy and overlapped time of each queue, the timeline
// of one step, the picture of the plan, communication and its log, and the configuration. Parts
// with measurements name the steps, and most of them the ranks, that they cover; parts without data
// are left out. The document works on phones and desktops, in light and dark mode, and is complete
// without the script.
std::string report_html(const RunSummary& summary);

// These write report_html(), and the Chrome trace of the spans (core/base/trace.h), to a file. They
// throw DS_ERROR_IO.
void write_report(const std::string& path, const RunSummary& summary);
void write_trace(const std::string& path, const RankSpans& spans);

}  // namespace ds
