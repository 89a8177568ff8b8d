// Reads ranges of a file at the speed of its disk.
//
// Problem. A file must be read once, at the speed of its disk, while each block that has arrived is
// hashed and copied. Through the page cache, the kernel copies every byte once more, into pages
// that it must first allocate; and a caller that reads and hashes in turn leaves the disk idle half
// of the time. O_DIRECT needs whole pages, but tensors begin anywhere.
//
// Algorithm. The caller's ranges are packed into windows, each a page-aligned section of the file
// of at most one block. The next range joins a window if it begins within the window and at most
// kGap bytes after the last wanted byte; a range that does not fit continues in the next window. A
// lane (io/async_file.h) reads windows into the blocks; the caller uses the oldest window while the
// lane reads the next ones. Bytes in the last, partial page of the file are read through the cache.
// If a single window holds everything, it is also read through the cache, without a thread.
//
// Cost. Less than two more pages for each window, and at most kGap more bytes for each range.
#include "io/direct_reader.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "io/async_file.h"
#include "io/request.h"

namespace ds {
namespace {

// The largest number of unwanted bytes between two ranges of a window. Reading them costs less than
// another request.
constexpr int64_t kGap = 64 << 10;

// Bytes [base, end) of the file, in the block `data`. `base` is a page boundary. `ticket` is 0 if
// the lane reads no part of the window.
struct Window {
  int64_t base = 0, end = 0;
  std::vector<DirectReader::Range> parts;
  std::byte* data = nullptr;
  uint64_t ticket = 0;
};

}  // namespace

class DirectReader::Work {
 public:
  Work(DirectReader& reader, const Next& next) : reader_(reader), next_(next) { advance(); }

  void run(const Use& use) {
    int made = 0;
    std::optional<Window> first = plan(reader_.blocks_.block(0));
    if (!first) return;
    if (!more_) return read_alone(*first, use);
    lane_.emplace("checkpoint", DirectBlocks::kBytes, 1, nullptr);
    submit(std::move(*first));
    for (made = 1; made < DirectBlocks::kCount && more_; ++made)
      submit(*plan(reader_.blocks_.block(made)));
    while (!waiting_.empty()) {
      Window window = std::move(waiting_.front());
      waiting_.pop_front();
      if (window.ticket > 0) lane_->wait(window.ticket);
      read_tail(window);
      hand_out(window, use);
      if (more_) submit(*plan(window.data));
    }
  }

 private:
  // Advances range_ to the next range that is not empty; more_ says whether one exists.
  void advance() {
    do more_ = next_(range_);
    while (more_ && range_.bytes == 0);
  }

  // Packs as many ranges as fit into a window, and advances range_ past them.
  std::optional<Window> plan(std::byte* data) {
    if (!more_) return {};
    Window window;
    window.data = data;
    window.base = range_.begin / DirectBlocks::kPage * DirectBlocks::kPage;
    window.end = range_.begin;
    const int64_t limit = window.base + DirectBlocks::kBytes;
    while (more_ && range_.begin >= window.base && range_.begin < limit &&
           range_.begin <= window.end + kGap) {
      const int64_t n = std::min(range_.bytes, limit - range_.begin);
      window.parts.push_back({range_.begin, n, range_.tag});
      window.end = std::max(window.end, range_.begin + n);
      range_.begin += n;
      range_.bytes -= n;
      if (range_.bytes > 0) break;
      advance();
    }
    return window;
  }

  // Returns the end of the part of a window that the lane reads. With O_DIRECT the end is a page
  // boundary, and at most the end of the last full page of the file.
  int64_t direct_end(const Window& window) const {
    if (!reader_.direct_.open()) return window.end;
    const int64_t whole = reader_.size_ / DirectBlocks::kPage * DirectBlocks::kPage;
    return std::max(window.base, std::min(round_up(window.end, DirectBlocks::kPage), whole));
  }

  void submit(Window window) {
    const int64_t bytes = direct_end(window) - window.base;
    if (bytes > 0) {
      IoRequest request;
      request.file = reader_.direct_.open() ? &reader_.direct_ : &reader_.cached_;
      request.offset = window.base;
      request.data = window.data;
      request.bytes = static_cast<size_t>(bytes);
      request.label = "checkpoint";
      window.ticket = lane_->submit(std::move(request));
    }
    waiting_.push_back(std::move(window));
  }

  // Reads the rest of a window, which is in the file's last page, through the cache.
  void read_tail(const Window& window) {
    const int64_t from = direct_end(window);
    if (from < window.end)
      reader_.cached_.read(window.data + (from - window.base),
                           static_cast<size_t>(window.end - from), from);
  }

  void read_alone(const Window& window, const Use& use) {
    reader_.cached_.read(window.data, static_cast<size_t>(window.end - window.base), window.base);
    hand_out(window, use);
  }

  static void hand_out(const Window& window, const Use& use) {
    for (const Range& part : window.parts) use(part, window.data + (part.begin - window.base));
  }

  DirectReader& reader_;
  const Next& next_;
  Range range_;
  bool more_ = false;
  std::deque<Window> waiting_;
  // The last member, so that its thread ends before the blocks are used again.
  std::optional<IoLane> lane_;
};

DirectReader::DirectReader(const std::string& path, DirectBlocks& blocks)
    : blocks_(blocks), cached_(path, File::Mode::read), size_(cached_.size()) {
  try {
    direct_ = File(path, File::Mode::read, true);
  } catch (const Error&) {
    // Some file systems, such as tmpfs in older kernels, do not support O_DIRECT.
  }
}

void DirectReader::read(const Next& next, const Use& use) { Work(*this, next).run(use); }

}  // namespace ds
