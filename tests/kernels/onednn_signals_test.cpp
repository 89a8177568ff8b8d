// A signal that comes during a product finds the thread on its own stack: nothing of the host's heap is
// overwritten by the frame that the system writes below the stack pointer.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/onednn/adapter.h"

namespace ds::test {
namespace {

std::atomic<uintptr_t> g_stack = 0;
std::atomic<int> g_signals = 0, g_elsewhere = 0;

uintptr_t stack_pointer(const ucontext_t& context) {
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
}

void on_alarm(int, siginfo_t*, void* context) {
  constexpr uintptr_t kNear = uintptr_t{1} << 20;
  ++g_signals;
  if (g_stack - stack_pointer(*static_cast<ucontext_t*>(context)) > kNear) ++g_elsewhere;
}

// Has an alarm every 100 microseconds, taken on a stack of its own, so that a wrong frame does no harm.
class Alarms {
 public:
  Alarms() {
    stack_t own{};
    own.ss_sp = stack_.data();
    own.ss_size = stack_.size();
    sigaltstack(&own, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = on_alarm;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, &action_before_);
    const itimerval often{{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &action_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

 private:
  std::array<char, size_t{1} << 16> stack_;
  stack_t stack_before_{};
  struct sigaction action_before_ {};
};

// Rows are apart, so that oneDNN takes its general product.
MatrixShape general(bool transpose_a, bool transpose_b) {
  MatrixShape out{.m = 256, .n = 256, .k = 256};
  out.lda = out.ldb = out.ldc = 512;
  out.transpose_a = transpose_a;
  out.transpose_b = transpose_b;
  return out;
}

TEST(OnednnSignals, FindTheThreadOnItsStack) {
  const std::vector<float> zeros(size_t{256} * 512);
  std::vector<float> out(zeros.size());
  char here = 0;
  // Frames of this thread lie below.
  g_stack = reinterpret_cast<uintptr_t>(&here) + 4096;
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      const onednn::Matmul product(general(transpose_a, transpose_b));
      ASSERT_TRUE(product.implementation().starts_with("gemm")) << product.implementation();
      product.run(zeros.data(), zeros.data(), nullptr, out.data(), nullptr, 0);
      g_signals = g_elsewhere = 0;
      const Alarms alarms;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (g_signals < 200 && std::chrono::steady_clock::now() < end) {
        product.run(zeros.data(), zeros.data(), nullptr, out.data(), nullptr, 0);
      }
      EXPECT_GT(g_signals, 0) << "no signal came";
      EXPECT_EQ(g_elsewhere, 0) << "of " << g_signals << " signals";
    }
  }
}

}  // namespace
}  // namespace ds::test
