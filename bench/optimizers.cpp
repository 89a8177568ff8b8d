// Measures updates of optimizers as an engine launches them, on arrays that by default no cache
// holds. Writes a line "NAME BYTES" for each form, where BYTES are moved for each parameter, then
// "ready". After that, every line of standard input is the name of a form or "triad". The answer is
// a line with the parameters that the form updates in a second or, for "triad", the bytes that a
// STREAM triad moves in a second. In this way bench/optimizers.py alternates with torch and
// DeepSpeed.
//
//   bench_optimizers [THREADS=2] [MILLIONS=32]
//
// Arrays have MILLIONS x 2^20 parameters. A negative count is in units of 2^10: with -16 the arrays
// of a form take at most 0.5 MB, so that a second-level cache holds them; this shows the kernels
// without the memory.
#include <fmt/core.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/program/state_codes.h"
#include "diagnostics/peak.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Memory with huge pages, as an engine maps its arenas.
class Array {
 public:
  Array(DType dtype, int64_t numel, double value) : bytes_(numel * size_of(dtype)) {
    void* at = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(at != MAP_FAILED, "no memory for {} bytes", bytes_);
    madvise(at, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    view_.data = at;
    view_.dtype = dtype;
    view_.rank = 1;
    view_.dims[0] = numel;
    for (int64_t i = 0; i < numel; ++i) {
      double x = value * (1 + 0.001 * static_cast<double>(i % 997));
      if (dtype == DS_DTYPE_F32) view_.as<float>()[i] = static_cast<float>(x);
      if (dtype == DS_DTYPE_BF16) view_.as<bf16>()[i] = bf16(static_cast<float>(x));
      if (dtype == DS_DTYPE_U8) view_.as<uint8_t>()[i] = static_cast<uint8_t>(100 + i % 20);
      if (dtype == DS_DTYPE_F64) view_.as<double>()[i] = x;
    }
  }
  ~Array() { munmap(view_.data, static_cast<size_t>(bytes_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  const TensorView& view() const { return view_; }

 private:
  int64_t bytes_;
  TensorView view_;
};

constexpr DType f = DS_DTYPE_F32, h = DS_DTYPE_BF16, codes = DS_DTYPE_U8;

struct Form {
  std::string name;
  // Bytes for each parameter: operands that are read and written count twice, scales of codes are
  // left out.
  int bytes;
  std::string op;
  Attrs attrs;
  DType grad, master, state, param;
  int states;
  bool own;  // the parameter is its own master
};

// For example, adamw moves 30 bytes for each parameter: 4 of the gradient, 8 each of the master and
// of both states, and 2 of the parameter, which is only written.
std::vector<Form> forms() {
  const Attrs adam{{"l2", int64_t{0}}}, drawn{{"l2", int64_t{0}}, {"stochastic", int64_t{1}}},
      sgd{{"nesterov", int64_t{0}}}, none;
  return {
      {"adamw", 30, "adamw", adam, f, f, f, h, 2, false},
      {"adamw-f32", 28, "adamw", adam, f, f, f, f, 2, true},
      {"adamw-states16", 22, "adamw", adam, f, f, h, h, 2, false},
      {"adamw-lean16", 16, "adamw", adam, f, h, h, h, 2, true},
      {"adamw-lean16-drawn", 16, "adamw", drawn, f, h, h, h, 2, true},
      {"adamw-lean16-drawn-grad16", 14, "adamw", drawn, h, h, h, h, 2, true},
      {"adamw-states8-drawn", 18, "adamw_codes", drawn, f, f, codes, h, 2, false},
      {"adamw-lean8", 12, "adamw_codes", adam, f, h, codes, h, 2, true},
      {"adamw-lean8-drawn", 12, "adamw_codes", drawn, f, h, codes, h, 2, true},
      {"adamw-lean8-drawn-grad16", 10, "adamw_codes", drawn, h, h, codes, h, 2, true},
      {"sgd", 22, "sgd", sgd, f, f, f, h, 1, false},
      {"lion", 22, "lion", none, f, f, f, h, 1, false},
      {"adagrad", 22, "adagrad", none, f, f, f, h, 1, false},
  };
}

// The operands of one form.
class Update {
 public:
  Update(const Form& form, int64_t numel, const KernelRegistry& registry)
      : form_(form), grad_(form.grad, numel, 1e-3) {
    auto add = [&](DType dtype, double value, int64_t share = 1) {
      arrays_.push_back(std::make_unique<Array>(dtype, numel / share, value));
      out_.push_back(arrays_.back()->view());
    };
    add(form.master, 0.1);
    for (int s = 0; s < form.states; ++s) {
      add(form.state, 1e-3);
      if (form.state == codes) add(codes, 1e-3, kStateBlock);
    }
    if (form.own) {
      out_.push_back(out_.front());
    } else {
      add(form.param, 0.1);
    }
    in_.push_back(grad_.view());
    std::vector<DType> in{form.grad}, out;
    for (const TensorView& view : out_) out.push_back(view.dtype);
    run_ = registry.find({form.op, in, out, form.attrs}).run;
    scalars_.group = {.lr = 1e-6,
                      .weight_decay = 0.01,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-8,
                      .momentum = 0.9};
    scalars_.updates = 10;
  }

  // Returns the seconds of one update.
  double seconds(ThreadTeam& team) {
    double begin = now();
    run_({in_, out_, form_.attrs, scalars_, 0, team});
    ++scalars_.step;
    return now() - begin;
  }

 private:
  Form form_;
  Array grad_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<TensorView> in_, out_;
  StepScalars scalars_;
  KernelFn run_ = nullptr;
};

void serve(int threads, int64_t numel) {
  const KernelRegistry registry = built_in_kernels();
  ThreadTeam team(threads);
  const std::vector<Form> all = forms();
  for (const Form& form : all) fmt::print("{} {}\n", form.name, form.bytes);
  fmt::print("ready\n");
  std::fflush(stdout);
  std::string kept;
  std::unique_ptr<Update> update;
  for (std::string name; std::getline(std::cin, name);) {
    double figure = 0;
    if (name == "triad") {
      figure = measure_peak(team).bytes;
    } else {
      for (const Form& form : all) {
        if (form.name == name && kept != name) {
          // Frees the memory before the next update takes some.
          update.reset();
          update = std::make_unique<Update>(form, numel, registry);
          // The first update touches all pages and is not timed.
          update->seconds(team);
          kept = name;
        }
      }
      require(kept == name, "no form is named '{}'", name);
      figure = static_cast<double>(numel) / update->seconds(team);
    }
    fmt::print("{:.6g}\n", figure);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  int64_t millions = argc > 2 ? std::atol(argv[2]) : 32;
  if (threads < 1 || millions == 0) {
    fmt::print(stderr,
               "usage: bench_optimizers [THREADS=2] [MILLIONS=32]; -N means N x 1024 parameters\n");
    return 2;
  }
  try {
    ds::serve(threads, millions < 0 ? -millions << 10 : millions << 20);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_optimizers: {}\n", error.what());
    return 1;
  }
  return 0;
}
