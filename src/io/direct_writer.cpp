// Writes a file of tensors at the speed of its disk.
//
// Problem. Writing through the page cache copies every byte once more and then waits for the kernel
// to write it back, at about half the speed of the disk. O_DIRECT needs whole pages at page
// boundaries, but the tensors of a safetensors file begin anywhere, and neighboring elements may
// belong to another rank.
//
// Algorithm. Contiguous writes are collected in blocks that begin at page boundaries of the file.
// The full pages of a block are written with O_DIRECT. A page that a block covers only in part, at
// either end of a contiguous run, is written through the cache. The two paths never write to the
// same page, so neither waits for the other. Full blocks are handed to a thread: of the
// DirectBlocks::kCount blocks, the caller fills one while the thread writes the others. If no block
// becomes full, no thread starts.
#include "io/direct_writer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/base/signals.h"
#include "io/file.h"

namespace ds {
namespace {

// Memory for the part of the file that begins at `base`, a page boundary. Bytes [first, last) of
// the memory are filled.
struct Block {
  std::byte* memory = nullptr;
  int64_t base = 0, first = 0, last = 0;
};

}  // namespace

class DirectWriter::Work {
 public:
  Work(const std::string& path, DirectBlocks& blocks)
      : blocks_(blocks), cached_(path, File::Mode::write) {
    try {
      direct_.emplace(path, File::Mode::write, true);
    } catch (const Error&) {
      // Some file systems, such as tmpfs in older kernels, do not support O_DIRECT.
      direct_.reset();
    }
  }

  // Drops the blocks that wait in the queue: without finish(), the save has failed anyway.
  ~Work() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void write(const std::byte* data, int64_t bytes, int64_t offset) {
    while (bytes > 0) {
      if (now_ && offset != now_->base + now_->last) hand_over(false);
      if (!now_) begin(offset);
      const int64_t n = std::min(bytes, DirectBlocks::kBytes - now_->last);
      std::memcpy(now_->memory + now_->last, data, static_cast<size_t>(n));
      now_->last += n;
      data += n, offset += n, bytes -= n;
      if (now_->last == DirectBlocks::kBytes) hand_over(true);
    }
  }

  void finish() {
    if (now_) hand_over(false);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (queue_.empty() && !busy_) || error_; });
    if (error_) std::rethrow_exception(error_);
    cached_.sync();
  }

 private:
  // Makes an unused block current. If necessary, waits until the thread has written one.
  void begin(int64_t offset) {
    Block block;
    std::unique_lock lock(mutex_);
    if (spare_.empty() && made_ < DirectBlocks::kCount) {
      block.memory = blocks_.block(made_++);
    } else {
      changed_.wait(lock, [&] { return !spare_.empty() || error_; });
      if (error_) std::rethrow_exception(error_);
      block = std::move(spare_.back());
      spare_.pop_back();
    }
    block.base = offset / DirectBlocks::kPage * DirectBlocks::kPage;
    block.first = block.last = offset - block.base;
    now_.emplace(std::move(block));
  }

  // Hands the current block to the thread. Without a thread, starts one if the block is full, or
  // else writes the block here.
  void hand_over(bool full) {
    Block block = std::move(*now_);
    now_.reset();
    if (full && !thread_.joinable()) {
      SignalsBlocked blocked(SignalsBlocked::Which::all);
      thread_ = std::thread([this] { run(); });
    }
    if (!thread_.joinable()) {
      put(block);
      spare_.push_back(std::move(block));
      return;
    }
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    queue_.push_back(std::move(block));
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty() || ends_; });
      if (queue_.empty()) return;
      Block block = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr error;
      try {
        put(block);
      } catch (...) {
        // A later call of begin(), hand_over() or finish() throws the error.
        error = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      if (error) error_ = error;
      spare_.push_back(std::move(block));
      changed_.notify_all();
    }
  }

  // Writes one block: its partial pages through the cache, the full pages between them directly.
  void put(const Block& block) {
    const std::byte* at = block.memory;
    int64_t low = round_up(block.first, DirectBlocks::kPage),
            high = block.last / DirectBlocks::kPage * DirectBlocks::kPage;
    if (!direct_ || low >= high) low = high = block.last;
    auto part = [&](File& file, int64_t from, int64_t to) {
      if (from < to) file.write(at + from, static_cast<size_t>(to - from), block.base + from);
    };
    part(cached_, block.first, low);
    if (low < high) part(*direct_, low, high);
    part(cached_, high, block.last);
  }

  DirectBlocks& blocks_;
  File cached_;
  std::optional<File> direct_;
  // The block that the caller is filling.
  std::optional<Block> now_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> queue_;
  std::vector<Block> spare_;
  int made_ = 0;
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

DirectWriter::DirectWriter(const std::string& path, DirectBlocks& blocks)
    : work_(std::make_unique<Work>(path, blocks)) {}
DirectWriter::~DirectWriter() = default;

void DirectWriter::write(const void* data, size_t bytes, int64_t offset) {
  work_->write(static_cast<const std::byte*>(data), static_cast<int64_t>(bytes), offset);
}

void DirectWriter::finish() { work_->finish(); }

}  // namespace ds
