#include "cuda/lane/lane.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "cuda/lane/barriers.h"
#include "cuda/lane/shim.h"

namespace lane {
namespace {

constexpr size_t kStack = 64 * 1024;
constexpr unsigned kWarp = 32;
// Words before and after shared memory. If a dropped barrier makes a kernel use NaN as an index,
// its writes end up here.
constexpr size_t kMargin = 2048;

// Entries by name, added before main by registrars in the .cu files.
std::map<std::string, Entry, std::less<>>& entries() {
  static std::map<std::string, Entry, std::less<>> all;
  return all;
}

// The barriers that launches have reached. Kernels may run on several threads.
struct Barriers {
  std::mutex mutex;
  std::set<Barrier> met;
  Barrier dropped;
};
Barriers& barriers() {
  static Barriers all;
  return all;
}

constexpr size_t kCopied = 16;
constexpr char kZeros[kCopied] = {};
struct Copy {
  void* to;
  const void* from;

  void make() const { std::memcpy(to, from, kCopied); }
};

// A fiber of one thread of a block. It starts through its context and is afterwards left and
// entered by longjmp, which needs no system call; swapcontext() would need two each time.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool begun = false, ended = false;
  // Whether the fiber waits for the block, at `file` and `line`.
  bool in_block = false;
  // Whether the fiber waits for its warp.
  bool in_warp = false;
  const char* file = nullptr;
  int line = 0;
  // The number of exchanges with the warp so far.
  unsigned meetings = 0;
  // Asynchronous copies for which the fiber has not waited yet.
  std::vector<Copy> copies;
};

// The values that the threads of a warp contribute to the current exchange and to the previous one.
struct Warp {
  Given given[2][kWarp];
  // The purpose of the exchange, which must be the same for all threads.
  const char* what = nullptr;
  unsigned arrived = 0;
};

class Block;
thread_local Block* running = nullptr;

// The threads of one block. The object is reused for each block of a grid.
class Block {
 public:
  Block(const char* name, Body body, const void* args, Dim3 extent, uint32_t shared_bytes,
        uint64_t seed)
      : name_(name),
        body_(body),
        args_(args),
        extent_(extent),
        threads_(extent.x * extent.y * extent.z),
        seed_(seed),
        shared_((shared_bytes + 15) / 16 * 2 + 2 * kMargin),
        fibers_(threads_),
        warps_((threads_ + kWarp - 1) / kWarp),
        stacks_(new char[threads_ * kStack]) {
    std::lock_guard lock(barriers().mutex);
    dropped_ = barriers().dropped;
    if (dropped_.entry != name_) dropped_ = {};
  }
  ~Block() {
    std::lock_guard lock(barriers().mutex);
    for (const auto& [file, line] : met_) barriers().met.insert({name_, file, line});
  }

  void run(Dim3 index) {
    block_index = index;
    std::memset(shared_.data(), 0xff, shared_.size() * sizeof(uint64_t));
    for (unsigned t = 0; t < threads_; ++t) {
      Fiber& fiber = fibers_[t];
      fiber.begun = fiber.ended = fiber.in_block = fiber.in_warp = false;
      fiber.meetings = 0;
      fiber.copies.clear();
      getcontext(&fiber.context);
      fiber.context.uc_stack = {stacks_.get() + t * kStack, 0, kStack};
      // A fiber ends by a jump, so it needs no successor.
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &Block::enter, 0);
    }
    for (Warp& warp : warps_) warp.arrived = 0;
    before_.resize(warps_.size());
    for (uint64_t& place : before_) place = draw();
    running = this;
    ready_.resize(threads_);
    for (unsigned t = 0; t < threads_; ++t) ready_[t] = threads_ - 1 - t;
    while (!ready_.empty() || release()) resume(take());
    running = nullptr;
    if (!error_.empty()) throw std::runtime_error(error_);
  }

  void* shared() { return shared_.data() + kMargin; }
  void meet(const char* file, int line) {
    if (dropped_.line == line && dropped_.file == file) return;
    Fiber& fiber = fibers_[current_];
    if (fiber.file != file || fiber.line != line) met_.insert({file, line});
    fiber.file = file;
    fiber.line = line;
    fiber.in_block = true;
    leave();
  }
  const Given* meet(const char* what, const Given& given) {
    const unsigned turn = give(what, given);
    return warps_[current_ / kWarp].given[turn];
  }
  uint64_t exchange(uint64_t given, int of) {
    return meet("a shuffle", Given{given})[static_cast<unsigned>(of) % kWarp].v[0];
  }
  void copy_ahead(void* to, const void* from, bool there) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % kCopied != 0 &&
        error_.empty())
      error_ = std::string(name_) + ": a copy of 16 bytes is not at multiples of 16";
    const Copy copy{to, there ? from : kZeros};
    if (draw() >> 32 & 1)
      copy.make();
    else
      fibers_[current_].copies.push_back(copy);
  }
  void await_copies() {
    std::vector<Copy>& copies = fibers_[current_].copies;
    for (const Copy& copy : copies) copy.make();
    copies.clear();
  }
  uint32_t vote(bool given) {
    const Given* const votes = meet("a ballot", Given{given});
    uint32_t all = 0;
    for (unsigned t = 0; t < kWarp; ++t) all |= static_cast<uint32_t>(votes[t].v[0] & 1) << t;
    return all;
  }

 private:
  static void enter() {
    Block& block = *running;
    block.body_(block.args_);
    Fiber& fiber = block.fibers_[block.current_];
    if (!fiber.copies.empty() && block.error_.empty())
      block.error_ = std::string(block.name_) + ": a thread ends and has not waited for its copies";
    fiber.ended = true;
    _longjmp(block.scheduler_, 1);
  }
  void leave() {
    if (_setjmp(fibers_[current_].place) == 0) _longjmp(scheduler_, 1);
  }
  void resume(unsigned t) {
    current_ = t;
    thread_index = {t % extent_.x, t / extent_.x % extent_.y, t / extent_.x / extent_.y};
    if (_setjmp(scheduler_) != 0) return;
    Fiber& fiber = fibers_[t];
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
  }
  uint64_t draw() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_;
  }
  // Returns the next ready thread. Seed 0 selects the threads in the order in which they became
  // ready. Other even seeds select any thread. Odd seeds select a thread of the first warp in an
  // order of warps that is drawn for each block, so that one warp may be an entire exchange ahead
  // of another.
  unsigned take() {
    size_t at = ready_.size() - 1;
    if (seed_ != 0 && seed_ % 2 == 0) at = draw() % ready_.size();
    if (seed_ % 2 == 1) {
      for (size_t i = 0; i < ready_.size(); ++i) {
        if (before_[ready_[i] / kWarp] < before_[ready_[at] / kWarp]) at = i;
      }
    }
    const unsigned t = ready_[at];
    ready_[at] = ready_.back();
    ready_.pop_back();
    return t;
  }
  unsigned give(const char* what, const Given& given) {
    Fiber& fiber = fibers_[current_];
    Warp& warp = warps_[current_ / kWarp];
    if (warp.arrived == 0) warp.what = what;
    if (std::strcmp(warp.what, what) != 0 && error_.empty())
      error_ =
          std::string(name_) + ": threads of a warp meet for " + warp.what + " and for " + what;
    const unsigned turn = fiber.meetings++ % 2;
    warp.given[turn][current_ % kWarp] = given;
    if (++warp.arrived == kWarp) {
      warp.arrived = 0;
      const unsigned first = current_ / kWarp * kWarp;
      for (unsigned t = first; t < first + kWarp; ++t) {
        if (t == current_) continue;
        fibers_[t].in_warp = false;
        ready_.push_back(t);
      }
      return turn;
    }
    fiber.in_warp = true;
    leave();
    return turn;
  }
  // Called when no thread is ready: lets all threads pass the barrier at which they wait. Returns
  // false if the block has ended.
  bool release() {
    const Fiber& first = fibers_[0];
    unsigned ended = 0, waiting = 0;
    for (const Fiber& fiber : fibers_) {
      ended += fiber.ended;
      waiting += fiber.in_block && fiber.file == first.file && fiber.line == first.line;
    }
    if (ended == threads_) return false;
    if (waiting != threads_) {
      if (error_.empty()) {
        error_ = std::string(name_) + ": block " + std::to_string(block_index.x) + ": of " +
                 std::to_string(threads_) + " threads " + std::to_string(ended) +
                 " have ended and " + std::to_string(waiting) + " wait where thread 0 does";
      }
      return false;
    }
    for (unsigned t = threads_; t-- > 0;) {
      fibers_[t].in_block = false;
      ready_.push_back(t);
    }
    return true;
  }

  const char* name_;
  Body body_;
  const void* args_;
  Dim3 extent_;
  unsigned threads_, current_ = 0;
  uint64_t seed_, state_ = seed_ * 0x9E3779B97F4A7C15u | 1;
  std::vector<uint64_t> shared_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  // The ready warp with the smallest of these numbers runs first.
  std::vector<uint64_t> before_;
  std::unique_ptr<char[]> stacks_;
  std::vector<unsigned> ready_;
  jmp_buf scheduler_{};
  std::set<std::pair<const char*, int>> met_;
  Barrier dropped_;
  std::string error_;
};

template <typename F>
void each_block(Dim3 grid, const F& f) {
  for (uint32_t z = 0; z < grid.z; ++z) {
    for (uint32_t y = 0; y < grid.y; ++y) {
      for (uint32_t x = 0; x < grid.x; ++x) f(Dim3{x, y, z});
    }
  }
}

Block& meeting() {
  if (!running) throw std::runtime_error("a kernel declared without meetings has one");
  return *running;
}

}  // namespace

Registrar::Registrar(const Entry& entry) { entries().emplace(entry.name, entry); }

const Entry* find(std::string_view name) {
  auto found = entries().find(name);
  return found == entries().end() ? nullptr : &found->second;
}

void* shared_memory() { return meeting().shared(); }
void meet_block(const char* file, int line) { meeting().meet(file, line); }
uint64_t exchange(uint64_t given, int of) { return meeting().exchange(given, of); }
uint32_t vote(bool given) { return meeting().vote(given); }
const Given* meet_warp(const char* what, const Given& given) { return meeting().meet(what, given); }
void copy_ahead(void* to, const void* from, bool there) { meeting().copy_ahead(to, from, there); }
void await_copies() { meeting().await_copies(); }

void run_loop(const char* name, Body body, const void* args, Dim3 grid, Dim3 block, uint64_t seed) {
  if (block.x > 256 || block.y != 1 || block.z != 1)
    throw std::runtime_error(std::string(name) + ": a block of more than 256 threads");
  block_extent = block;
  grid_extent = grid;
  each_block(grid, [&](Dim3 index) {
    block_index = index;
    for (uint32_t t = 0; t < block.x; ++t) {
      thread_index = {seed % 2 == 0 ? t : block.x - 1 - t, 0, 0};
      body(args);
    }
  });
}

void run_blocks(const char* name, Body body, const void* args, Dim3 grid, Dim3 extent,
                uint32_t shared_bytes, uint64_t seed, unsigned most_threads) {
  const unsigned threads = extent.x * extent.y * extent.z;
  if (threads > most_threads || threads % kWarp != 0)
    throw std::runtime_error(std::string(name) + ": a block of " + std::to_string(threads) +
                             " threads, must be whole warps of at most " +
                             std::to_string(most_threads));
  block_extent = extent;
  grid_extent = grid;
  Block block(name, body, args, extent, shared_bytes, seed);
  each_block(grid, [&](Dim3 index) { block.run(index); });
}

std::vector<Barrier> met_barriers() {
  std::lock_guard lock(barriers().mutex);
  return {barriers().met.begin(), barriers().met.end()};
}
void forget_barriers() {
  std::lock_guard lock(barriers().mutex);
  barriers().met.clear();
}
void drop_barrier(const Barrier& barrier) {
  std::lock_guard lock(barriers().mutex);
  barriers().dropped = barrier;
}

}  // namespace lane
