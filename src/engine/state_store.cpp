// Problem: a caller names a parameter and a kind of state; the values are a part of a bucket, which
// may be cut over ranks, in a buffer of any type and tier.
// Invariant: every rank holds one contiguous part of each bucket, which includes one of the equal
// cuts of the bucket over all ranks. So one gather of these cuts reads a whole tensor of a data
// group, and a local read needs no communication. If a group of ranks holds only a slice of a
// larger tensor, one rank of each slice sends its elements to all others. A write changes masters
// first; only the program `refresh` updates compute copies from them.
#include "engine/state_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/name.h"
#include "core/base/round.h"
#include "core/device/scalars.h"
#include "core/device/view.h"
#include "core/graph/param_slice.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "core/program/signs.h"
#include "core/program/state_codes.h"
#include "optim/optimizer.h"

namespace ds {
namespace {

// Returns whether this rank has coordinate 0 on every mesh axis that is neither in `cut` nor in
// `apart`.
bool is_first(const ZeroPlan& zero, const std::vector<std::string>& cut,
              const std::vector<std::string>& apart) {
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const Mesh::Axis& axis : zero.mesh.axes()) {
    bool differs = has(apart, axis.name) || has(cut, axis.name);
    if (!differs && zero.mesh.coordinate(zero.rank, axis.name) != 0) return false;
  }
  return true;
}

// Returns the values rounded to the type `kept`, in f32.
std::vector<float> rounded(DType kept, const float* values, int64_t count) {
  std::vector<float> out(values, values + count);
  if (kept == DS_DTYPE_F32) return out;
  std::vector<std::byte> bytes(out.size() * static_cast<size_t>(size_of(kept)));
  narrow(kept, values, count, bytes.data());
  widen(kept, bytes.data(), count, out.data());
  return out;
}

// Calls f(param, begin, count) for the part of [begin, begin + count) of a bucket that belongs to
// each parameter, including the padding after it.
template <typename F>
void for_params(const std::vector<ParamPlace>& params, int64_t begin, int64_t count, const F& f) {
  auto it = std::upper_bound(params.begin(), params.end(), begin,
                             [](int64_t at, const ParamPlace& p) { return at < p.begin; });
  if (it != params.begin()) --it;
  for (const int64_t end = begin + count; begin < end; ++it) {
    const int64_t next = std::next(it) == params.end() ? end : std::min(end, std::next(it)->begin);
    if (begin < next) f(it->param, begin, next - begin);
    begin = next;
  }
}

}  // namespace

StateStore::StateStore(Runtime& runtime, StepControl& control, Owner& owner, const ZeroPlan& zero,
                       Keeps keeps)
    : runtime_(runtime),
      control_(control),
      owner_(owner),
      zero_(zero),
      values_(runtime, zero),
      own_(runtime, control, zero, names_, values_),
      state_kinds_({kMasterName}) {
  if (keeps == Keeps::weights) return;
  const std::vector<std::string> states = optimizer_of(runtime.config().optimizer).state_names();
  state_kinds_.insert(state_kinds_.end(), states.begin(), states.end());
}

void StateStore::add_param(std::string name, ParamSlice slice) {
  require_name("parameter", name);
  names_.push_back(std::move(name));
  shapes_.push_back(slice.shape);
  slices_.push_back(std::move(slice));
}

void StateStore::add_params(const Graph& graph) {
  for (const Parameter& p : graph.params) {
    std::vector<int64_t> shape;
    for (const Dim& d : graph.type(p.value).shape.dims()) shape.push_back(d.extent);
    add_param(p.name, p.slice ? *p.slice : ParamSlice::whole(std::move(shape)));
  }
}

void StateStore::check_param(ParamId param) const {
  require(!names_.empty(), "param must be a parameter of the engine, which has none yet, got {}",
          param);
  require(names_.has(param), "param must be 0 to {}, got {}", names_.size() - 1, param);
}

int StateStore::state_index(const std::string& kind) const {
  auto at = std::find(state_kinds_.begin(), state_kinds_.end(), kind);
  return at == state_kinds_.end() ? -1 : static_cast<int>(at - state_kinds_.begin());
}

StateStore::Held StateStore::held_of(ParamId param, const std::string& kind) {
  check_param(param);
  owner_.require_started();
  const std::string& name = names_[param];
  if (kind == "grad" && owner_.gradients() == Owner::Gradients::some) {
    raise(DS_ERROR_STATE,
          "gradient of '{}' must be read before the first or after the last backward of a step",
          TensorName(name));
  }
  runtime_.guarded([&] { runtime_.settle(); });
  BucketId b = bucket_of(param);
  const BucketState& s = zero_.buckets[b];
  if (kind == "param") {
    int cut = s.partitioned ? zero_.policy(b).params : 0;
    return {{s.param.ref.buffer, 0, zero_.part_numel(b, cut)}, cut};
  }
  if (kind == "grad" && trains()) {
    if (zero_.trained.frozen[param])
      raise(DS_ERROR_STATE, "parameter '{}' is frozen: it has no gradient", TensorName(name));
    int cut = zero_.policy(b).grads;
    BufferId sum = s.sum();
    auto scale = static_cast<float>(1.0 / divisor_of(control_.scalars()));
    // Accumulators hold sums over leaves; the mean is their sum divided by the number, or by the
    // weights, of the leaves. A rank's own gradients are a sum over its own leaves only, so their
    // divisor is smaller by the number of data ranks.
    if (owner_.own_gradients())
      return {{sum, 0, zero_.part_numel(b, 0)},
              0,
              scale * static_cast<float>(zero_.mesh.data_size()),
              false};
    return {{sum, 0, zero_.part_numel(b, cut)}, cut, scale, zero_.policy(b).states > 0};
  }
  int index = state_index(kind);
  require(index >= 0, "kind must be param, grad, {}, got '{}'", fmt::join(state_kinds_, ", "),
          kind);
  return {state_ref(b, static_cast<StateKind>(index)), zero_.policy(b).states};
}

// Gathers the parameter. Each rank sends one of the equal cuts of the bucket, which it holds under
// every policy.
std::vector<float> StateStore::gather_held(ParamId param, const Held& held) {
  BucketId b = bucket_of(param);
  const ParamPlace& place = zero_.layout.place(param);
  const RankLevels& levels = zero_.levels(b);
  std::vector<float> whole(static_cast<size_t>(zero_.layout.buckets[b].numel));
  const StateRef& ref = held.ref;
  // If this rank has the whole bucket, it reads it; otherwise each rank sends its cut. A state
  // without a buffer is all zeros.
  if (ref.buffer.exists() && held.cut == 0 && !held.own) {
    values_.read(ref.buffer, ref.first, static_cast<int64_t>(whole.size()), whole.data());
  } else if (ref.buffer.exists()) {
    int64_t own = zero_.part_numel(b, levels.depth());
    std::vector<float> mine(static_cast<size_t>(own)), all(whole.size());
    int64_t first = ref.first + own_first(b) - zero_.part_first(b, held.cut);
    values_.read(ref.buffer, first, own, mine.data());
    runtime_.class_ranks(zero_.cls(b))
        .all_gather(mine.data(), all.data(), mine.size() * sizeof(float), "read " + names_[param]);
    // Cuts arrive in the order of ranks, which is not the order of the parts if there are several
    // levels.
    for (int part = 0; part < levels.ranks(); ++part)
      std::copy_n(all.begin() + levels.holder(part, levels.depth()) * own, own,
                  whole.begin() + part * own);
  }
  return {whole.begin() + place.begin, whole.begin() + place.begin + place.numel};
}

bool StateStore::writes(ParamId param) const {
  return is_first(zero_, slices_[param].axes, zero_.cls(bucket_of(param)).axes);
}

// Assembles the whole tensor from slices: among the ranks that hold the same slice, the first sends
// its runs and its elements.
std::vector<float> StateStore::assemble(ParamId param, const std::vector<float>& local) {
  const ParamSlice& mine = slices_[param];
  Communicator& all = runtime_.comm();
  auto ranks = static_cast<size_t>(all.size());
  bool gives = is_first(zero_, slices_[param].axes, {});
  // The number of values that describe runs, and the number of elements.
  std::vector<int64_t> given{0, 0}, counts(2 * ranks);
  if (gives) given = {2 * std::ssize(mine.runs), std::ssize(local)};
  all.all_gather(given.data(), counts.data(), 2 * sizeof(int64_t), "slices of " + names_[param]);
  auto gather = [&](const void* in, auto& out, size_t column) {
    using T = typename std::remove_reference_t<decltype(out)>::value_type;
    std::vector<size_t> bytes;
    size_t sum = 0;
    for (size_t r = 0; r < ranks; ++r) {
      auto count = static_cast<size_t>(counts[2 * r + column]);
      bytes.push_back(count * sizeof(T));
      sum += count;
    }
    out.resize(sum);
    all.all_gather_v(in, out.data(), bytes, "slices of " + names_[param]);
  };
  int64_t elements = 0;
  for (size_t r = 0; r < ranks; ++r) elements += counts[2 * r + 1];
  // The slices must cover the whole tensor, or elements of `whole` would stay unset.
  require(elements == mine.whole_numel(), "parameter '{}' has {} elements, but its slices have {}",
          TensorName(names_[param]), mine.whole_numel(), elements);
  std::vector<int64_t> runs;
  std::vector<float> values, whole(static_cast<size_t>(mine.whole_numel()));
  gather(mine.runs.data(), runs, 0);
  gather(local.data(), values, 1);
  int64_t run = 0, value = 0;
  for (size_t r = 0; r < ranks; ++r) {
    ParamSlice slice = mine;
    slice.runs.clear();
    for (int64_t k = 0; k < counts[2 * r]; k += 2, run += 2)
      slice.runs.push_back({runs[static_cast<size_t>(run)], runs[static_cast<size_t>(run) + 1]});
    for (const SliceBlock& block : slice.blocks(0, counts[2 * r + 1])) {
      for_each_run(block, block.count, [&](int64_t at, int64_t to, int64_t n) {
        std::copy_n(values.begin() + value + at, n, whole.begin() + to);
      });
    }
    value += counts[2 * r + 1];
  }
  return whole;
}

std::vector<float> StateStore::read_tensor(ParamId param, const std::string& kind) {
  if (kind == "param") require_refreshed();
  Held held = held_of(param, kind);
  std::vector<float> out = gather_held(param, held);
  if (slices_[param].cut()) out = assemble(param, out);
  if (held.scale != 1) {
    for (float& x : out) x *= held.scale;
  }
  return out;
}

std::pair<int64_t, int64_t> StateStore::local_range(ParamId param) const {
  auto [begin, count] = own_range(param);
  if (!slices_[param].cut() || count == 0) return {begin, count};
  std::vector<SliceBlock> blocks = slices_[param].blocks(begin, count);
  if (blocks.size() == 1 && blocks[0].rows == 1) return {blocks[0].begin, count};
  raise(DS_ERROR_UNSUPPORTED,
        "the elements of parameter '{}' that this rank updates do not form a single range",
        TensorName(names_[param]));
}

std::vector<SliceBlock> StateStore::local_blocks(ParamId param) const {
  auto [begin, count] = own_range(param);
  std::vector<SliceBlock> blocks = slices_[param].blocks(begin, count);
  // Positions in the result are relative to the first element that this rank updates.
  for (SliceBlock& block : blocks) block.local -= begin;
  return blocks;
}

std::pair<int64_t, int64_t> StateStore::own_range(ParamId param) const {
  check_param(param);
  owner_.require_started();
  BucketId b = bucket_of(param);
  const ParamPlace& place = zero_.layout.place(param);
  int64_t begin = std::max(place.begin, first(b)),
          end = std::min(place.begin + place.numel, first(b) + held(b));
  return {begin < end ? begin - place.begin : 0, std::max(end - begin, int64_t{0})};
}

std::vector<float> StateStore::read_local(ParamId param, const std::string& kind) {
  if (kind == "param") require_refreshed();
  auto [begin, count] = own_range(param);
  Held held = held_of(param, kind);
  std::vector<float> out(static_cast<size_t>(count));
  // A state without a buffer reads as zeros.
  if (!held.ref.buffer.exists() || count == 0) return out;
  BucketId b = bucket_of(param);
  int64_t at = zero_.layout.place(param).begin + begin - zero_.part_first(b, held.cut);
  values_.read(held.ref.buffer, held.ref.first + at, count, out.data());
  if (held.scale != 1) {
    for (float& x : out) x *= held.scale;
  }
  return out;
}

void StateStore::check_writable(const char* call, ParamId param, const std::string& kind,
                                size_t values, int64_t wanted, bool local) {
  const std::string& name = names_[param];
  require(static_cast<int64_t>(values) == wanted, "parameter '{}' has {} elements, got {}",
          TensorName(name), wanted, values);
  if (kind != "grad") {
    local ? owner_.require_unleased(call) : owner_.begin_change(call);
  } else if (owner_.gradients() != Owner::Gradients::all) {
    raise(DS_ERROR_STATE,
          "gradient of '{}' must be written between the last backward of a step and its update",
          TensorName(name));
  } else if (owner_.own_gradients()) {
    raise(
        DS_ERROR_UNSUPPORTED,
        "gradient of '{}' is this rank's own in a step without a reduction and cannot be written: "
        "optimizer.type is {}",
        TensorName(name), runtime_.config().optimizer.type);
  } else if (zero_.state_tier() == Tier::nvme) {
    raise(DS_ERROR_UNSUPPORTED, "gradient of '{}' lies on nvme, where it cannot be written",
          TensorName(name));
  }
  // Throws for an unknown kind.
  held_of(param, kind);
  const int index = state_index(kind);
  if (index > 0 && !holds(param, static_cast<StateKind>(index)))
    raise(DS_ERROR_STATE, "parameter '{}' was never trained: it has no {}", TensorName(name), kind);
}

// Writes the elements of [begin, end) of the parameter that this rank holds. `values` are the
// elements from `begin` on.
void StateStore::write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end,
                            const float* values) {
  writes_.untrained = writes_.untrained || !begun(param);
  Held held = held_of(param, kind);
  BucketId b = bucket_of(param);
  int64_t place = zero_.layout.place(param).begin, low = zero_.part_first(b, held.cut);
  int64_t from = std::max(place + begin, low),
          to = std::min(place + end, low + zero_.part_numel(b, held.cut));
  if (from >= to) return;
  std::vector<float> scaled;
  const float* in = values + (from - place - begin);
  if (kind == kMasterName && !begun(param)) {
    scaled = rounded(zero_.layout.buckets[b].dtype, in, to - from);
    in = scaled.data();
  }
  if (held.scale != 1) {
    for (int64_t i = 0; i < to - from; ++i) scaled.push_back(in[i] / held.scale);
    in = scaled.data();
  }
  values_.write(held.ref.buffer, held.ref.first + from - low, to - from, in);
}

// Records whether the gradient is finite. Then computes the sums of squares again for the granules
// of the gradient that this rank updates, because the norm of the step is computed from these sums.
void StateStore::grad_written(ParamId param, std::span<const float> values) {
  const bool finite =
      std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  control_.gradient_written(names_[param], finite);
  auto [begin, count] = own_range(param);
  if (count == 0) return;
  BucketId b = bucket_of(param);
  const BucketState& s = zero_.buckets[b];
  int64_t unit = zero_.layout.buckets[b].granule;
  int64_t granule = (zero_.layout.place(param).begin + begin - first(b)) / unit;
  int64_t granules = ceil_div(count, unit);
  std::vector<float> sums(static_cast<size_t>(granules * unit));
  BufferId sum = s.sum();
  values_.read(sum, s.grad_first + granule * unit, granules * unit, sums.data());
  std::vector<double> squares(static_cast<size_t>(granules));
  TensorView in, out;
  in.data = sums.data();
  in.dtype = DS_DTYPE_F32;
  out.data = squares.data();
  out.dtype = DS_DTYPE_F64;
  in.rank = out.rank = 1;
  in.dims[0] = granules * unit;
  out.dims[0] = granules;
  Attrs none;
  const DType from = DS_DTYPE_F32, to = DS_DTYPE_F64;
  runtime_.kernels()
      .find({"granule_norms", {&from, 1}, {&to, 1}, none})
      .run({{&in, 1}, {&out, 1}, none, control_.scalars(), 0, runtime_.team()});
  constexpr int64_t kUnit = sizeof(double);
  runtime_.memory().write(runtime_.buffer(zero_.norms), (s.norm_first + granule) * kUnit,
                          squares.data(), granules * kUnit);
}

void StateStore::write_tensor(ParamId param, const std::string& kind,
                              std::span<const float> values) {
  // Compute copies are computed from masters, so writing a parameter means writing its master.
  if (kind == "param") return write_tensor(param, kMasterName, values);
  check_param(param);
  owner_.require_started();
  const ParamSlice& slice = slices_[param];
  check_writable("ds_engine_write", param, kind, values.size(), slice.whole_numel(), false);
  const int64_t numel = slice.numel();
  std::vector<float> local;
  if (slice.cut()) {
    local.resize(static_cast<size_t>(numel));
    for (const SliceBlock& block : slice.blocks(0, numel)) {
      for_each_run(block, block.count, [&](int64_t to, int64_t at, int64_t n) {
        std::copy_n(values.begin() + at, n, local.begin() + to);
      });
    }
  }
  runtime_.guarded([&] {
    write_part(param, kind, 0, numel, slice.cut() ? local.data() : values.data());
    kind == "grad" ? grad_written(param, values) : renew_params();
  });
  changed();
}

void StateStore::write_local(ParamId param, const std::string& kind,
                             std::span<const float> values) {
  if (kind == "param") return write_local(param, kMasterName, values);
  auto [begin, count] = own_range(param);
  check_writable("ds_engine_write_local", param, kind, values.size(), count, true);
  write_part(param, kind, begin, begin + count, values.data());
  if (kind == "grad") grad_written(param, values);
  // Each rank keeps the whole of this state but writes only its part; `refresh` gathers the parts.
  const bool whole =
      optimizer_of(runtime_.config().optimizer).whole_momentum() && state_index(kind) == 1;
  if (kind == kMasterName || whole) unrefreshed_ = names_[param];
  changed();
}

void StateStore::refresh_params() {
  owner_.begin_change("ds_engine_refresh");
  runtime_.guarded([&] { renew_params(); });
  changed();
}

void StateStore::renew_params() {
  owner_.refresh().run();
  unrefreshed_.clear();
}

void StateStore::require_refreshed() const {
  if (unrefreshed_.empty()) return;
  raise(DS_ERROR_STATE,
        "ds_engine_refresh must be called on all ranks first: ds_engine_write_local has changed "
        "'{}' on this one",
        unrefreshed_);
}

// Returns a reference without a buffer if the bucket has no such state, because it was never
// trained, or because its matrices are updated by Muon, which keeps no squares.
StateRef StateStore::state_ref(BucketId bucket, StateKind kind) const {
  const HeldState* held = zero_.buckets.at(bucket).find(state_kinds_.at(static_cast<size_t>(kind)));
  return held ? held->ref : StateRef{};
}

void StateStore::read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                            float* out) {
  StateRef ref = state_ref(bucket, kind);
  if (!ref.buffer.exists()) {
    std::fill_n(out, count, 0.0f);
  } else {
    values_.read(ref.buffer, ref.first + begin - first(bucket), count, out);
  }
}

bool StateStore::holds(ParamId param, StateKind kind) const {
  return kind == StateKind::master ||
         (begun(param) && state_ref(bucket_of(param), kind).buffer.exists());
}

void StateStore::write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                             const float* in) {
  const StateRef ref = state_ref(bucket, kind);
  for_params(
      zero_.layout.buckets[bucket].params, begin, count, [&](ParamId param, int64_t at, int64_t n) {
        const float* values = in + (at - begin);
        // Values of a state that the parameter does not have are dropped; take_writes() reports
        // whether any of them was not zero.
        if (!holds(param, kind)) {
          writes_.dropped =
              writes_.dropped || std::any_of(values, values + n, [](float x) { return x != 0; });
          return;
        }
        writes_.overwritten = true;
        // The master of a parameter that was never trained is its compute copy, so it can hold only
        // rounded values.
        const bool exact = kind != StateKind::master || begun(param);
        const std::vector<float> fewer =
            exact ? std::vector<float>() : rounded(zero_.layout.buckets[bucket].dtype, values, n);
        values_.write(ref.buffer, ref.first + at - first(bucket), n, exact ? values : fewer.data());
      });
}

void StateStore::take_initial_values() {
  const auto& initial = runtime_.options().initial;
  if (!initial) return;
  // The largest number of elements per call of `initial`.
  constexpr int64_t kMost = 1 << 20;
  runtime_.guarded([&] { runtime_.settle(); });
  agree(runtime_.comm(), "initial values", [&] {
    std::vector<float> values;
    for (ParamId p : names_.ids()) {
      auto [begin, count] = own_range(p);
      const BucketId b = bucket_of(p);
      const int64_t place = zero_.layout.place(p).begin;
      for (const SliceBlock& block : slices_[p].blocks(begin, count)) {
        for_each_run(block, kMost, [&](int64_t local, int64_t whole, int64_t n) {
          values.resize(static_cast<size_t>(n));
          read_state(StateKind::master, b, place + local, n, values.data());
          initial(p, names_[p], whole, values);
          write_state(StateKind::master, b, place + local, n, values.data());
        });
      }
    }
  });
  // Initial values are not writes of a checkpoint.
  take_writes();
  runtime_.guarded([&] { renew_params(); });
  changed();
}

std::map<std::pair<Tier, std::string>, int64_t> StateStore::state_bytes() const {
  std::map<std::pair<Tier, std::string>, int64_t> out;
  // A buffer may belong to several buckets or kinds; it is counted once, for the first of them.
  IdVector<BufferId, char> seen(zero_.memory.buffers.size(), 0);
  auto add = [&](BufferId id, const std::string& kind) {
    const Buffer& b = runtime_.buffer(id);
    ensure(b.offset >= 0, "%{} has no place", b.name);
    if (!seen[id]) out[{b.tier, kind}] += b.bytes();
    seen[id] = 1;
  };
  auto add_state = [&](const HeldState& held) {
    const std::string kind = held.row.holds == Holds::error ? "error" : held.row.name;
    add(held.ref.buffer, kind);
    if (held.scales.buffer.exists()) add(held.scales.buffer, kind);
  };
  for (const BucketState& s : zero_.buckets) {
    s.for_each(add_state);
    for (BufferId grad : s.grad) add(grad, "grad");
  }
  for (const HeldState& held : zero_.joint) add_state(held);
  return out;
}

int64_t StateStore::copy_bytes() {
  int64_t elements = 0;
  for (BucketId b : zero_.buckets.ids())
    elements += std::ssize(state_kinds_) * zero_.layout.buckets[b].shard();
  for (const OwnState& own : ds::own_states(*this)) elements += own.numel;
  return elements * int64_t{sizeof(float)};
}

}  // namespace ds
