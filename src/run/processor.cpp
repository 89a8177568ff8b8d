#include "run/processor.h"

#include <sys/utsname.h>

#include "core/base/file_stream.h"

namespace ds {

// /proc/cpuinfo has one block for each core. The model name in the first block is used for all
// cores.
std::string processor_name() {
  InputFile info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "";
}

}  // namespace ds
