// Everything that touches oneDNN's headers. oneDNN is an OpenMP library that cuts work by its
// number of threads, which would make bits depend on that number. So a Matmul always runs with one
// OpenMP thread, and the caller runs many of them at once.
//
// Three habits of oneDNN need care, each explained where it is handled. oneDNN generates code at a
// first run, not at creation (warm_gemm, warm_tiles). It does not check whether it got memory for
// that code (require_code_memory). And its f32 gemm moves the stack pointer into the heap
// (WithoutSignals).
#include "kernels/onednn/adapter.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "kernels/onednn/openmp.h"

namespace ds::onednn {
namespace {

#if DNNL_VERSION_MAJOR >= 3
// Describes a matmul. Versions 2 and 3 of oneDNN differ only here among the interfaces that this
// file uses: version 3 has no operation descriptors.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                      const dnnl::memory::desc& b, const dnnl::memory::desc& bias,
                                      const dnnl::memory::desc& c,
                                      const dnnl::primitive_attr& attr) {
  return {engine, a, b, bias, c, attr};
}
#else
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                      const dnnl::memory::desc& b, const dnnl::memory::desc& bias,
                                      const dnnl::memory::desc& c,
                                      const dnnl::primitive_attr& attr) {
  return {dnnl::matmul::desc(a, b, bias, c), attr, engine};
}
#endif

// A guard that blocks the signals of this thread, except those that report the thread's own faults
// and the two that the C library uses to change users and to cancel threads.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

struct IsaName {
  // The name that limit_isa() accepts.
  const char* name;
  // oneDNN's name.
  const char* label;
  dnnl::cpu_isa isa;
};
constexpr std::array kIsas{
    IsaName{"sse4", "sse41", dnnl::cpu_isa::sse41},
    IsaName{"avx", "avx", dnnl::cpu_isa::avx},
    IsaName{"avx2", "avx2", dnnl::cpu_isa::avx2},
    IsaName{"avx2_vnni", "avx2_vnni", dnnl::cpu_isa::avx2_vnni},
    IsaName{"avx512", "avx512_core", dnnl::cpu_isa::avx512_core},
    IsaName{"avx512_vnni", "avx512_core_vnni", dnnl::cpu_isa::avx512_core_vnni},
    IsaName{"avx512_bf16", "avx512_core_bf16", dnnl::cpu_isa::avx512_core_bf16},
    IsaName{"amx", "avx512_core_amx", dnnl::cpu_isa::avx512_core_amx}};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DS_DTYPE_BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Describes a rows x columns matrix that is stored with leading dimension `lead`, transposed or
// not.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t lead,
                          bool transposed) {
  dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, lead} : dnnl::memory::dims{lead, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

void check(dnnl_status_t status, const char* call) {
  ensure(status == dnnl_success, "oneDNN: {} returned status {}", call, static_cast<int>(status));
}

struct FreeDeleter {
  void operator()(std::byte* p) const { std::free(p); }
};

// The objects that one run of a primitive uses: a stream, and memory objects whose pointers are set
// for each run. Concurrent runs use different contexts.
struct Context {
  dnnl::stream stream;
  dnnl::memory a, b, bias, c, scratch;
  std::unique_ptr<std::byte, FreeDeleter> own_scratch;
};

}  // namespace

struct Matmul::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  MatrixShape key;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  size_t scratch_bytes = 0;
  // Whether signals are blocked during a run (moves_stack()).
  bool signals_wait = false;
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> idle;

  // Returns an idle context, or creates one if none is idle. So there are as many contexts as were
  // ever in use at the same time.
  std::unique_ptr<Context> take() {
    {
      std::lock_guard lock(mutex);
      if (!idle.empty()) {
        std::unique_ptr<Context> context = std::move(idle.back());
        idle.pop_back();
        return context;
      }
    }
    auto empty = [&](const dnnl::memory::desc& d) {
      return dnnl::memory(d, engine, DNNL_MEMORY_NONE);
    };
    auto context = std::make_unique<Context>();
    context->stream = dnnl::stream(engine);
    context->a = empty(description.src_desc());
    context->b = empty(description.weights_desc());
    if (key.bias) context->bias = empty(description.bias_desc());
    context->c = empty(description.dst_desc());
    context->scratch = empty(description.scratchpad_desc());
    return context;
  }

  // Returns this run's scratchpad: the caller's or, if that is too small, the context's own.
  void* pad(Context& context, std::byte* scratch, size_t available) const {
    if (scratch_bytes <= available) return scratch;
    if (!context.own_scratch) {
      size_t bytes = round_up(scratch_bytes, 4096);
      context.own_scratch.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
      if (!context.own_scratch)
        raise(DS_ERROR_OUT_OF_MEMORY,
              "oneDNN needs a scratchpad of {} bytes, which cannot be allocated", bytes);
    }
    return context.own_scratch.get();
  }

  void give(std::unique_ptr<Context> context) {
    std::lock_guard lock(mutex);
    idle.push_back(std::move(context));
  }
};

namespace {

// Returns whether oneDNN computes this product with its gemm, which generates its code at its first
// run in the process and packs into memory that it allocates.
bool is_gemm(const Matmul& matmul) { return matmul.implementation().starts_with("gemm"); }

// Returns whether this product may move the stack pointer. The f32 gemm points it into a buffer on
// the heap if a block of k is deep (jit_avx_gemm_f32 and jit_avx512_common_gemm_f32 of oneDNN 2.6
// to 3.8, at "buffer_in_ws"). The frame of a signal that arrives in the meantime would overwrite
// the memory before the buffer. Other products do not move it.
bool moves_stack(const Matmul& matmul, const MatrixShape& key) {
  return key.dtype == DS_DTYPE_F32 && is_gemm(matmul);
}

// Returns whether this product uses AMX. The code that sets up and releases the tiles is generated
// at the first run in the process.
bool uses_tiles(const Matmul& matmul) {
  return matmul.implementation().find("amx") != std::string::npos;
}

// The number of rows and columns in the matrices of run_small().
constexpr int64_t kSmallSide = 64;
// Runs a small product of the form of `key`, with rows `lead` elements apart, if kind() returns
// true for it.
void run_small(MatrixShape key, int64_t lead, bool (*kind)(const Matmul&)) {
  key.m = key.n = key.k = kSmallSide;
  key.lda = key.ldb = key.ldc = lead;
  const Matmul small(key);
  if (!kind(small)) return;
  std::vector<float> zeros(static_cast<size_t>(kSmallSide * lead)), out(zeros.size());
  small.run(zeros.data(), zeros.data(), zeros.data(), out.data(), nullptr, 0);
}

// Lets oneDNN generate the code of its gemm for the type of `key`, once per process.
void warm_gemm(const MatrixShape& key) {
  static std::once_flag warm[2];
  // oneDNN leaves matrices with gaps between their rows to its gemm, so a leading dimension of
  // twice the width selects it.
  std::call_once(warm[key.dtype == DS_DTYPE_BF16],
                 [&] { run_small(key, 2 * kSmallSide, is_gemm); });
}
// Lets oneDNN generate the code that sets up and releases AMX tiles, once per process.
void warm_tiles(const MatrixShape& key) {
  static std::once_flag warm;
  std::call_once(warm, [&] { run_small(key, kSmallSide, uses_tiles); });
}

// Throws if the system has no memory for generated code. oneDNN's code generator does not check
// whether it got memory, and writes to address 0 if it did not. So the memory is requested here
// first and freed at once, which turns a crash into an error.
void require_code_memory() {
  // This is enough for one primitive and the code of gemm.
  constexpr size_t kBytes = size_t{16} << 20;
  void* room = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY,
          "oneDNN's code generator needs {} bytes, which cannot be allocated: {}", kBytes,
          std::strerror(errno));
  }
  munmap(room, kBytes);
}

}  // namespace

Matmul::Matmul(const MatrixShape& key) : impl_(std::make_unique<Impl>()) {
  require_code_memory();
  OneThread single;
  impl_->key = key;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.store == Store::added) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  dnnl::memory::desc bias =
      key.bias ? matrix(1, key.n, key.dtype, key.n, false) : dnnl::memory::desc();
  try {
    impl_->description =
        describe(impl_->engine, matrix(key.m, key.k, key.dtype, key.lda, key.transpose_a),
                 matrix(key.k, key.n, key.dtype, key.ldb, key.transpose_b), bias,
                 matrix(key.m, key.n, key.result(), key.ldc, false), attr);
    impl_->primitive = dnnl::matmul(impl_->description);
  } catch (const dnnl::error& e) {
    raise(DS_ERROR_UNSUPPORTED, "oneDNN has no {} matmul of {} x {} x {}: {}",
          dtype_name(key.dtype), key.m, key.n, key.k, e.message);
  }
  impl_->scratch_bytes = impl_->description.scratchpad_desc().get_size();
  impl_->signals_wait = moves_stack(*this, key);
}

Matmul::~Matmul() = default;

void Matmul::reserve(int threads, size_t available) const {
  std::vector<std::unique_ptr<Context>> contexts;
  for (int t = 0; t < threads; ++t) {
    contexts.push_back(impl_->take());
    (void)impl_->pad(*contexts.back(), nullptr, available);
  }
  for (std::unique_ptr<Context>& context : contexts) impl_->give(std::move(context));
  if (is_gemm(*this)) warm_gemm(impl_->key);
  if (uses_tiles(*this)) warm_tiles(impl_->key);
}

// oneDNN's gemm packs blocks of a and b. The formula was compared with measurements of version
// 2.6.3 on AVX-512, in bf16 and f32, for m of 16 to 384, n of 128 to 3072 and k of 48 to 2048: it
// is within 2 % if a row of k has more than 768 bytes, otherwise at most 3.5 times the actual need.
int64_t Matmul::run_bytes() const {
  if (!is_gemm(*this)) return 0;
  const MatrixShape& key = impl_->key;
  int64_t unit = size_of(key.dtype), depth = std::clamp<int64_t>(key.k * unit, 256, 1536) + 8;
  return (key.m + key.n + 72) * depth + 40 * 1024;
}

size_t Matmul::scratch_bytes() const { return impl_->scratch_bytes; }

std::string Matmul::implementation() const { return impl_->description.impl_info_str(); }

void Matmul::run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch,
                 size_t available) const {
  OneThread single;
  std::unique_ptr<Context> context = impl_->take();
  void* pad = impl_->pad(*context, scratch, available);
  std::array<dnnl_exec_arg_t, 5> arguments{};
  int count = 0;
  auto bind = [&](int argument, dnnl::memory& memory, const void* data) {
    memory.set_data_handle(const_cast<void*>(data));
    arguments[static_cast<size_t>(count++)] = {argument, memory.get()};
  };
  bind(DNNL_ARG_SRC, context->a, a);
  bind(DNNL_ARG_WEIGHTS, context->b, b);
  bind(DNNL_ARG_DST, context->c, c);
  bind(DNNL_ARG_SCRATCHPAD, context->scratch, pad);
  if (impl_->key.bias) bind(DNNL_ARG_BIAS, context->bias, bias);
  std::optional<WithoutSignals> quiet;
  if (impl_->signals_wait) quiet.emplace();
  check(dnnl_primitive_execute(impl_->primitive.get(), context->stream.get(), count,
                               arguments.data()),
        "matmul execute");
  check(dnnl_stream_wait(context->stream.get()), "stream wait");
  impl_->give(std::move(context));
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }

OneThread::~OneThread() { omp_set_num_threads(before_); }

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

std::string effective_isa() {
  dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  for (const IsaName& row : kIsas) {
    if (row.isa == isa) return row.label;
  }
  return fmt::format("isa {:#x}", static_cast<unsigned>(isa));
}

std::string limit_isa(const std::string& isa) {
  for (const IsaName& row : kIsas) {
    if (isa != row.name) continue;
    if (dnnl::set_max_cpu_isa(row.isa) == dnnl::status::success) return "";
    return "oneDNN was used before its instruction set could be limited to " + isa;
  }
  return "oneDNN has no instruction set '" + isa + "'";
}

}  // namespace ds::onednn
