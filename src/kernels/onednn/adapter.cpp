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

// The one difference between the two interfaces that libds meets: version 3 has no operation
// descriptors.
#if DNNL_VERSION_MAJOR >= 3
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

// No signal reaches this thread while it lives, but for those of its own faults and the two by
// which the C library changes users and cancels threads.
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
  const char* name;   // as users write it
  const char* label;  // as oneDNN calls it
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

// A rows x columns matrix, stored with leading dimension `lead`, transposed or not.
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

// What one thread needs to run a primitive: memory objects whose pointers change with each run.
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
  bool signals_wait = false;
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> idle;

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

  // Where this run's scratchpad is: the caller's, or the context's own when that is too small.
  void* pad(Context& context, std::byte* scratch, size_t available) const {
    if (scratch_bytes <= available) return scratch;
    if (!context.own_scratch) {
      size_t bytes = round_up(scratch_bytes, 4096);
      context.own_scratch.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
      if (!context.own_scratch)
        raise(DS_ERROR_OUT_OF_MEMORY, "oneDNN scratchpad needs {} bytes", bytes);
    }
    return context.own_scratch.get();
  }

  void give(std::unique_ptr<Context> context) {
    std::lock_guard lock(mutex);
    idle.push_back(std::move(context));
  }
};

namespace {

// oneDNN's general product: it makes its code at its first run in the process, and packs into
// memory of its own.
bool is_gemm(const Matmul& matmul) { return matmul.implementation().starts_with("gemm"); }

// The general product of f32 points the stack pointer into its buffer on the heap where a block of
// k is deep (jit_avx_gemm_f32 and jit_avx512_common_gemm_f32 of oneDNN 2.6 to 3.8, at
// "buffer_in_ws"), so that the frame of a signal that comes meanwhile is written over what lies
// before the buffer. No other product does.
bool moves_stack(const Matmul& matmul, const MatrixShape& key) {
  return key.dtype == DS_DTYPE_F32 && is_gemm(matmul);
}

// Products on AMX: what sets up its tiles, and releases them, is made at the first run in the
// process.
bool uses_tiles(const Matmul& matmul) {
  return matmul.implementation().find("amx") != std::string::npos;
}

// Runs a small product of this form, whose rows are `lead` apart, if it is one of the `kind` that
// is meant.
constexpr int64_t kSmallSide = 64;
void run_small(MatrixShape key, int64_t lead, bool (*kind)(const Matmul&)) {
  key.m = key.n = key.k = kSmallSide;
  key.lda = key.ldb = key.ldc = lead;
  const Matmul small(key);
  if (!kind(small)) return;
  std::vector<float> zeros(static_cast<size_t>(kSmallSide * lead)), out(zeros.size());
  small.run(zeros.data(), zeros.data(), zeros.data(), out.data(), nullptr, 0);
}

void warm_gemm(const MatrixShape& key) {
  static std::once_flag warm[2];
  // Rows apart are left to the general product.
  std::call_once(warm[key.dtype == DS_DTYPE_BF16],
                 [&] { run_small(key, 2 * kSmallSide, is_gemm); });
}
void warm_tiles(const MatrixShape& key) {
  static std::once_flag warm;
  std::call_once(warm, [&] { run_small(key, kSmallSide, uses_tiles); });
}

// oneDNN's code generator does not look whether the system gave it memory for its code, and writes
// to address 0 when it did not. So the memory is asked for here first and given back at once.
void require_code_memory() {
  constexpr size_t kBytes = size_t{16}
                            << 20;  // all that one primitive, and the first general product, need
  void* room = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY,
          "oneDNN's code generator needs {} bytes, which the system refuses: {}", kBytes,
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

// Blocks of a and b, packed: [M] 2.6.3, AVX-512, bf16 and f32, m 16 to 384, n 128 to 3072, k 48 to
// 2048, within 2 % where k > 768 bytes, up to 3.5 times as much as seen elsewhere.
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
