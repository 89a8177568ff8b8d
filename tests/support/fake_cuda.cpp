#include "support/fake_cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>

namespace ds::test {
namespace {

const std::string kFolder = std::string(DS_BINARY_DIR) + "/lib/";

}  // namespace

FakeCuda* FakeCuda::find() {
  static FakeCuda* const found = []() -> FakeCuda* {
    const std::string file = kFolder + "libfake_cuda.so", blas = kFolder + "libfake_blas.so",
                      nccl = kFolder + "libfake_nccl.so", tool = kFolder + "libfake_tool.so";
    if (!std::filesystem::exists(kFolder + "libds_cuda.so") || !std::filesystem::exists(file))
      return nullptr;
    void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!object) throw std::runtime_error(dlerror());
    setenv("DS_CUDA_DRIVER", file.c_str(), 1);
    setenv("DS_CUDA_BLAS", blas.c_str(), 1);
    setenv("DS_NCCL", nccl.c_str(), 1);
    // NVTX reads this variable only once, at the process's first range.
    setenv("NVTX_INJECTION64_PATH", tool.c_str(), 1);
    setenv("DS_FAKE_CUDA_DEVICES", std::to_string(kGpus).c_str(), 1);
    void* links = dlopen(nccl.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!links) throw std::runtime_error(dlerror());
    static FakeCuda fake;
    auto look_up = [&](auto& function, const char* name) {
      void* from = std::string_view(name).starts_with("fake_nccl") ? links : object;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(from, name));
      if (!function) throw std::runtime_error(name);
    };
    look_up(fake.fail_, "fake_cuda_fail");
    look_up(fake.jitter_, "fake_cuda_jitter");
    look_up(fake.counts_, "fake_cuda_counts");
    look_up(fake.live_, "fake_cuda_live");
    look_up(fake.nccl_fail_, "fake_nccl_fail");
    look_up(fake.nccl_counts_, "fake_nccl_counts");
    look_up(fake.nccl_live_, "fake_nccl_live");
    return &fake;
  }();
  return found;
}

FakeCuda::Counts FakeCuda::counts() const {
  int64_t n[8];
  counts_(n);
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]};
}

FakeCuda::Live FakeCuda::live() const {
  Live live;
  live_(&live.bytes, &live.objects);
  live.links = nccl_live_();
  return live;
}

FakeCuda::LinkCounts FakeCuda::link_counts() const {
  int64_t counts[4];
  nccl_counts_(counts);
  return {counts[0], counts[1], counts[2], counts[3]};
}

}  // namespace ds::test
