// Checks the certificate of a plan (docs/concepts/certificate.md).
//
// The checker shares no code with the compiler, its passes or its verifier, and includes only the
// standard library. So a rule that was forgotten there is still checked here.
#pragma once
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace certificate {
using Int = int64_t;
using Text = std::string;
using View = std::string_view;
// The largest number that a certificate may have. Products with kMostRanks fit.
constexpr Int kMost = Int{1} << 42;
constexpr Int kMostRanks = 1 << 16, kMostRounds = 1 << 22, kMostStride = Int{1} << 38;
constexpr Int kAfter = kMost + 1, kNone = -kAfter;  // a wait >= kAfter is for the round before
constexpr Int kBlock = 4096;  // file transfers move whole blocks, also at the end
constexpr Int kLine = 64;     // alignment of buffers that no file transfer touches

enum Queue { comp, host, comm, copy, read, write, kQueues };
enum Tier { dev, mem, nvme, kTiers };
constexpr std::array<View, kQueues> kQueueNames{"comp", "host", "comm", "copy", "read", "write"};
constexpr std::array<View, kTiers> kTierNames{"dev", "host", "nvme"};
const std::map<View, Int> kUnits{{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8},
                                 {"i32", 4}, {"i64", 8},  {"u8", 1}};
const std::set<View> kClaims{"arena", "life", "moved", "order", "memory", "held"};
struct Buffer {
  Text name, holds;  // holds: "param", "master", ...
  Tier tier = dev;
  bool persistent = false, files = false;  // files: a file transfer uses it
  Int bytes = 0, offset = -1;
  // The first and the last instruction that use the buffer, and the one whose use is marked as the
  // last.
  Int first = -1, last = -1, ended = -1;
  bool kept() const { return !persistent && holds == "cache"; }
  Int align() const { return files || tier == nvme ? kBlock : kLine; }
};
struct Operand {
  Int buffer = 0, begin = 0, bytes = 0, stride = 0;
  Text type;
  bool reads = false, writes = false, ends = false;
  Int numel() const { return bytes / kUnits.at(type); }
};
struct Instr {
  Queue queue = comp;
  Text op;
  Int ranks = 0, stride = 0, order = -1;  // of a collective
  std::vector<Operand> operands;
  std::vector<Int> waits;
  // The number in the text, the copy, and the number of rounds that the copy represents.
  Int number = 0, copy = 0, times = 1;
};
struct Program {
  Text name;
  Int rank = 0, world = 1;
  bool separate = false;               // device and host are separate memories
  Int begin = 0, end = 0, rounds = 1;  // instructions that are repeated
  std::vector<Buffer> buffers;
  std::vector<Instr> instrs;
  Int arena[kTiers][2] = {};  // bytes of buffers, by tier: persistent, transient
};
struct Certificate {
  Int ranks = 0;
  std::vector<Program> programs;
  std::set<Text> claims;  // a program's claims follow its name and rank
};
inline Int round_up(Int x, Int unit) { return (x + unit - 1) / unit * unit; }
Text cat(const auto&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
inline Text title(const Program& p) { return cat(p.name, " rank ", p.rank, ": "); }

using Malformed = std::invalid_argument;
[[noreturn]] inline void malformed(const Text& expected, View got) {
  Text shown(got.substr(0, 60));
  for (char& c : shown) c = c < ' ' || c > '~' ? '?' : c;
  throw Malformed(cat("expected ", expected, ", got '", shown, "'"));
}

// Writes out rounds 0, 1 and the last one of the repeated instructions. All rounds have the same
// instructions, queues and waits, and use either the same bytes or, by the stride, bytes of their
// own. So if order and writes are right between rounds 0 and 1, they are right between any two
// rounds. The last round is needed because the instructions after the repetition follow it.
inline void write_out(Program& p) {
  Int count = std::ssize(p.instrs), size = p.end - p.begin;
  if (p.end > count || size < 0) malformed("repeated instructions", cat(p.begin, " to ", p.end));
  Int more = std::min<Int>(p.rounds, 3) - 1;
  std::array<Int, 3> rounds{0, 1, p.rounds - 1};
  auto inside = [&](Int i) { return i >= p.begin && i < p.end; };
  auto place = [&](Int i, Int k) { return i < p.begin ? i : i + (i < p.end ? k : more) * size; };
  std::vector<Instr> out;
  auto add = [&](Int i, Int copy) {
    Instr& in = out.emplace_back(p.instrs[i]);
    in.number = i, in.copy = copy, in.times = copy == 2 ? p.rounds - 2 : 1;
    for (Operand& o : in.operands) o.begin += (inside(i) ? rounds[copy] : 0) * o.stride;
    for (Int& wait : in.waits) {
      bool before = wait < 0, after = wait >= kAfter;
      Int to = before ? wait + count : wait - (after ? kAfter : 0);
      bool both = inside(i) && inside(to), right = before ? to >= 0 : after ? both : to < i;
      wait = place(to, both && !before ? copy - after : more) - (before ? count + more * size : 0);
      if (!right || (after && copy == 0)) wait = right ? kNone : kAfter;
    }
    std::erase(in.waits, kNone);
  };
  for (Int i = 0; i < p.begin; ++i) add(i, 0);
  for (Int copy = 0; copy <= more; ++copy)
    for (Int i = p.begin; i < p.end; ++i) add(i, copy);
  for (Int i = p.end; i < count; ++i) add(i, 0);
  p.instrs = std::move(out);
}

// Throws Malformed at everything that it does not know.
class Parser {
 public:
  Certificate parse(View text) {
    for (Int line = 1; !text.empty(); ++line) try {
        size_t end = text.find('\n');
        if (end == text.npos || ended_) malformed("the end of a whole certificate", text);
        line_ = rest_ = text.substr(0, end);
        text.remove_prefix(end + 1);
        bool plain = std::ranges::all_of(line_, [](char c) { return c >= ' ' && c <= '~'; });
        plain ? parse_line(next()) : malformed("printable characters", line_);
        if (!rest_.empty()) malformed("the end of the line", rest_);
      } catch (const Malformed& error) {
        throw Malformed(cat("line ", line, ": ", error.what()));
      }
    if (!ended_) throw Malformed("the certificate has no line 'end'");
    return std::move(out_);
  }

 private:
  View next() {
    View word = rest_.substr(0, rest_.find(' '));
    if (word.empty()) malformed("another word", line_);
    rest_.remove_prefix(std::min(word.size() + 1, rest_.size()));
    return word;
  }
  Int number(Int least = 0, Int most = kMost) {
    View text = next();
    Int value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
      malformed(cat("an integer from ", least, " to ", most), text);
    return value;
  }
  template <size_t N>
  Int one_of(const std::array<View, N>& names) {
    View word = next();
    auto it = std::find(names.begin(), names.end(), word);
    if (it == names.end()) malformed(cat(names[0], " or the like"), word);
    return it - names.begin();
  }
  Program& now() { return out_.programs.back(); }
  void parse_line(View kind) {
    if (out_.ranks == 0 && kind != "certificate") malformed("certificate", kind);
    if (out_.ranks == 0) {
      out_.ranks = number(1, kMostRanks);
    } else if (kind == "program") {
      out_.programs.emplace_back();
      now().name = next(), now().rank = number(0, out_.ranks - 1), now().world = out_.ranks;
      names_.clear(), now().separate = !rest_.empty() && one_of<1>({"separate"}) == 0;
    } else if (kind == "end") {
      ended_ = number(std::ssize(out_.programs), std::ssize(out_.programs)) >= 0;
    } else if (out_.programs.empty()) {
      malformed("program", kind);
    } else if (kClaims.contains(kind)) {
      bool of_rank = kind == "memory" || kind == "held";
      if (!out_.claims.insert(cat(of_rank ? "" : title(now()), line_)).second)
        malformed("a claim once", line_);
      rest_ = {};
    } else if (kind == "repeat") {
      now().begin = number(), now().end = number(), now().rounds = number(1, kMostRounds);
    } else if (kind == "buffer") {
      buffer();
    } else if (kind == "instr") {
      instr();
    } else if (now().instrs.empty()) {
      malformed("instr", kind);
    } else if (kind == "wait" || kind == "after") {
      now().instrs.back().waits.push_back(kind == "wait" ? number(-kMost) : kAfter + number());
    } else {
      operand(kind);
    }
  }
  // buffer h.1.master dev persistent master 492 0
  void buffer() {
    Buffer b;
    b.name = next(), b.tier = Tier(one_of(kTierNames));
    b.persistent = one_of<2>({"persistent", "transient"}) == 0;
    b.holds = next(), b.bytes = number(), b.offset = number(-1);
    if (!names_.emplace(b.name, std::ssize(now().buffers)).second) malformed("a new name", b.name);
    now().buffers.push_back(std::move(b));
  }
  // instr 12 comm all_gather 2 1 6: the groups have 2 ranks, 1 apart; it is the seventh collective
  // of the rank
  void instr() {
    Instr in;
    number(std::ssize(now().instrs), std::ssize(now().instrs));
    in.queue = Queue(one_of(kQueueNames)), in.op = next();
    if (in.queue == comm) {
      in.ranks = number(1, out_.ranks), in.stride = number(1, out_.ranks), in.order = number(-1);
      if (out_.ranks % (in.ranks * in.stride)) malformed(cat("a group of ", out_.ranks), line_);
    }
    now().instrs.push_back(std::move(in));
  }
  // reads h.1.full 64 128 f32 +512 last: 128 bytes from byte 64 on, and 512 bytes later in the next
  // round
  void operand(View kind) {
    Operand o;
    o.reads = kind == "reads" || kind == "updates",
    o.writes = kind == "writes" || kind == "updates";
    if (!o.reads && !o.writes) malformed("reads, writes or updates", kind);
    auto it = names_.find(next());
    if (it == names_.end()) malformed("the name of a buffer", line_);
    o.buffer = it->second, o.begin = number(), o.bytes = number(), o.type = next();
    if (rest_.starts_with("+")) rest_.remove_prefix(1), o.stride = number(o.bytes, kMostStride);
    o.ends = !rest_.empty() && one_of<1>({"last"}) == 0;
    auto unit = kUnits.find(o.type);
    if (unit == kUnits.end() || o.bytes % unit->second != 0 || o.begin % unit->second != 0)
      malformed("whole elements of a type", line_);
    now().instrs.back().operands.push_back(std::move(o));
  }
  Certificate out_;
  View line_, rest_;  // rest_: the part of the line that was not read yet
  std::map<Text, Int, std::less<>> names_;
  bool ended_ = false;
};

// The state of the bytes up to the next piece: the instruction that wrote them last, the buffer
// that it wrote, and the last instruction of each queue that has read them since. When that
// instruction has ended, so have all earlier ones of its queue.
struct Piece {
  Int writer = -1, buffer = -1;  // buffer -1: nothing was written; -2: the rest of a block
  std::array<Int, kQueues> readers{-1, -1, -1, -1, -1, -1};
};
// Pieces by first byte. The first piece begins before all bytes.
struct Pieces : std::map<Int, Piece> {
  Pieces() { emplace(-kMost, Piece{}); }
  // Does nothing if a piece begins at `at`.
  void cut(Int at) { emplace(at, std::prev(upper_bound(at))->second); }
};

// Checks one program of one rank.
class ProgramCheck {
 public:
  ProgramCheck(Program& p, std::vector<Text>& findings)
      : p_(p), findings_(findings), count_(std::ssize(p.instrs)) {}

  void run() {
    for (at_ = 0; at_ < count_; ++at_) check_operands(p_.instrs[at_]), check_move(p_.instrs[at_]);
    at_ = -1;
    check_places();
    for (Int base : {Int{0}, count_}) {
      for (at_ = 0; at_ < count_; ++at_) enter(base, p_.instrs[at_]);
      // The next run starts when all queues except `write` have ended this run. A write to files
      // has ended only if another queue has waited for it.
      for (Int q = 0; q < write; ++q) advance(run_began_, queue_clock_[q]);
    }
  }

 private:
  using Clock = std::array<Int, kQueues>;
  void find(const auto&... parts) {
    Text line = cat(title(p_), at_ < 0 ? "" : named(at_) + " ", parts...);
    if (reported_.insert(line).second) findings_.push_back(line);
  }
  Text named(Int i) { return cat("instruction ", p_.instrs[i].number, " (", p_.instrs[i].op, ")"); }
  const Buffer& buffer(const Operand& o) const { return p_.buffers[o.buffer]; }
  // If memories are separate, compute and comm reach the memory of the device, host reaches its
  // own, and copy reaches both.
  bool reaches(Queue queue, const Operand& o, Tier tier) const {
    if (queue == read || queue == write) return tier == ((queue == read) == o.reads ? nvme : mem);
    return tier != nvme && (!p_.separate || queue == copy || (queue == host) == (tier == mem));
  }
  void check_operands(const Instr& in) {
    for (const Operand& o : in.operands) {
      Buffer& b = p_.buffers[o.buffer];
      if (!reaches(in.queue, o, b.tier))
        find("on queue ", kQueueNames[in.queue], " does not reach operand ", &o - &in.operands[0],
             ", ", b.name, ", in memory ", kTierNames[b.tier]);
      if (o.begin + o.bytes > b.bytes)
        find("uses ", o.bytes, " bytes at ", o.begin, " of ", b.name, ", which has ", b.bytes);
      if (o.ends && (b.persistent || (b.ended >= 0 && in.copy == 0)))
        find("ends ", b.name, ", which it must not");
      if (o.ends) b.ended = in.number;
      b.first = b.first < 0 ? in.number : b.first, b.last = in.number;
      b.files = b.files || in.queue >= read;
    }
  }
  void check_places() {
    std::map<std::tuple<Tier, Int, Text>, Int> persistent;  // value: the end of the buffer
    for (const Buffer& b : p_.buffers) {
      if (!b.persistent && b.first < 0) continue;
      if (!b.persistent && b.ended != (b.kept() ? -1 : b.last))
        find("the last use of ", b.name, " is ", b.last, ", not ", b.ended);
      if (b.offset < 0 || b.offset % b.align() != 0)
        find(b.name, " lies at ", b.offset, ", no multiple of ", b.align());
      Int end = b.offset + round_up(b.bytes, b.align()), &size = p_.arena[b.tier][!b.persistent];
      size = std::max(size, end);
      if (b.persistent) persistent[{b.tier, b.offset, b.name}] = end;
    }
    for (auto next = persistent.begin(); next != persistent.end();) {
      auto [tier, begin, name] = next->first;
      Int end = next->second;
      if (++next == persistent.end()) break;
      auto [other_tier, other_begin, other] = next->first;
      if (tier == other_tier && end > other_begin) find(name, " reaches into ", other);
    }
  }
  void check_move(const Instr& in) {
    if (in.queue < comm) return;
    bool two = in.operands.size() == 2 && !in.operands[0].writes && !in.operands[1].reads;
    if (!two) return find("must read one operand and write another");
    const Operand &from = in.operands[0], &to = in.operands[1];
    if (in.queue == comm) return check_collective(in, from, to);
    if (from.bytes != to.bytes) find("moves ", from.bytes, " bytes into ", to.bytes);
    for (const Operand& o : in.operands)
      if (in.queue >= read && (buffer(o).offset + o.begin) % kBlock != 0)
        find("begins within a block of ", buffer(o).name);
    // A write overwrites the rest of its last block.
    if (in.queue == write && to.bytes % kBlock != 0 && to.begin + to.bytes != buffer(to).bytes)
      find("overwrites what follows in ", buffer(to).name);
  }
  void check_collective(const Instr& in, const Operand& from, const Operand& to) {
    if (in.copy == 0 && in.order <= last_order_)
      find("has place ", in.order, " in the order of collectives, after ", last_order_);
    last_order_ = std::max(last_order_, in.order);
    bool fits = from.numel() == to.numel() && from.numel() % in.ranks == 0;
    if (in.op == "all_gather") fits = to.numel() == from.numel() * in.ranks;
    if (in.op == "reduce_scatter") fits = from.numel() == to.numel() * in.ranks;
    bool sums = in.op == "reduce_scatter" || in.op == "all_reduce";
    if (!fits || (sums ? to.type != "f32" && to.type != from.type : to.type != from.type))
      find("of ", in.ranks, " ranks makes ", to.numel(), " elements of ", from.numel());
  }
  // The clock of an instruction has, for each queue, how many instructions of that queue have ended
  // before this one starts.
  void enter(Int base, const Instr& in) {
    clock_ = run_began_;
    advance(clock_, queue_clock_[in.queue]);
    for (Int wait : in.waits) {
      bool known = wait >= -count_ && wait < at_;
      if (!known) find("waits for instruction ", wait);
      if (known && base + wait >= 0) advance(clock_, clocks_[base + wait]);
    }
    for (bool writes : {false, true}) {
      for (const Operand& o : in.operands)
        if (writes ? o.writes && !was_written(in, o) : o.reads) access(in, o, base + at_, writes);
    }
    for (const Operand& o : in.operands)  // no instruction may read it from here on
      if (o.ends)
        for (auto& [byte, piece] : pieces_[buffer(o).tier][buffer(o).persistent ? 0 : 1])
          if (piece.buffer == o.buffer) piece.buffer = -1;
    place_.emplace_back(in.queue, ++issued_[in.queue]);
    clock_[in.queue] = issued_[in.queue];  // for instructions that wait for this one
    queue_clock_[in.queue] = clock_;
    clocks_.push_back(clock_);
  }
  // A parameter in f32 is its own master, so an update may name one tensor twice.
  static bool was_written(const Instr& in, const Operand& o) {
    return std::any_of(in.operands.data(), &o, [&](const Operand& other) {
      bool same = other.buffer == o.buffer && other.begin == o.begin && other.bytes == o.bytes;
      return other.writes && same && other.type == o.type;
    });
  }
  static void advance(Clock& clock, const Clock& to) {
    for (Int q = 0; q < kQueues; ++q) clock[q] = std::max(clock[q], to[q]);
  }
  void access(const Instr& in, const Operand& o, Int id, bool writes) {
    const Buffer& b = buffer(o);
    Int begin = b.offset + o.begin, used = begin + o.bytes;
    Int end = in.queue >= read ? begin + round_up(o.bytes, kBlock) : used;
    if (end > p_.arena[b.tier][!b.persistent]) find("exceeds the arena with ", b.name);
    Pieces& pieces = pieces_[b.tier][b.persistent ? 0 : 1];
    for (Int at : {begin, used, end}) pieces.cut(at);
    for (auto it = pieces.find(begin); it != pieces.end() && it->first < end; ++it) {
      Piece& piece = it->second;
      // In a kept buffer, the first run may find any bytes, the second run only the bytes that the
      // first has left.
      bool free = b.kept() ? id < count_ && piece.buffer == -1 : id >= count_;
      bool own = b.persistent || piece.buffer == o.buffer || it->first >= used || free;
      if (!writes && !own) find("reads ", b.name, " where it was not written, or overwritten");
      if (writes && piece.writer == id) find("writes bytes of ", b.name, " twice");
      after(piece.writer, id, b, "writes");
      for (Int reader : piece.readers)
        if (writes) after(reader, id, b, "reads");
      if (!writes) piece.readers[in.queue] = id;
      if (writes) piece = {id, it->first < used ? o.buffer : -2};
    }
  }
  // `prior` must have ended before the current instruction starts.
  void after(Int prior, Int id, const Buffer& b, const char* does) {
    if (prior < 0 || prior == id || clock_[place_[prior].first] >= place_[prior].second) return;
    const char* run = prior < count_ && id >= count_ ? " of the run before" : "";
    find("touches ", b.name, " without waiting for ", named(prior % count_), run, ", which ", does,
         " its bytes");
  }
  Program& p_;
  std::vector<Text>& findings_;
  std::set<Text> reported_;
  Int count_, at_ = -1, last_order_ = -1;
  Clock clock_{}, run_began_{}, issued_{};
  std::array<Clock, kQueues> queue_clock_{};
  std::vector<Clock> clocks_;  // by instruction, first those of the first run
  // In the same order: the queue of each instruction, and its number there from 1.
  std::vector<std::pair<Queue, Int>> place_;
  Pieces pieces_[kTiers][2];
};

// Simulates the collectives of all ranks: a collective happens when every rank of its group has
// arrived at it. Returns the first error, or an empty text.
inline Text simulate(const std::vector<const Program*>& ranks) {
  std::vector<Int> next(ranks.size(), 0), arriving;
  // The waiting ranks, by the first rank, the number of ranks and the stride of their group.
  std::map<std::tuple<Int, Int, Int>, std::vector<Int>> waiting;
  auto head = [&](Int rank) {
    const std::vector<Instr>& list = ranks[rank]->instrs;
    while (next[rank] < std::ssize(list) && list[next[rank]].queue != comm) ++next[rank];
    return next[rank] < std::ssize(list) ? &list[next[rank]] : nullptr;
  };
  auto place = [&](Int r) { return cat(title(*ranks[r]), head(r)->op, " ", next[r], " "); };
  auto kind = [&](Int rank) {
    const Instr& in = *head(rank);
    Text out = cat(in.op, " #", in.order, in.times > 1 ? cat(" times ", in.times) : "");
    for (const Operand& o : in.operands) out += cat(" ", o.bytes, " bytes of ", o.type);
    return out;
  };
  for (Int r = 0; r < std::ssize(ranks); ++r) arriving.push_back(r);
  while (!arriving.empty()) {
    Int rank = arriving.back();
    arriving.pop_back();
    const Instr* in = head(rank);
    if (!in) continue;
    auto& here =
        waiting[{rank - rank / in->stride % in->ranks * in->stride, in->ranks, in->stride}];
    here.push_back(rank);
    if (std::ssize(here) < in->ranks) continue;
    for (Int member : here)
      if (kind(member) != kind(here[0]))
        return cat(place(member), "meets ", kind(here[0]), " of rank ", here[0]);
    for (Int member : here) ++next[member], arriving.push_back(member);
    here.clear();
  }
  for (const auto& [group, here] : waiting)
    if (!here.empty())
      return cat(place(here[0]), "waits for ever: ", here.size(), " of ", std::get<1>(group),
                 " ranks come");
  return {};
}

// Adds the claims that a program must make.
inline void add_claims(const Program& p, std::set<Text>& claims) {
  for (Int t = 0; t < kTiers; ++t)
    claims.insert(cat(title(p), "arena ", kTierNames[t], " persistent=", p.arena[t][0],
                      " transient=", p.arena[t][1]));
  for (const Buffer& b : p.buffers)
    if (!b.persistent && b.first >= 0)
      claims.insert(cat(title(p), "life ", b.name, " ", b.first, " ", b.last));
  std::map<Text, std::pair<Int, uint64_t>> moved;
  for (const Instr& in : p.instrs) {
    if (in.queue < comm || in.operands.size() != 2) continue;
    uint64_t from = in.operands[0].bytes, to = in.operands[1].bytes, ranks = in.ranks, bytes = from;
    if (in.queue >= read) bytes = round_up(in.operands[0].bytes, kBlock);
    // For collectives: the bytes that a rank receives from others.
    if (in.op == "all_gather") bytes = from * (ranks - 1);
    if (in.op == "reduce_scatter" || in.op == "all_to_all") bytes = from / ranks * (ranks - 1);
    if (in.op == "all_reduce") bytes = (from + to) * (ranks - 1) / ranks;
    Text key =
        in.queue != comm || in.ranks == p.world ? in.op : cat(in.op, " ", ranks, "x", in.stride);
    moved[key].first += in.times, moved[key].second += bytes * in.times;
    if (in.queue == comm) claims.insert(cat(title(p), "order ", in.order, " ", key, " bytes=", to));
  }
  for (const auto& [key, m] : moved)
    claims.insert(cat(title(p), "moved ", key, " calls=", m.first, " bytes=", m.second));
}

// Checks the programs of each rank together, because they share its arenas and its persistent
// buffers.
inline void check_ranks(const Certificate& c, std::vector<Text>& findings, std::set<Text>& claims) {
  std::map<Int, std::array<Int, 2 * kTiers>> needs;
  std::map<std::tuple<Int, Tier, Text>, Int> held;
  std::map<std::pair<Int, Text>, std::tuple<Tier, Int, Int>> places;
  std::map<Text, std::vector<const Program*>> by_name;
  for (const Program& p : c.programs) {
    for (Int k = 0; k < 2 * kTiers; ++k)
      needs[p.rank][k] = std::max(needs[p.rank][k], p.arena[k / 2][k % 2]);
    for (const Buffer& b : p.buffers) {
      std::tuple place{b.tier, b.offset, b.bytes};
      if (!b.persistent) continue;
      auto [it, first] = places.try_emplace({p.rank, b.name}, place);
      if (first) held[{p.rank, b.tier, b.holds}] += b.bytes;
      if (it->second != place)
        findings.push_back(cat(title(p), b.name, " has another place than in other programs"));
    }
    std::vector<const Program*>& ranks = by_name[p.name];
    if (std::ssize(ranks) != p.rank)
      findings.push_back(cat(title(p), "stands where rank ", ranks.size(), " should"));
    ranks.push_back(&p);
  }
  for (const auto& [rank, n] : needs)
    claims.insert(cat("memory rank=", rank, " dev=", n[0] + n[1], " host=", n[2] + n[3],
                      " nvme=", n[4] + n[5]));
  for (const auto& [key, bytes] : held)
    claims.insert(cat("held rank=", std::get<0>(key), " ", kTierNames[std::get<1>(key)], " ",
                      std::get<2>(key), " bytes=", bytes));
  for (const auto& [name, ranks] : by_name) {
    if (std::ssize(ranks) != c.ranks)
      findings.push_back(cat(name, " stands for ", ranks.size(), " of ", c.ranks, " ranks"));
    else if (Text found = simulate(ranks); !found.empty())
      findings.push_back(found);
  }
}

// Returns the findings, one line each. Without findings, the certificate is right.
inline std::vector<Text> check(View text) {
  std::vector<Text> findings;
  try {
    Certificate c = Parser().parse(text);
    std::set<Text> claims;
    for (Program& p : c.programs) {
      write_out(p);
      ProgramCheck(p, findings).run();
      add_claims(p, claims);
    }
    check_ranks(c, findings, claims);
    for (const Text& line : claims)
      if (!c.claims.contains(line)) findings.push_back(line + ": is so, but is not claimed");
    for (const Text& line : c.claims)
      if (!claims.contains(line)) findings.push_back(line + ": is claimed, but is not so");
  } catch (const Malformed& error) {
    findings.push_back(error.what());
  }
  return findings;
}
}  // namespace certificate
