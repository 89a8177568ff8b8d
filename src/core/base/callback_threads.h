#pragma once
#include <atomic>
#include <thread>

namespace ds {

// The threads that are inside callbacks of one object: one in the callback that does its work, and
// one in the callback that ends it. What uses the object asks here whether its own thread is one of
// them.
class CallbackThreads {
 public:
  enum Place { kWork, kEnd };

  // This thread is inside a callback as long as it lives.
  class Inside {
   public:
    Inside(CallbackThreads& threads, Place place) : thread_(threads.inside_[place]) {
      thread_.store(std::this_thread::get_id());
    }
    ~Inside() { thread_.store({}); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::atomic<std::thread::id>& thread_;
  };

  bool is_this_inside() const {
    const std::thread::id own = std::this_thread::get_id();
    return inside_[kWork].load() == own || inside_[kEnd].load() == own;
  }

 private:
  std::atomic<std::thread::id> inside_[2];
};

}  // namespace ds
