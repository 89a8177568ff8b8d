#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/blame.h"

namespace ds {

// Returns a failure as a record. An agent writes it to its standard error, which mpirun, srun and
// ssh forward from any host to the launcher. The token is a secret of the launcher, so the output
// of a rank cannot be taken for a record.
std::string report_record(std::string_view token, const RankFailure& failure);

// A reader that extracts records from a stream of bytes.
class ReportReader {
 public:
  explicit ReportReader(std::string token) : head_('\x1e' + std::move(token) + ' ') {}

  // Adds bytes of the stream and returns those that can be forwarded now, without records. Bytes
  // that may be the beginning of a record are kept back.
  std::string feed(std::string_view bytes);
  // Returns the bytes that are still kept back at the end of the stream.
  std::string rest() { return std::move(waiting_); }

  // Returns the failure to name among those that were reported.
  const std::optional<RankFailure>& first() const { return blame_.first(); }
  // Returns the first rank that returned kStoppedCode, as reported by an agent whose ranks have all
  // ended without a failure.
  const std::optional<RankFailure>& stopped() const { return stopped_; }

 private:
  void take(std::string_view record);

  std::string head_, waiting_;
  Blame blame_;
  std::optional<RankFailure> stopped_;
};

}  // namespace ds
