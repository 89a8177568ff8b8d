#pragma once
#include <optional>
#include <string>

namespace ds {

// The exit code of a rank that was asked to end, has saved, and goes on when it is started again: EX_TEMPFAIL
// of sysexits.h. It is no failure where the launcher has passed a stop on, or where the others end with it or
// with 0 within the grace time; such a job ends with it, too. A rank that ends with it while others go on has
// failed.
inline constexpr int kStoppedCode = 75, kLeftAloneCode = 1;

// What is said of a rank that failed.
struct RankFailure {
  int rank = -1;
  int code = 0;  // 0: none has failed
  bool by_signal = false;
  std::string text;     // "rank 1 exited with code 7"
  int because_of = -1;  // the rank whose end or standstill it named before; -1: its failure is its own
  bool stopped() const { return code == kStoppedCode && text.empty(); }  // no failure
};

// Of a rank that ended with kStoppedCode while others went on; `on`: " on host 'NAME'" or "".
std::string left_alone(int rank, const std::string& on);

// Which of the failures of a job to name. A rank that failed makes the others fail, often before it has ended
// itself: so the earliest is not the first. A signal counts most, then an exit, then the exit of a rank that
// had lost another; SIGTERM counts least, since Slurm sends it to every process of a job that has failed.
// Among equals the earliest.
class Blame {
 public:
  // Whether it is the one to name now.
  bool add(const RankFailure& failure);
  const std::optional<RankFailure>& first() const { return first_; }

 private:
  std::optional<RankFailure> first_;
};

}  // namespace ds
