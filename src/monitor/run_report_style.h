#pragma once

namespace ds {

// Style sheet and script of report.html.
extern const char* const report_style;
extern const char* const report_script;

}  // namespace ds
