// A delegate host that makes random calls within the rules of ds.h and knows the results that these
// calls must have.
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

// Returns the largest magnitude of gradient elements; every granule contains it.
int64_t top_of(const Config& config);

// A test case: everything that a seed decides, equal on all ranks.
struct RandomCase {
  uint64_t seed = 0;
  int world = 1;
  Config config;
  EngineOptions options;
  // Set if the host runs on the separate device.
  std::optional<Delays> separate;
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  // The type of each parameter.
  std::vector<DType> types;
  std::string text() const;
};
RandomCase random_case(uint64_t seed);

// The host of one rank. Gradients are integers, so that every sum is exact. The largest element of
// each granule equals the largest code, which makes quantized gradients exact as well. Masters and
// optimizer states follow from these sums (ExpectedState). Any difference is thrown as
// std::runtime_error.
class RandomHost {
 public:
  // folder: where checkpoints are saved; equal on all ranks.
  RandomHost(const RandomCase& c, Communicator& comm, std::string folder);
  void run();

 private:
  struct Call {
    // `view` requests memory for a gradient.
    enum class Kind { gather, release, view, grad, end };
    Kind kind = Kind::gather;
    std::vector<int32_t> params;
  };
  using Calls = std::vector<Call>;
  // The host's progress within a step.
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

  // Returns the calls of the next step: the calls of an earlier step, a prefix of them with a new
  // continuation, or only new calls.
  Calls next_calls();
  void draw_micros();
  // Tells the engine the number of micro-steps of this step, if it is time.
  void tell_micros();
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
  // Returns the parameters in a random order.
  std::vector<int32_t> order();

  void perform(const Call& call);
  void train_step();
  // Begins a step, breaks it off and lets the engine forget it.
  void drop_step();
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
  // Changes a number of one group or of all groups.
  void set_number();
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
  // Returns memory that the stream reads or writes later; used only with a stream. check_late()
  // then checks what the stream has read from leases that have ended.
  std::byte* stage(size_t bytes);
  void read_late(int32_t param);
  void check_late();
  void check_gradients(const char* when);
  void check_state();
  void check_lasting();
  void check_norm(double norm) const;
  // Return the weight of a rank's micro-step in the current step, and the sum of all weights.
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
  // Sums of the gradients of the current step.
  std::vector<std::vector<double>> sum_;
  // Whether a parameter has had a gradient in this step.
  std::vector<char> had_gradient_;
  // trained_: the parameter is or was trained, so that its optimizer states exist.
  std::vector<char> frozen_, trained_;
  // The addresses of views without a lease.
  std::vector<const void*> lasting_;
  std::vector<Lease> leases_;
  // Views that the host requested in this micro-step.
  std::vector<DelegateEngine::Seen> grad_views_;
  // Whether the host requested any view in this micro-step.
  bool viewed_ = false;
  // The stream of a device with its own memory. Some of the host's accesses to tensors run in its
  // order.
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
  // drawn_ counts the steps begun; unlike steps_, it is not reset by loads.
  int64_t steps_ = 0, call_ = 0, drawn_ = 0;
  // The number of micro-steps of the current or last step, and the one before which the engine is
  // told this number; -1: never. mean_: the divisor in micro-steps; 0: their number.
  int64_t micros_ = 1, tell_at_ = -1, mean_ = 0;
  // One in `drop_` gradients is not handed over; 0 means that all are.
  int64_t drop_ = 0;
  // Whether the accumulators hold the gradients of a step.
  bool any_gradient_ = false;
};

}  // namespace ds::test
