#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// libds_cuda.so in this process, over the software driver of tests/cuda/fake.
class FakeCuda {
 public:
  // Returns null if this tree was built without the plugin. The first call sets the paths of the
  // fake driver and its companion libraries, and installs an NVTX tool that records the ranges of
  // this process.
  static FakeCuda* find();

  static constexpr int kGpus = 4;

  // See fake_cuda.h of tests/cuda/fake.
  void fail(const std::string& error) const { fail_(error.c_str()); }
  // See fake_nccl.h.
  void fail_links(const std::string& error) const { nccl_fail_(error.c_str()); }
  void jitter(int64_t us) const { jitter_(us); }
  struct Counts {
    int64_t creates = 0, launches = 0, calls = 0, captured = 0, graphs = 0, replays = 0, marks = 0,
            live_graphs = 0;
  };
  Counts counts() const;
  struct Live {
    int64_t bytes = 0, objects = 0, links = 0;
    bool operator==(const Live&) const = default;
  };
  Live live() const;
  struct LinkCounts {
    int64_t calls = 0, bytes = 0, aborts = 0, misuses = 0;
  };
  LinkCounts link_counts() const;

 private:
  void (*fail_)(const char*) = nullptr;
  void (*jitter_)(int64_t) = nullptr;
  void (*counts_)(int64_t*) = nullptr;
  void (*live_)(int64_t*, int64_t*) = nullptr;
  void (*nccl_fail_)(const char*) = nullptr;
  void (*nccl_counts_)(int64_t*) = nullptr;
  int64_t (*nccl_live_)() = nullptr;
};

}  // namespace ds::test
