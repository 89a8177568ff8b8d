#pragma once
#include <map>
#include <optional>
#include <string>

namespace ds {

// The exit code of a rank that was asked to end, has saved, and goes on when it is started again:
// EX_TEMPFAIL of sysexits.h. It is no failure where the launcher has passed a stop on, or where the
// others end with it or with 0 within the grace time; such a job ends with it, too. A rank that
// ends with it while others go on has failed.
inline constexpr int kStoppedCode = 75, kLeftAloneCode = 1;

// What is said of a rank that failed.
struct RankFailure {
  int rank = -1;
  int code = 0;  // 0: none has failed
  bool by_signal = false;
  std::string text;  // "rank 1 exited with code 7"
  int because_of =
      -1;  // the rank whose end or standstill it named before; -1: its failure is its own
  bool stopped() const { return code == kStoppedCode && text.empty(); }  // no failure
};

// Of a rank that ended with kStoppedCode while others went on; `on`: " on host 'NAME'" or "".
std::string left_alone(int rank, const std::string& on);

// Whose end made `rank` fail, where `lost` has for a rank the one that it named as lost: a rank
// that lost another one ends the group, and is then lost to the others. -1: nobody's. Ranks that
// named each other in a circle: the last one before it closes.
int cause_of(const std::map<int, int>& lost, int rank);

// Which of the failures of a job to name. A rank that failed makes the others fail, often before it
// has ended itself: so the earliest is not the first. A signal counts most, then an exit, then the
// exit of a rank that had lost another; SIGTERM counts least, since Slurm sends it to every process
// of a job that has failed. Among equals the earliest, but of two ranks that had lost another the
// one whose loss made the other fail.
class Blame {
 public:
  // Whether it is the one to name now.
  bool add(const RankFailure& failure);
  const std::optional<RankFailure>& first() const { return first_; }

 private:
  std::optional<RankFailure> first_;
  std::map<int, int> lost_;  // because_of, by rank
};

}  // namespace ds
