#pragma once
#include <map>
#include <optional>
#include <string>

namespace ds {

// The exit code of a rank that was asked to end, has saved, and can continue when it is started
// again: EX_TEMPFAIL of sysexits.h. It is not a failure if the launcher has forwarded a stop to the
// ranks, or if the other ranks end with this code or with 0 within JobOptions::doubt_ms; the job
// then ends with this code, too. A rank that ends with it while others continue has failed, and the
// job ends with kLeftAloneCode.
inline constexpr int kStoppedCode = 75, kLeftAloneCode = 1;
// The exit code of a rank whose configuration was refused, so that a restart would not help:
// EX_CONFIG of sysexits.h.
inline constexpr int kRefusedCode = 78;

// The failure of a rank, as it is reported.
struct RankFailure {
  int rank = -1;
  // The exit code, or 128 + the signal's number; 0: no rank has failed.
  int code = 0;
  bool by_signal = false;
  // The message, for example "rank 1 exited with code 7".
  std::string text;
  // The rank whose loss caused this failure, according to the ranks' reports (cause_of()); -1: no
  // other rank caused it.
  int because_of = -1;
  // Returns whether the rank was stopped, which is not a failure.
  bool stopped() const { return code == kStoppedCode && text.empty(); }
};

// Returns the message for a rank that ended with kStoppedCode while others continued; `on` is " on
// host 'NAME'" or "".
std::string left_alone(int rank, const std::string& on);

// Returns the rank whose end made `rank` fail, or -1 if no other rank did. `lost` maps a rank to
// the rank that it reported as lost. A rank that loses another rank ends the group and is then lost
// to the remaining ranks, so these reports form chains; the last rank of a chain is the cause. If a
// chain is a cycle, returns the last rank before it closes.
int cause_of(const std::map<int, int>& lost, int rank);

// The failures of a job, and the choice of the failure to name. A rank that fails makes the others
// fail, often before it has ended itself, so the earliest failure need not be the cause. Failures
// are preferred in this order: death by a signal other than SIGTERM; an exit; the exit of a rank
// that had lost another rank; death by SIGTERM, which Slurm sends to every process of a job that
// has failed. Among equal failures the earliest is chosen, with one exception: if two ranks had
// lost another rank and the loss of the second made the first fail, the second is chosen.
class Blame {
 public:
  // Adds a failure and returns whether it is now the failure to name.
  bool add(const RankFailure& failure);
  const std::optional<RankFailure>& first() const { return first_; }

 private:
  std::optional<RankFailure> first_;
  // Maps a failed rank to RankFailure::because_of.
  std::map<int, int> lost_;
};

}  // namespace ds
