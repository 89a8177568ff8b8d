#pragma once

namespace ds {

// The style sheet and the script of report.html.
extern const char* const report_style;
extern const char* const report_script;

}  // namespace ds
