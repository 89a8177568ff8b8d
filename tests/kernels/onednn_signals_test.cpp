// A signal that arrives during a product must find the stack pointer on the thread's own stack.
// Otherwise the frame that Linux writes below the stack pointer would overwrite memory of the
// host's heap.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/onednn/adapter.h"

namespace ds::test {
namespace {

std::atomic<uintptr_t> g_stack = 0;
std::atomic<pid_t> g_thread = 0;
std::atomic<int> g_signals = 0, g_elsewhere = 0;
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_alarm(int, siginfo_t*, void* context) {
  if (gettid() != g_thread) return;
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto stack = static_cast<uintptr_t>(registers[REG_RSP]);
  constexpr uintptr_t kNear = uintptr_t{1} << 20;
  ++g_signals;
  if (g_stack - stack > kNear) ++g_elsewhere;
}

// Raises a signal every 100 microseconds. Its handler runs on an alternate stack, so that a
// misplaced frame does no harm.
class Alarms {
 public:
  Alarms() {
    stack_t own{};
    own.ss_sp = stack_.data();
    own.ss_size = stack_.size();
    struct sigaction action {};
    action.sa_sigaction = on_alarm;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    if (sigaltstack(&own, &stack_before_) != 0) return;
    if (sigaction(SIGALRM, &action, &action_before_) != 0) return;
    const itimerval often{{0, 100}, {0, 100}};
    set_ = setitimer(ITIMER_REAL, &often, nullptr) == 0;
  }
  ~Alarms() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &action_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

  bool set() const { return set_; }

 private:
  std::array<char, size_t{1} << 16> stack_;
  stack_t stack_before_{};
  struct sigaction action_before_ {};
  bool set_ = false;
};

struct Form {
  std::string name;
  DType dtype = DS_DTYPE_F32;
  // Distance between rows, in elements. For f32 and a distance of 512, oneDNN chooses its gemm
  // implementation.
  int64_t lead = 512;
  bool transpose_a = false, transpose_b = false;
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class OnednnSignals : public testing::TestWithParam<Form> {};

TEST_P(OnednnSignals, ArriveWhileTheThreadIsOnItsStack) {
  const Form& form = GetParam();
  MatrixShape shape{
      .m = 256, .n = 256, .k = 256, .lda = form.lead, .ldb = form.lead, .ldc = form.lead};
  shape.transpose_a = form.transpose_a;
  shape.transpose_b = form.transpose_b;
  shape.dtype = form.dtype;
  std::unique_ptr<onednn::Matmul> product;
  try {
    product = std::make_unique<onednn::Matmul>(shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_UNSUPPORTED);
    // Not every processor has instructions for bf16.
    return;
  }
  const bool general = form.dtype == DS_DTYPE_F32 && form.lead == 512;
  EXPECT_TRUE(!general || product->implementation().starts_with("gemm"))
      << product->implementation();
  const std::vector<float> zeros(size_t{256} * 512);
  std::vector<float> out(zeros.size());
  const auto run = [&] {
    product->run(zeros.data(), zeros.data(), nullptr, out.data(), nullptr, 0);
  };
  run();
  g_stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  g_thread = gettid();
  g_signals = g_elsewhere = 0;
  const Alarms alarms;
  ASSERT_TRUE(alarms.set());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (g_signals < 200 && std::chrono::steady_clock::now() < end) run();
  EXPECT_GT(g_signals, 0) << "no signal came";
  EXPECT_EQ(g_elsewhere, 0) << "of " << g_signals << " signals";
}

std::vector<Form> forms() {
  std::vector<Form> out;
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    const std::string type = dtype == DS_DTYPE_F32 ? "f32" : "bf16";
    for (int transposed = 0; transposed < 4; ++transposed) {
      const bool a = transposed & 1, b = transposed & 2;
      out.push_back({type + "_apart" + (a ? "_ta" : "") + (b ? "_tb" : ""), dtype, 512, a, b});
    }
    out.push_back({type + "_together", dtype, 256, false, false});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(On, OnednnSignals, testing::ValuesIn(forms()),
                         [](const testing::TestParamInfo<Form>& info) { return info.param.name; });

}  // namespace
}  // namespace ds::test
