#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/blame.h"

namespace ds {

// How an agent tells the launcher of a failure: as a record within its standard error, which mpirun
// and srun carry from any host. The token is the launcher's secret, so that no output of a rank is
// taken for a record.
std::string report_record(std::string_view token, const RankFailure& failure);

// Takes records out of a stream of bytes.
class ReportReader {
 public:
  explicit ReportReader(std::string token) : head_('\x1e' + std::move(token) + ' ') {}

  // The bytes of the stream that can be passed on now, without records; the beginning of a record
  // waits.
  std::string feed(std::string_view bytes);
  // What still waits at the end of the stream.
  std::string rest() { return std::move(waiting_); }

  const std::optional<RankFailure>& first() const { return blame_.first(); }
  // The first rank that returned kStoppedCode, of an agent whose ranks have all ended without a
  // failure.
  const std::optional<RankFailure>& stopped() const { return stopped_; }

 private:
  void take(std::string_view record);

  std::string head_, waiting_;
  Blame blame_;
  std::optional<RankFailure> stopped_;
};

}  // namespace ds
