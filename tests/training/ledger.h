// Closed form of the ledger: the bytes of state and of traffic that one optimizer step must have,
// computed from the written rules (docs/concepts/design.md) without code of src.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ds::test {

struct Traffic {
  int64_t calls = 0, bytes = 0;
};

// Everything that one rank's traffic depends on. Sizes are in elements unless a unit is given.
struct LedgerCase {
  struct Parameter {
    std::string name;
    int64_t numel = 0;
    // For a table that is read by ids: the largest number of rows that a micro-step names, and the
    // elements of a row. For other parameters `named` is 0.
    int64_t named = 0, width = 0;
  };
  // In the order in which forward first uses them.
  std::vector<Parameter> parameters;
  // Large parameters in the order in which the instructions of a micro-step read them.
  std::vector<std::string> reads;
  int64_t world = 1, rank = 0;
  // Sizes of nested blocks of neighbouring ranks, each in units of the previous block. Their
  // product is `world`.
  std::vector<int64_t> levels;
  // Numbers of levels over which ZeRO partitions states and gradients, and parameters.
  size_t state_levels = 1, parameter_levels = 1;
  int stage = 0;
  // Tier of states and accumulators and, at stage 3, of parameter shards.
  std::string tier = "device";
  // Whether device and host are separate memories.
  bool emulate = false;
  bool overlap = true;
  // Whether leaves are summed as a binary counter over micro-steps. Otherwise one accumulator adds
  // them in order.
  bool tree = false;
  // Whether, with several micro-steps, each rank adds its leaves and the sums are reduced once per
  // step.
  bool boundary = false;
  int64_t accumulation = 1;
  // Bytes of a parameter element, and of a gradient element before its reduction.
  int64_t wire = 4;
  // Whether parameters are gathered as 8-bit codes.
  bool quantized_weights = false;
  // Bits of the codes in which gradients and their sums are exchanged, or 0 if they are not
  // quantized.
  int64_t gradient_bits = 0;
  // Whether each rank keeps, in f32, the quantization errors of each level.
  bool feedback = false;
  // A bucket ends before a further parameter would make it exceed this size.
  int64_t bucket_size = 0;
  // Parameters of at most this size are small: they are never partitioned.
  int64_t persistence_threshold = 0;
  // A gathered bucket is kept if at most this many elements are gathered between two of its uses.
  int64_t max_reuse_distance = 0;
  // Elements that one update instruction covers.
  int64_t sub_group_size = 0;
  // The largest number of accumulator bytes of the file tier that stay in host memory.
  int64_t resident_accumulators = 0;
};

class ClosedForm {
 public:
  explicit ClosedForm(LedgerCase given) : c_(std::move(given)) { make_buckets(); }

  // Returns the bytes of one rank's state by (tier, kind). The kinds are param, master, exp_avg,
  // exp_avg_sq, grad and error.
  std::map<std::pair<std::string, std::string>, int64_t> state() const {
    std::map<std::pair<std::string, std::string>, int64_t> out;
    for (const Bucket& b : buckets_) {
      out[{partitioned(b) ? c_.tier : "device", "param"}] +=
          (partitioned(b) ? shard(b) : b.numel) * c_.wire;
      if (!own_master()) out[{c_.tier, "master"}] += part(b) * 4;
      out[{c_.tier, "exp_avg"}] += part(b) * 4;
      out[{c_.tier, "exp_avg_sq"}] += part(b) * 4;
      out[{c_.tier, "grad"}] += accumulator(b) * 4 * levels();
      for (size_t l = 0; exchanges_codes() && c_.feedback && !b.table && l < c_.levels.size(); ++l)
        out[{"device", "error"}] += b.numel / block(l) * 4;
    }
    return out;
  }

  // Returns the bytes of the scratch file: every state of the nvme tier, in whole blocks.
  int64_t file_bytes() const {
    if (c_.tier != "nvme") return 0;
    int64_t sum = 0;
    for (const Bucket& b : buckets_) {
      sum += 3 * blocks(part(b) * 4) + levels() * blocks(accumulator(b) * 4);
      if (partitioned(b)) sum += blocks(shard(b) * c_.wire);
    }
    return sum;
  }

  // Returns the traffic of one step: collectives (bytes received from other ranks), fetch and store
  // (bytes copied), load and save (file bytes; their calls are not counted).
  std::map<std::string, Traffic> step() {
    out_.clear();
    reduce_gradients();
    gather_parameters();
    exchange_scalars();
    update();
    if (c_.tier == "nvme") gradient_files();
    std::erase_if(out_,
                  [](const auto& entry) { return entry.second.calls + entry.second.bytes == 0; });
    return out_;
  }

 private:
  static constexpr int64_t kGranule = 256, kBlock = 4096, kScalars = 256;

  struct Bucket {
    std::string scope;
    bool small = false;
    // Whether the bucket is a table whose gradient is reduced as rows.
    bool table = false;
    std::vector<size_t> params;
    int64_t numel = 0;
  };

  static int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
  static int64_t blocks(int64_t bytes) { return round_up(bytes, kBlock); }

  // Returns the scope of a name: "h.3.mlp.fc.weight" -> "h.3", "wte.weight" -> "wte".
  static std::string scope_of(const std::string& name) {
    size_t begin = 0, end = name.find('.');
    std::string first = name.substr(0, end);
    while (begin < name.size()) {
      end = std::min(name.find('.', begin), name.size());
      if (std::isdigit(static_cast<unsigned char>(name[begin]))) return name.substr(0, end);
      begin = end + 1;
    }
    return first;
  }

  // Assigns parameters to buckets. Small parameters share buckets across the whole model, and large
  // parameters with their neighbours in one scope.
  void make_buckets() {
    size_t none = c_.parameters.size(), open[2] = {none, none};
    for (size_t p = 0; p < c_.parameters.size(); ++p) {
      const LedgerCase::Parameter& parameter = c_.parameters[p];
      bool small = parameter.numel <= c_.persistence_threshold;
      std::string scope = small ? "" : scope_of(parameter.name);
      int64_t padded = round_up(parameter.numel, kGranule);
      // A table that is reduced as rows shares its bucket with no other parameter.
      if (moves_less_as_rows(parameter)) {
        bucket_of_[parameter.name] = buckets_.size();
        buckets_.push_back({scope, small, true, {p}, padded});
        continue;
      }
      size_t& at = open[small];
      if (at == none || buckets_[at].scope != scope ||
          buckets_[at].numel + padded > c_.bucket_size) {
        at = buckets_.size();
        buckets_.push_back({scope, small, false, {}, 0});
      }
      bucket_of_[parameter.name] = at;
      buckets_[at].params.push_back(p);
      buckets_[at].numel += padded;
    }
    for (Bucket& b : buckets_) b.numel = round_up(b.numel, kGranule * c_.world);
  }

  bool partitioned(const Bucket& b) const { return c_.stage == 3 && !b.small; }
  // Returns the number of ranks in a block of the first `levels` levels.
  int64_t block(size_t levels) const {
    int64_t ranks = 1;
    for (size_t l = 0; l < levels; ++l) ranks *= c_.levels[l];
    return ranks;
  }
  size_t state_cut() const { return c_.stage >= 1 ? c_.state_levels : 0; }
  size_t gradient_cut() const { return c_.stage >= 2 ? c_.state_levels : 0; }
  int64_t shard(const Bucket& b) const { return b.numel / block(c_.parameter_levels); }
  // Returns the number of elements of a bucket that this rank updates.
  int64_t part(const Bucket& b) const { return b.numel / block(state_cut()); }
  // Returns the number of elements of a bucket whose sum this rank keeps.
  int64_t accumulator(const Bucket& b) const { return b.numel / block(gradient_cut()); }
  bool own_master() const { return c_.wire == 4 && c_.tier == "device"; }
  bool exchanges_codes() const { return c_.gradient_bits > 0 && c_.world > 1; }
  // Returns the bytes of `numel` codes. Each granule has one scale of 4 bytes.
  static int64_t codes(int64_t numel, int64_t bits) {
    return numel / kGranule * (4 + kGranule * bits / 8);
  }
  // Returns the number of accumulators of a bucket: one, or one for each bit of the number of
  // micro-steps.
  int64_t levels() const {
    int64_t count = 1;
    while (c_.tree && c_.accumulation >> count) ++count;
    return count;
  }
  int64_t group() const { return std::max(kBlock, c_.sub_group_size / kBlock * kBlock); }
  // Returns whether states are on another tier than the device.
  bool away() const { return c_.tier != "device"; }

  void count(const std::string& what, int64_t bytes, int64_t calls = 1) {
    out_[what].calls += calls;
    out_[what].bytes += bytes;
  }
  void copy(const std::string& what, int64_t bytes) {
    if (c_.emulate) count(what, bytes);
  }
  void file(const std::string& what, int64_t bytes) {
    if (c_.tier == "nvme") count(what, blocks(bytes), 0);
  }
  void all_gather(int64_t bytes) { count("all_gather", bytes * (c_.world - 1)); }
  // Counts an operation among the ranks of one level.
  void on_level(const std::string& what, size_t level, int64_t bytes) {
    int64_t ranks = c_.levels[level];
    count(ranks == c_.world
              ? what
              : what + " " + std::to_string(ranks) + "x" + std::to_string(block(level)),
          bytes);
  }
  // Counts the gathers from a partition over `from` levels to one over `to` levels, outermost level
  // first.
  void gather_levels(const Bucket& b, size_t from, size_t to, int64_t width) {
    for (size_t l = from; l-- > to;)
      on_level("all_gather", l, b.numel / block(l + 1) * width * (c_.levels[l] - 1));
  }

  // Counts the reduction of every bucket, in every micro-step or at the boundary. Sums are f32 and
  // are stored where the states are. A single rank does not reduce: it stores its leaves in the
  // wire type.
  void reduce_gradients() {
    for (const Bucket& b : buckets_) {
      for (int64_t m = 0; m < c_.accumulation; ++m) {
        bool reduced = c_.world > 1 && (!at_boundary() || m + 1 == c_.accumulation);
        if (reduced) b.table ? exchange_rows(c_.parameters[b.params[0]]) : reduce_whole(b);
        if (away()) copy("store", accumulator(b) * (c_.world > 1 && !at_boundary() ? 4 : c_.wire));
      }
      if (at_boundary() && away()) reduce_there(b);
    }
  }

  bool at_boundary() const { return c_.boundary && c_.accumulation > 1; }
  // Even a single rank rounds its sum if gradients have a narrower wire type.
  bool sums_change() const { return at_boundary() && (c_.world > 1 || c_.wire < 4); }

  // Counts the copies of a reduction at the boundary. This rank's sum is fetched to the device in
  // the wire type, or in f32 for a table, whose rows are extracted from the sum. The reduced sum is
  // stored in f32. A single rank only rounds its sum and stores it in the wire type.
  void reduce_there(const Bucket& b) {
    if (!sums_change()) return;
    copy("fetch", b.table ? c_.parameters[b.params[0]].numel * 4 : b.numel * c_.wire);
    copy("store", b.numel * (c_.world > 1 ? 4 : c_.wire));
  }

  void reduce_whole(const Bucket& b) { exchanges_codes() ? exchange(b) : add_up(b); }

  // Counts a reduction without codes: leaves travel in the wire type at the innermost level,
  // partial sums in f32 at all others.
  void add_up(const Bucket& b) {
    size_t cut = gradient_cut(), all = c_.levels.size();
    for (size_t l = 0; l < all; ++l) {
      int64_t width = l == 0 ? c_.wire : 4, ranks = c_.levels[l];
      if (cut < all && l + 1 == all) {
        on_level("all_reduce", l, b.numel / block(l) * (width + 4) * (ranks - 1) / ranks);
      } else {
        on_level("reduce_scatter", l, b.numel / block(l + 1) * width * (ranks - 1));
      }
    }
    if (cut < all) gather_levels(b, all - 1, cut, 4);
  }

  // Returns the largest number of rows that the ids of one reduction can name.
  int64_t named_of(const LedgerCase::Parameter& table) const {
    return at_boundary() ? std::min(table.numel / table.width, c_.accumulation * table.named)
                         : table.named;
  }

  // Counts the exchange of a table's rows: all ranks receive the rows and row numbers of all ranks,
  // from the outermost level inwards.
  void exchange_rows(const LedgerCase::Parameter& table) {
    int64_t held = 1;
    for (size_t l = c_.levels.size(); l-- > 0;) {
      int64_t rows = held * named_of(table) * (c_.levels[l] - 1);
      on_level("all_gather", l, rows * table.width * c_.wire);
      on_level("all_gather", l, rows * 4);
      held *= c_.levels[l];
    }
  }

  bool moves_less_as_rows(const LedgerCase::Parameter& table) {
    if (table.named == 0 || c_.world == 1) return false;
    auto bytes = [&](auto&& reduce) {
      out_.clear();
      reduce();
      int64_t sum = 0;
      for (const auto& [what, traffic] : out_) sum += traffic.bytes;
      return sum;
    };
    Bucket alone;
    alone.numel = round_up(table.numel, kGranule * c_.world);
    return bytes([&] { exchange_rows(table); }) < bytes([&] { reduce_whole(alone); });
  }

  // Counts a reduction with codes: at each level, every rank sends every other rank a part of its
  // gradient as codes. Then the sums are gathered over the levels that do not partition gradients.
  void exchange(const Bucket& b) {
    for (size_t l = 0; l < c_.levels.size(); ++l)
      on_level("all_to_all", l,
               codes(b.numel / block(l + 1), c_.gradient_bits) * (c_.levels[l] - 1));
    gather_levels(b, c_.levels.size(), gradient_cut(), 4);
  }

  void gather_parameters() {
    std::vector<int64_t> ranges = gather_ranges();
    for (size_t k = 0; k < buckets_.size(); ++k) {
      const Bucket& b = buckets_[k];
      // Such a bucket is gathered once, after the update.
      if (!partitioned(b)) {
        if (c_.world > 1) gather_levels(b, state_cut(), 0, c_.wire);
        continue;
      }
      // A shard of parameters may be larger than the part that a rank updates.
      if (c_.parameter_levels < state_cut()) {
        if (away()) copy("fetch", part(b) * c_.wire);
        gather_levels(b, state_cut(), c_.parameter_levels, c_.wire);
        if (away()) copy("store", shard(b) * c_.wire);
      }
      for (int64_t i = 0; i < ranges[k]; ++i) {
        file("load", shard(b) * c_.wire);
        if (away()) copy("fetch", shard(b) * c_.wire);
        if (!c_.quantized_weights) {
          gather_levels(b, c_.parameter_levels, 0, c_.wire);
          continue;
        }
        for (size_t l = c_.parameter_levels; l-- > 0;)
          on_level("all_gather", l, codes(b.numel / block(l + 1), 8) * (c_.levels[l] - 1));
      }
    }
  }

  // Returns, for each bucket, how often it is gathered: once, and again before each use that
  // follows its previous one by more elements of other buckets than the reuse distance.
  std::vector<int64_t> gather_ranges() const {
    std::vector<size_t> visits;
    for (int64_t m = 0; m < c_.accumulation; ++m) {
      for (const std::string& name : c_.reads) {
        size_t b = bucket_of_.at(name);
        if (partitioned(buckets_[b]) && (visits.empty() || visits.back() != b)) visits.push_back(b);
      }
    }
    std::vector<int64_t> ranges(buckets_.size(), 0);
    for (size_t i = 0; i < visits.size(); ++i) {
      int64_t between = 0;
      size_t j = i;
      while (j > 0 && visits[j - 1] != visits[i]) between += buckets_[visits[--j]].numel;
      if (j == 0 || between > c_.max_reuse_distance) ++ranges[visits[i]];
    }
    return ranges;
  }

  // Counts the losses of the micro-steps (f32) and, if states are partitioned, the norms of
  // granules (f64). The instructions that decide whether the step is skipped run where the states
  // are, so the step's scalars are copied there and back.
  void exchange_scalars() {
    all_gather(c_.accumulation * 4);
    int64_t norms = 0;
    for (const Bucket& b : buckets_) norms += part(b) / kGranule * 8;
    if (c_.stage >= 1) {
      if (away()) copy("fetch", norms);
      all_gather(norms);
      if (away()) copy("store", norms * c_.world);
    }
    if (away()) {
      copy("store", kScalars);
      copy("fetch", kScalars);
    }
  }

  // Reads and writes master and moments once. Parameters on the device receive the parts that were
  // updated elsewhere.
  void update() {
    for (const Bucket& b : buckets_) {
      for (int64_t first = 0; first < part(b); first += group()) {
        int64_t numel = std::min(group(), part(b) - first);
        for (int state = 0; state < 3; ++state) {
          file("load", numel * 4);
          file("save", numel * 4);
        }
        if (partitioned(b)) file("save", numel * c_.wire);
        if (away() && !partitioned(b)) copy("fetch", numel * c_.wire);
      }
    }
  }

  // --- accumulators on files: reading one is a load, writing one a save. A resident one is saved
  // once and never loaded. ---

  void gradient_files() {
    resident_.clear();
    resident_bytes_ = 0;
    std::vector<size_t> order = completion_order();
    for (int64_t m = 0; m < c_.accumulation; ++m) {
      for (size_t b : order) c_.tree ? count_up(b, m) : add(b, m);
    }
    for (size_t b = 0; b < buckets_.size(); ++b) {
      int64_t all = part(buckets_[b]);
      for (int64_t first = 0; first < all; first += group())
        read_sum(b, first, std::min(group(), all - first));
    }
  }

  // Returns the buckets in the order in which their gradients are complete. Backward goes from the
  // last parameter to the first, so a bucket is complete with its first parameter.
  std::vector<size_t> completion_order() const {
    std::vector<size_t> order(buckets_.size());
    for (size_t b = 0; b < order.size(); ++b) order[b] = b;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return buckets_[a].params[0] > buckets_[b].params[0]; });
    return order;
  }

  void add(size_t b, int64_t micro) {
    if (micro > 0) read(b, 0);
    write(b, 0);
    if (micro + 1 == c_.accumulation && sums_change())
      // The reduced sum overwrites this rank's own sum, which is still in memory and need not be
      // read.
      write(b, 0);
  }

  // Adds leaves as a binary counter: micro-step m carries through the trailing set bits of m. After
  // the last micro-step the levels are added.
  void count_up(size_t b, int64_t micro) {
    int64_t level = 0;
    for (; micro >> level & 1; ++level) read(b, level);
    write(b, level);
    if (micro + 1 < c_.accumulation) return;
    for (int64_t next = level + 1; next < levels(); ++next) {
      if ((c_.accumulation >> next & 1) == 0) continue;
      read(b, next);
      write(b, next);
      level = next;
    }
  }

  void read(size_t b, int64_t level) { load(b, level, 0, accumulator(buckets_[b])); }

  // Reads the part of the finished sum that this rank updates, from its offset in the accumulator.
  void read_sum(size_t b, int64_t first, int64_t numel) {
    int64_t own = 0;
    for (size_t l = 0; c_.stage == 1 && l < state_cut(); ++l)
      own = own * c_.levels[l] + c_.rank / block(l) % c_.levels[l];
    own *= part(buckets_[b]);
    load(b, levels() - 1, own + first, numel);
  }

  void load(size_t b, int64_t level, int64_t first, int64_t numel) {
    if (!resident_.count({b, level})) file("load", first * 4 % kBlock + numel * 4);
  }

  void write(size_t b, int64_t level) {
    if (resident_.count({b, level})) return;
    int64_t bytes = accumulator(buckets_[b]) * 4;
    file("save", bytes);
    bool room = resident_bytes_ + bytes <= c_.resident_accumulators;
    if (!c_.overlap || !room) return;
    resident_.insert({b, level});
    resident_bytes_ += bytes;
  }

  LedgerCase c_;
  std::vector<Bucket> buckets_;
  std::map<std::string, size_t> bucket_of_;
  std::map<std::string, Traffic> out_;
  // Accumulators that stay in host memory, as (bucket, level).
  std::set<std::pair<size_t, int64_t>> resident_;
  int64_t resident_bytes_ = 0;
};

}  // namespace ds::test
