#include "comm/build_name.h"

#include <fmt/core.h>

#include <cstring>
#include <string_view>

#include "comm/intent.h"
#include "core/base/version.h"

namespace ds {

BuildName BuildName::own() {
  BuildName name;
  put_text(name.text, sizeof name.text, library_build());
  return name;
}

// The text of another rank may lack the terminating zero.
std::string builds_differ(int rank, const BuildName& mine, int other, const BuildName& theirs) {
  std::string_view ours(mine.text, strnlen(mine.text, sizeof mine.text));
  std::string_view others(theirs.text, strnlen(theirs.text, sizeof theirs.text));
  if (ours == others) return "";
  return fmt::format(
      "rank {} runs libds {}, rank {} runs libds {}: all ranks must run the same build", rank, ours,
      other, others);
}

}  // namespace ds
