#pragma once
#include <atomic>
#include <thread>

namespace ds {

// A record of the threads that are inside callbacks of one object: at most one thread in the
// callback that does the object's work, and one in the callback that ends the object. Functions
// that use the object check whether such a callback called them, since waiting for the object there
// would deadlock.
class CallbackThreads {
 public:
  enum Place { kWork, kEnd };

  // A guard that marks this thread as inside a callback during its lifetime.
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
