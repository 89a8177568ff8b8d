// A delegate host that does at random what ds.h allows, and knows what must come of it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "core/device/thread_queue.h"
#include "engine/delegate.h"
#include "support/dice.h"
#include "support/expected_groups.h"
#include "support/expected_state.h"

namespace ds::test {

// The largest magnitude of every granule's gradient.
int64_t top_of(const Config& config);

// Everything that a seed decides: the same on all ranks.
struct RandomCase {
  uint64_t seed = 0;
  int world = 1;
  Config config;
  EngineOptions options;
  std::optional<Delays> separate;  // of the separate device, where it is that
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  std::string text() const;
};
RandomCase random_case(uint64_t seed);

// One rank's host. Gradients are whole numbers, so that every sum is exact: in each granule of a
// parameter the largest is that of a code, which makes quantized ones exact, too. Masters and
// optimizer states follow from these sums (ExpectedState). Whatever is wrong is thrown as
// std::runtime_error.
class RandomHost {
 public:
  // folder: for checkpoints, the same on all ranks.
  RandomHost(const RandomCase& c, Communicator& comm, std::string folder);
  void run();

 private:
  struct Call {
    enum class Kind { gather, release, view, grad, end };  // view: where a gradient goes
    Kind kind = Kind::gather;
    std::vector<int32_t> params;
  };
  using Calls = std::vector<Call>;
  // Where a host is within a step.
  struct Place {
    std::vector<int> leases;
    std::vector<char> given;
    int64_t micro = 0;
  };
  struct Lease {
    const void* data = nullptr;
    std::vector<std::byte> copy;
  };
  struct Saved {
    std::string path;
    ExpectedState state;
    int64_t steps = 0;
    std::vector<ExpectedGroups::Numbers> numbers;
  };

  // The next step's calls: those of the step before, a change of them from some call on, or others.
  Calls next_calls();
  void finish(Calls& calls, Place place);
  void micro_step(Calls& calls, Place& place);
  void layers(Calls& calls, Place& place);
  void soup(Calls& calls, Place& place, int64_t length);
  void all_at_once(Calls& calls, Place& place);
  void random_call(Calls& calls, Place& place);
  void add(Calls& calls, Place& place, Call call) const;
  void view(Calls& calls, Place& place, int32_t param);
  void give(Calls& calls, Place& place, int32_t param);
  void release_some(Calls& calls, Place& place, bool all);
  Place start() const;
  Place after(const Calls& calls, size_t count) const;
  std::vector<int32_t> order();  // of parameters

  void perform(const Call& call);
  void train_step();
  void between_steps();
  void evaluate();
  void touch_state();
  void try_wrong_calls();
  void refused(const char* what, const std::string& part, const std::function<void()>& call,
               ds_status status = DS_ERROR_STATE);
  void save();
  void load();
  void freeze_some();
  void change_groups();
  void follow_groups();
  void write_some();
  void write_parts();
  void try_unrefreshed(int32_t param);
  void edit_gradient();
  std::string random_kind(int32_t param);
  std::vector<float> values_for(int32_t param, const std::string& kind) const;
  std::vector<float> gradient(int64_t micro, int rank, int32_t param) const;
  void hand_over(int32_t param);
  void check_leases(const std::vector<int32_t>& params);
  // With a stream: memory that it reads or writes later, and what it must find in leases that have
  // ended.
  std::byte* stage(size_t bytes);
  void read_late(int32_t param);
  void check_late();
  void check_gradients(const char* when);
  void check_state();
  void check_norm(double norm) const;
  // What a micro-step of a rank counts for in the step that was begun last, and all of them
  // together.
  double weight(int64_t micro, int rank) const;
  double weights() const;
  std::vector<float> read(int32_t param, const std::string& kind);
  double rounding_of_param(int32_t param, Bounded master, bool gathered) const;
  [[noreturn]] void fail(const std::string& what) const;

  const RandomCase& case_;
  Communicator& comm_;
  std::string folder_;
  DelegateEngine engine_;
  Dice dice_;
  std::vector<int64_t> numel_;
  ExpectedState state_;
  ExpectedGroups groups_;
  std::vector<std::vector<double>> sum_;  // of the gradients of this step
  std::vector<char> frozen_, trained_;    // trained_: now or before, so that there are states
  std::vector<Lease> leases_;
  std::vector<DelegateEngine::Seen> grad_views_;  // of this micro-step
  bool viewed_ = false;                           // in this micro-step, any
  // On a device with memory of its own: the order of half of what this host does with tensors.
  StreamRef stream_;
  std::vector<std::vector<std::byte>> staged_;
  struct Late {
    const std::byte* got;
    std::vector<std::byte> want;
    std::string name;
  };
  std::vector<Late> late_;
  Place place_;
  Calls calls_, older_;
  std::vector<Saved> saved_;
  int64_t steps_ = 0, call_ = 0, drawn_ = 0;  // drawn_: steps begun, loads aside
  int64_t drop_ = 0;                          // one gradient in so many does not come; 0: all come
  bool any_gradient_ = false;                 // the accumulators have a step's gradients
};

}  // namespace ds::test
