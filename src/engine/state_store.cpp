// Problem: a caller names a parameter and a kind of state; the bytes are a part of a bucket, cut
// over some ranks, in a buffer of any type and tier. Invariant: every rank holds, of each bucket,
// one contiguous part, and one of its layout's equal cuts is its own. So the tensor of a data group
// is one gather of own cuts, and a local one needs no communication. Where the ranks of a group
// hold a slice of a larger tensor, one rank of each slice gives what it has to all others. A write
// changes masters first; compute copies follow by the program `refresh`, never by hand.
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
#include "core/device/view.h"
#include "core/graph/param_slice.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "core/program/signs.h"
#include "core/program/state_codes.h"
#include "kernels/cpu/cpu.h"
#include "optim/optimizer.h"

namespace ds {

StateStore::StateStore(Runtime& runtime, StepControl& control, Owner& owner, const ZeroPlan& zero,
                       Keeps keeps)
    : runtime_(runtime),
      control_(control),
      owner_(owner),
      zero_(zero),
      state_kinds_({kMasterName}) {
  if (keeps == Keeps::weights) return;
  const std::vector<std::string>& states = optimizer_of(runtime.config().optimizer).states;
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
    return {{s.param.buffer, 0, zero_.part_numel(b, cut)}, cut};
  }
  if (kind == "grad" && trains()) {
    if (zero_.trained.frozen[param])
      raise(DS_ERROR_STATE, "parameter '{}' is frozen: it has no gradient", TensorName(name));
    int cut = zero_.policy(b).grads;
    BufferId sum = s.sum();
    auto scale = static_cast<float>(1.0 / divisor_of(control_.scalars()));
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

// Every rank gives one of the equal cuts of the bucket, which all layouts have it hold.
std::vector<float> StateStore::gather_held(ParamId param, const Held& held) {
  BucketId b = bucket_of(param);
  const ParamPlace& place = zero_.layout.place(param);
  const RankLevels& levels = zero_.levels(b);
  std::vector<float> whole(static_cast<size_t>(zero_.layout.buckets[b].numel));
  const StateRef& ref = held.ref;
  if (ref.buffer.exists() && held.cut == 0 && !held.own) {
    read(ref.buffer, ref.first, static_cast<int64_t>(whole.size()), whole.data());
  } else if (ref.buffer.exists()) {
    int64_t own = zero_.part_numel(b, levels.depth());
    std::vector<float> mine(static_cast<size_t>(own)), all(whole.size());
    int64_t first = ref.first + own_first(b) - zero_.part_first(b, held.cut);
    read(ref.buffer, first, own, mine.data());
    runtime_.class_ranks(zero_.cls(b))
        .all_gather(mine.data(), all.data(), mine.size() * sizeof(float), "read " + names_[param]);
    for (int part = 0; part < levels.ranks(); ++part)
      std::copy_n(all.begin() + levels.holder(part, levels.depth()) * own, own,
                  whole.begin() + part * own);
  }
  return {whole.begin() + place.begin, whole.begin() + place.begin + place.numel};
}

bool StateStore::writes(ParamId param) const {
  return is_first(param, zero_.cls(bucket_of(param)).axes);
}

// Of the ranks that differ along other axes than these and those that cut the parameter, this one.
bool StateStore::is_first(ParamId param, const std::vector<std::string>& apart) const {
  const std::vector<std::string>& cut = slices_[param].axes;
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const Mesh::Axis& axis : zero_.mesh.axes()) {
    bool differs = has(apart, axis.name) || has(cut, axis.name);
    if (!differs && zero_.mesh.coordinate(zero_.rank, axis.name) != 0) return false;
  }
  return true;
}

// The whole tensor from the local ones: of the ranks that hold a slice the first gives its runs and
// its elements.
std::vector<float> StateStore::assemble(ParamId param, const std::vector<float>& local) {
  const ParamSlice& mine = slices_[param];
  Communicator& all = runtime_.comm();
  auto ranks = static_cast<size_t>(all.size());
  bool gives = is_first(param, {});
  std::vector<int64_t> given{0, 0}, counts(2 * ranks);  // numbers of runs, elements
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
  require(elements == mine.whole_numel(), "parameter '{}' has {} elements, its slices have {}",
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
        "the elements of parameter '{}' that this rank updates are no single range of it",
        TensorName(names_[param]));
}

std::vector<SliceBlock> StateStore::local_blocks(ParamId param) const {
  auto [begin, count] = own_range(param);
  std::vector<SliceBlock> blocks = slices_[param].blocks(begin, count);
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
  if (!held.ref.buffer.exists() || count == 0) return out;
  BucketId b = bucket_of(param);
  int64_t at = zero_.layout.place(param).begin + begin - zero_.part_first(b, held.cut);
  read(held.ref.buffer, held.ref.first + at, count, out.data());
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
        "gradient of '{}' is this rank's own in a step without a reduction, where none is written: "
        "optimizer.type is {}",
        TensorName(name), runtime_.config().optimizer.type);
  } else if (zero_.state_tier() == Tier::nvme) {
    raise(DS_ERROR_UNSUPPORTED, "gradient of '{}' lies on nvme, where none is written",
          TensorName(name));
  }
  held_of(param, kind);  // refuses a kind that there is not
  const int index = state_index(kind);
  if (index > 0 && !holds(param, static_cast<StateKind>(index)))
    raise(DS_ERROR_STATE, "parameter '{}' was never trained: it has no {}", TensorName(name), kind);
}

// Elements [begin, end) of the parameter, of which this rank writes those that it holds; values:
// from begin on.
void StateStore::write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end,
                            const float* values) {
  Held held = held_of(param, kind);
  BucketId b = bucket_of(param);
  int64_t place = zero_.layout.place(param).begin, low = zero_.part_first(b, held.cut);
  int64_t from = std::max(place + begin, low),
          to = std::min(place + end, low + zero_.part_numel(b, held.cut));
  if (from >= to) return;
  std::vector<float> scaled;
  const float* in = values + (from - place - begin);
  if (kind == kMasterName && !begun(param)) {
    scaled = rounded(in, to - from);
    in = scaled.data();
  }
  if (held.scale != 1) {
    for (int64_t i = 0; i < to - from; ++i) scaled.push_back(in[i] / held.scale);
    in = scaled.data();
  }
  write(held.ref.buffer, held.ref.first + from - low, to - from, in);
}

// Sums of squares of the granules of a parameter's gradient that this rank updates.
void StateStore::renew_norms(ParamId param) {
  auto [begin, count] = own_range(param);
  if (count == 0) return;
  BucketId b = bucket_of(param);
  const BucketState& s = zero_.buckets[b];
  int64_t unit = zero_.layout.buckets[b].granule;
  int64_t granule = (zero_.layout.place(param).begin + begin - first(b)) / unit;
  int64_t granules = ceil_div(count, unit);
  std::vector<float> sums(static_cast<size_t>(granules * unit));
  BufferId sum = s.sum();
  read(sum, s.grad_first + granule * unit, granules * unit, sums.data());
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
  runtime_.write(runtime_.buffer(zero_.norms), (s.norm_first + granule) * kUnit, squares.data(),
                 granules * kUnit);
}

void StateStore::grad_written(ParamId param, std::span<const float> values) {
  renew_norms(param);
  bool finite = std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  control_.gradient_written(names_[param], finite);
}

void StateStore::write_tensor(ParamId param, const std::string& kind,
                              std::span<const float> values) {
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
  if (kind == kMasterName || whole_on_all(kind)) unrefreshed_ = names_[param];
  changed();
}

// Of a state of which every rank keeps the whole, a rank writes its part, and `refresh` gives it to
// the others.
bool StateStore::whole_on_all(const std::string& kind) const {
  return optimizer_of(runtime_.config().optimizer).whole_momentum() && state_index(kind) == 1;
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
        "'{}' on this "
        "one",
        unrefreshed_);
}

StateStore::Codes StateStore::codes_of(BufferId codes) const {
  for (const BucketState& s : zero_.buckets) {
    for (size_t k = 0; k < s.scales.size(); ++k) {
      if (s.states[k].buffer == codes) return {codes, s.scales[k].buffer, codes_of_state(k)};
    }
  }
  raise(DS_ERROR_INTERNAL, "%{} holds no codes of states", runtime_.buffer(codes).name);
}

// Calls f(codes, scale, elements) for what [element, element + count) has of each block.
void StateStore::for_blocks(const Codes& c, int64_t element, int64_t count, bool write,
                            const BlockUse& use) const {
  constexpr int64_t kMost = 4096;  // blocks together
  std::vector<uint8_t> codes, scales;
  for (int64_t at = element, end = element + count; at < end;) {
    const int64_t low = at / kStateBlock, high = std::min(ceil_div(end, kStateBlock), low + kMost);
    const int64_t stop = std::min(end, high * kStateBlock);
    codes.resize(static_cast<size_t>((high - low) * kStateBlock));
    scales.resize(static_cast<size_t>(high - low));
    const Buffer &of_codes = runtime_.buffer(c.codes), &of_scales = runtime_.buffer(c.scales);
    runtime_.read_bytes(of_codes, low * kStateBlock, std::ssize(codes), codes.data());
    runtime_.read_bytes(of_scales, low, std::ssize(scales), scales.data());
    for (; at < stop; at = std::min(stop, (at / kStateBlock + 1) * kStateBlock)) {
      const int64_t block = at / kStateBlock - low, begin = at % kStateBlock;
      use(codes.data() + block * kStateBlock, scales[static_cast<size_t>(block)], begin,
          std::min(kStateBlock - begin, stop - at));
    }
    if (!write) continue;
    runtime_.write_bytes(of_codes, low * kStateBlock, std::ssize(codes), codes.data());
    runtime_.write_bytes(of_scales, low, std::ssize(scales), scales.data());
  }
}

void StateStore::read(BufferId id, int64_t element, int64_t count, float* out) const {
  if (runtime_.buffer(id).dtype == DS_DTYPE_U8) {
    const Codes c = codes_of(id);
    return for_blocks(c, element, count, false,
                      [&](uint8_t* codes, uint8_t& scale, int64_t begin, int64_t n) {
                        const StateScale s(c.kind, scale);
                        for (int64_t e = begin; e < begin + n; ++e)
                          *out++ = decode_state(codes[e], c.kind, s);
                      });
  }
  runtime_.read_floats(runtime_.buffer(id), element, count, out);
}

void StateStore::write(BufferId id, int64_t element, int64_t count, const float* in) {
  if (runtime_.buffer(id).dtype == DS_DTYPE_U8) {
    const Codes c = codes_of(id);
    return for_blocks(c, element, count, true,
                      [&](uint8_t* codes, uint8_t& scale, int64_t begin, int64_t n) {
                        std::array<float, kStateBlock> block;
                        const StateScale before(c.kind, scale);
                        for (size_t e = 0; e < block.size(); ++e)
                          block[e] = decode_state(codes[e], c.kind, before);
                        for (int64_t e = begin; e < begin + n; ++e)
                          block[static_cast<size_t>(e)] = *in++;
                        encode_block(block, c.kind, codes, scale);
                      });
  }
  runtime_.write_floats(runtime_.buffer(id), element, count, in);
}

// Without a buffer: what is not trained yet has no such state, and a matrix of Muon no squares.
StateRef StateStore::state_ref(BucketId bucket, StateKind kind) const {
  const BucketState& s = zero_.buckets.at(bucket);
  if (kind == StateKind::master) return s.master;
  const size_t state = static_cast<size_t>(kind) - 1;
  return state < s.states.size() ? s.states[state] : StateRef{};
}

void StateStore::read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                            float* out) {
  StateRef ref = state_ref(bucket, kind);
  if (!ref.buffer.exists()) {
    std::fill_n(out, count, 0.0f);
  } else {
    read(ref.buffer, ref.first + begin - first(bucket), count, out);
  }
}

bool StateStore::holds(ParamId param, StateKind kind) const {
  return kind == StateKind::master ||
         (begun(param) && state_ref(bucket_of(param), kind).buffer.exists());
}

std::vector<float> StateStore::rounded(const float* values, int64_t count) const {
  std::vector<float> out(values, values + count);
  const DType kept = runtime_.config().compute;
  if (kept == DS_DTYPE_F32) return out;
  std::vector<std::byte> bytes(out.size() * static_cast<size_t>(size_of(kept)));
  narrow(kept, values, count, bytes.data());
  widen(kept, bytes.data(), count, out.data());
  return out;
}

template <typename F>
void StateStore::for_params(BucketId bucket, int64_t begin, int64_t count, const F& f) const {
  const std::vector<ParamPlace>& params = zero_.layout.buckets[bucket].params;
  auto it = std::upper_bound(params.begin(), params.end(), begin,
                             [](int64_t at, const ParamPlace& p) { return at < p.begin; });
  if (it != params.begin()) --it;
  for (const int64_t end = begin + count; begin < end; ++it) {
    const int64_t next = std::next(it) == params.end() ? end : std::min(end, std::next(it)->begin);
    if (begin < next) f(it->param, begin, next - begin);
    begin = next;
  }
}

void StateStore::write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                             const float* in) {
  const StateRef ref = state_ref(bucket, kind);
  for_params(bucket, begin, count, [&](ParamId param, int64_t at, int64_t n) {
    const float* values = in + (at - begin);
    if (!holds(param, kind)) {
      writes_.dropped =
          writes_.dropped || std::any_of(values, values + n, [](float x) { return x != 0; });
      return;
    }
    writes_.overwritten = true;
    const bool exact = kind != StateKind::master || begun(param);
    const std::vector<float> fewer = exact ? std::vector<float>() : rounded(values, n);
    write(ref.buffer, ref.first + at - first(bucket), n, exact ? values : fewer.data());
  });
}

// Elements [low, high) of the bucket, of which this rank has a part, and of a momentum that is kept
// whole all.
void StateStore::begin_states(BucketId bucket, int64_t low, int64_t high) {
  const BucketState& s = zero_.buckets[bucket];
  std::vector<float> block(1 << 16);
  auto pieces = [&](int64_t begin, int64_t end, auto&& body) {
    for (int64_t at = begin; at < end; at += std::ssize(block))
      body(at, std::min(std::ssize(block), end - at));
  };
  const int64_t own = first(bucket), from = std::max(low, own),
                to = std::min(high, own + held(bucket));
  for (const StateRef& state : s.states) {
    const bool whole = runtime_.buffer(state.buffer).numel > state.numel;
    const int64_t begin =
        whole ? 0 : own - state.first;  // element of the bucket that the buffer begins with
    pieces(whole ? low : from, whole ? high : to,
           [&](int64_t at, int64_t n) { write(state.buffer, at - begin, n, block.data()); });
  }
  if (s.master.buffer == s.param.buffer) return;
  pieces(from, to, [&](int64_t at, int64_t n) {
    read(s.param.buffer, s.param.first + at - own, n, block.data());
    write(s.master.buffer, s.master.first + at - own, n, block.data());
  });
}

void StateStore::begin_states(BucketId bucket) {
  for (BufferId error : zero_.buckets[bucket].errors) forget({error});
  begin_states(bucket, 0, zero_.layout.buckets[bucket].numel);
}

void StateStore::begin_states(ParamId param) {
  const std::vector<ParamPlace>& params = zero_.layout.buckets[bucket_of(param)].params;
  const size_t next = zero_.layout.place_of[param] + 1;
  begin_states(
      bucket_of(param), zero_.layout.place(param).begin,
      next < params.size() ? params[next].begin : zero_.layout.buckets[bucket_of(param)].numel);
}

void StateStore::take_initial_values() {
  const auto& initial = runtime_.options().initial;
  if (!initial) return;
  constexpr int64_t kMost = 1 << 20;  // elements of a call
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
  forget_writes();
  runtime_.guarded([&] { renew_params(); });
  changed();
}

std::map<std::pair<Tier, std::string>, int64_t> StateStore::state_bytes() const {
  std::map<std::pair<Tier, std::string>, int64_t> out;
  IdVector<BufferId, char> seen(runtime_.placed().buffers.size(), 0);
  auto add = [&](BufferId id, const std::string& kind) {
    const Buffer& b = runtime_.buffer(id);
    ensure(b.offset >= 0, "%{} has no place", b.name);
    if (!seen[id]) out[{b.tier, kind}] += b.bytes();
    seen[id] = 1;
  };
  for (const BucketState& s : zero_.buckets) {
    add(s.param.buffer, "param");
    add(s.master.buffer, "master");
    for (size_t i = 0; i < s.states.size(); ++i) add(s.states[i].buffer, state_kinds_[i + 1]);
    for (size_t i = 0; i < s.scales.size(); ++i) add(s.scales[i].buffer, state_kinds_[i + 1]);
    for (BufferId grad : s.grad) add(grad, "grad");
    for (BufferId error : s.errors) add(error, "error");
    for (BufferId error : {s.worker_error, s.server_error}) {
      if (error.exists()) add(error, "error");
    }
    for (BufferId error : {s.sent_error, s.answer_error}) {
      if (error.exists()) add(error, "error");
    }
    if (s.own_steps.exists()) add(s.own_steps, "own_steps");
  }
  for (BufferId error :
       {zero_.joined.worker_error, zero_.joined.server_error, zero_.joined.padding}) {
    if (error.exists()) add(error, "error");
  }
  if (zero_.joined.coefficients.exists()) add(zero_.joined.coefficients, "coefficients");
  return out;
}

}  // namespace ds
