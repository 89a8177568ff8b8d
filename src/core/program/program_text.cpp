// The text form of a program, which `libds plan --print` shows and in which tests of passes are
// written. There is one line for the program, each arena, the repeated stretch, each buffer, each
// instruction and the end of each segment. In the line of an instruction, "!" marks the last use of
// an operand, "=" a write and "&" an update; "#6" is the position in the order of collectives.
// "wait" is followed by numbers of instructions. "~13" is instruction 13 of the round before; a
// negative number counts from the end and is an instruction of the run before. Invariant:
// parse_program() of a printed program prints the same text.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/program/granules.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "core/program/program.h"

namespace ds {
namespace {

constexpr const char* kQueueNames[kQueues] = {"comp", "host", "comm", "copy", "read", "write"};
constexpr const char* kTierNames[3] = {"dev", "host", "nvme"};
// The marks by Access: read, write, update.
constexpr const char* kAccessMarks[3] = {"", "=", "&"};
constexpr const char* kHolds[] = {"value", "scalars", "input", "loss",  "result", "param", "master",
                                  "state", "grad",    "norms", "error", "lease",  "cache"};
constexpr const char* kPhases[] = {"init",   "refresh", "forward", "backward", "backward_last",
                                   "leases", "losses",  "update",  "eval",     "infer",
                                   "decode", "gather",  "reduce"};

std::string operand_text(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers.at(operand.buffer);
  std::string out = operand.last ? "!" : "";
  out += kAccessMarks[static_cast<int>(operand.access)];
  out += "%" + buffer.name;
  // The last plus begins the offset, so a name with a plus always has one.
  const bool plus = buffer.name.find('+') != std::string::npos;
  if (operand.begin != 0 || operand.stride != 0 || plus) out += "+" + std::to_string(operand.begin);
  if (operand.stride != 0) out += "*" + std::to_string(operand.stride);
  return out + ":" + operand.type.text();
}

// Splits a line at spaces; {...} stays one word.
std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  size_t i = 0;
  while (i < line.size()) {
    if (line[i] == ' ') {
      ++i;
      continue;
    }
    size_t end = line[i] == '{' ? line.find('}', i) : line.find(' ', i);
    if (end == std::string_view::npos) end = line.size();
    if (line[i] == '{' && end < line.size()) ++end;
    out.emplace_back(line.substr(i, end - i));
    i = end;
  }
  return out;
}

int64_t number(std::string_view text) {
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(code == std::errc() && end == text.data() + text.size(),
          "program text must have an integer, got '{}'", text);
  return value;
}

// Returns the value of a word such as "key=123".
int64_t field(std::string_view word, std::string_view key) {
  require(word.substr(0, key.size()) == key && word.size() > key.size() && word[key.size()] == '=',
          "program text must have {}=, got '{}'", key, word);
  return number(word.substr(key.size() + 1));
}

int index_of(std::span<const char* const> names, std::string_view name, const char* kind) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "program text has no {} '{}'", kind, name);
}

TensorType parse_type(std::string_view text) {
  size_t bracket = text.find('[');
  require(bracket != std::string_view::npos, "type must be like f32[n,8], got '{}'", text);
  return {parse_dtype(text.substr(0, bracket)), Shape::parse(text.substr(bracket))};
}

// Parses a group like "4x2".
RankGroup parse_group(std::string_view text) {
  size_t x = text.find('x');
  require(x != std::string_view::npos, "group must be like 4x2, got '{}'", text);
  return {static_cast<int>(number(text.substr(0, x))),
          static_cast<int>(number(text.substr(x + 1)))};
}

// Parses a filter like "1of3": the bits 1 under the mask 3.
MicroFilter parse_filter(std::string_view text) {
  size_t of = text.find("of");
  require(of != text.npos, "when must be like 1of3, got '{}'", text);
  return {number(text.substr(of + 2)), number(text.substr(0, of))};
}

// The largest number of runs of an instruction. A real program has far fewer. The limit refuses
// texts whose counts would exhaust memory.
constexpr int64_t kMostRuns = int64_t{1} << 24;

// A repetition of runs: they occur `count` times, each time `distance` elements after the time
// before.
struct Fold {
  int64_t count = 1, distance = 0;
  bool operator==(const Fold&) const = default;
};

// Runs as program text writes them. "0:12" means elements 0 to 11; with "0:12:1" they missed one
// update; with "0:12:0:2" they belong to group 2; with "0:12:0:2:5:512" they are elements of
// parameter 5, from its element 512 on; with "0:12:0:2:5:512:1" a step without a gradient of this
// parameter leaves them out. "0:12*4+100" means four runs, each 100 elements after the
// previous one; "0:12*4+100*2+7" means these four and the same four again, 7 elements later. Such
// patterns arise with several ranks, because the norms of a bucket are gathered from each rank,
// level by level.
struct FoldedRuns {
  ElementRun first;
  // The folds, innermost first.
  std::vector<Fold> folds;
  FoldedRuns moved(int64_t by) const {
    ElementRun run = first;
    run.begin += by;
    run.end += by;
    return {run, folds};
  }
  bool operator==(const FoldedRuns&) const = default;
};

// Parses a run like "0:12:1:2". `word` is quoted in errors.
ElementRun parse_run(std::string_view run, std::string_view word) {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= run.size() && numbers.size() < 8;) {
    size_t end = std::min(run.find(':', begin), run.size());
    numbers.push_back(number(run.substr(begin, end - begin)));
    begin = end + 1;
  }
  require(numbers.size() >= 2 && numbers.size() <= 7,
          "a run must be like 0:12, 0:12:1, 0:12:1:2 or 0:12*4+100, got '{}'", word);
  numbers.resize(7, 0);
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6] != 0};
}

// Parses a fold like "4+100" or "4-100". `word` is quoted in errors.
Fold parse_fold(std::string_view fold, std::string_view word) {
  size_t sign = fold.find_first_of("+-");
  require(sign != fold.npos && sign > 0, "runs must be folded like 0:12*4+100, got '{}'", word);
  return {number(fold.substr(0, sign)), number(fold.substr(fold[sign] == '+' ? sign + 1 : sign))};
}

std::vector<ElementRun> parse_runs(std::string_view text) {
  std::vector<ElementRun> runs;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    size_t star = word.find('*');
    std::vector<ElementRun> of_word{parse_run(word.substr(0, star), word)};
    while (star != word.npos) {
      size_t next = word.find('*', star + 1);
      Fold fold = parse_fold(word.substr(star + 1, next - star - 1), word);
      size_t folded = of_word.size();
      require(fold.count > 0 && fold.count <= (kMostRuns - std::ssize(runs)) / std::ssize(of_word),
              "an instruction has at most {} runs, got '{}' after {}", kMostRuns, word,
              runs.size());
      for (size_t k = folded; k < folded * static_cast<size_t>(fold.count); ++k) {
        ElementRun r = of_word[k - folded];
        bool large = __builtin_add_overflow(r.begin, fold.distance, &r.begin) ||
                     __builtin_add_overflow(r.end, fold.distance, &r.end);
        require(!large, "runs must begin and end at 64-bit numbers, got '{}'", word);
        of_word.push_back(r);
      }
      star = next;
    }
    runs.insert(runs.end(), of_word.begin(), of_word.end());
  }
  return runs;
}

// Joins consecutive runs that differ only by a constant distance into one fold.
std::vector<FoldedRuns> fold(const std::vector<FoldedRuns>& runs) {
  std::vector<FoldedRuns> out;
  for (size_t i = 0, end = 0; i < runs.size(); i = end) {
    out.push_back(runs[i]);
    end = i + 1;
    if (end == runs.size()) break;
    int64_t distance = runs[end].first.begin - runs[i].first.begin;
    while (end < runs.size() && runs[end] == runs[end - 1].moved(distance)) ++end;
    if (end > i + 1) out.back().folds.push_back({static_cast<int64_t>(end - i), distance});
  }
  return out;
}

std::string print_runs(const std::vector<ElementRun>& runs) {
  std::vector<FoldedRuns> folded;
  for (const ElementRun& r : runs) folded.push_back({r, {}});
  for (size_t before = 0; before != folded.size();) {
    before = folded.size();
    folded = fold(folded);
  }
  std::string text;
  for (const FoldedRuns& f : folded) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", f.first.begin, f.first.end);
    std::string rest;
    // Trailing zeros are left out.
    bool zeros = true;
    for (int64_t number :
         {int64_t{f.first.skips}, f.first.element, f.first.param, f.first.group, f.first.missed}) {
      zeros = zeros && number == 0;
      if (!zeros) rest.insert(0, fmt::format(":{}", number));
    }
    text += rest;
    for (const Fold& by : f.folds) text += fmt::format("*{}{:+}", by.count, by.distance);
  }
  return text;
}

// A parser that reads a program line by line. A buffer's line must come before the instructions
// that name the buffer.
class Reader {
 public:
  Program program;

  void line(std::string_view text) {
    std::vector<std::string> w = words(text);
    if (w.empty() || w[0] == ";") return;
    if (w[0] == "program") return header(w);
    if (w[0] == "arena") return arena(w);
    if (w[0] == "repeat") return repeat(w);
    if (w[0] == "buffer") return buffer(w);
    if (w[0] == "segment") return segment(w.at(1));
    instr(w);
  }

 private:
  void header(const std::vector<std::string>& w) {
    program.name = w.at(1);
    program.rank = static_cast<int>(field(w.at(2), "rank"));
    require(w.at(3).starts_with("mesh="), "program text must have mesh=, got '{}'", w[3]);
    program.mesh = Mesh::parse(std::string_view(w[3]).substr(5));
    program.bound = field(w.at(4), "n");
    program.separate = w.size() > 5 && w[5] == "separate";
  }
  void arena(const std::vector<std::string>& w) {
    ArenaSizes& a = program.arenas[index_of(kTierNames, w.at(1), "tier")];
    a.persistent = field(w.at(2), "persistent");
    a.transient = field(w.at(3), "transient");
  }
  // Parses a line like "repeat 120 to 240 rounds=295 micros=1".
  void repeat(const std::vector<std::string>& w) {
    program.repeat.begin = InstrId(number(w.at(1)));
    program.repeat.end = InstrId(number(w.at(3)));
    program.repeat.rounds = static_cast<int32_t>(field(w.at(4), "rounds"));
    program.repeat.micros = static_cast<int32_t>(field(w.at(5), "micros"));
  }
  void segment(std::string_view name) {
    Segment s;
    s.end = program.instrs.past();
    size_t bracket = name.find('[');
    s.phase = static_cast<Phase>(index_of(kPhases, name.substr(0, bracket), "segment"));
    if (bracket != name.npos) {
      require(name.back() == ']', "segment must be like forward[0], got '{}'", name);
      s.micro = MicroId(number(name.substr(bracket + 1, name.size() - bracket - 2)));
    }
    program.segments.push_back(s);
  }
  // Parses a line like "buffer %name dev f32[123] persistent @offset master".
  void buffer(const std::vector<std::string>& w) {
    Buffer b;
    b.name = w.at(1).substr(1);
    b.tier = static_cast<Tier>(index_of(kTierNames, w.at(2), "tier"));
    TensorType type = parse_type(w.at(3));
    b.dtype = type.dtype;
    b.numel = type.shape.rank() == 0 ? 0 : type.shape[0].extent;
    b.residency = w.at(4) == "persistent" ? Residency::persistent : Residency::transient;
    b.offset = number(std::string_view(w.at(5)).substr(1));
    if (w.size() > 6) b.holds = static_cast<Holds>(index_of(kHolds, w[6], "kind of buffer"));
    std::string name = b.name;
    names_[name] = program.buffers.add(std::move(b));
  }
  // Parses a line like
  // 12 comp linear !%x+0*64:f32[n,8] %w:... =%y:... {attrs} group=2x1 #6 wait 3 ~13
  void instr(const std::vector<std::string>& w) {
    Instr in;
    in.queue = static_cast<Queue>(index_of(kQueueNames, w.at(1), "queue"));
    in.def = &instruction(w.at(2));
    in.segment = program.segments.past();
    bool waits = false;
    for (size_t i = 3; i < w.size(); ++i) {
      const std::string& word = w[i];
      if (waits) {
        bool round_before = word[0] == '~';
        int64_t k = number(std::string_view(word).substr(round_before ? 1 : 0));
        in.waits.push_back({InstrId(k), k < 0, round_before});
      } else if (word == "wait") {
        waits = true;
      } else if (word[0] == '{') {
        in.attrs = Attrs::parse(word);
      } else if (word[0] == '#') {
        in.comm_order = static_cast<int32_t>(number(std::string_view(word).substr(1)));
      } else if (word.find('%') != std::string::npos) {
        in.operands.push_back(operand(word));
      } else {
        option(in, word);
      }
    }
    program.instrs.push_back(std::move(in));
  }
  void option(Instr& in, std::string_view word) {
    std::string_view key = word.substr(0, word.find('='));
    if (key == "group") {
      in.group = parse_group(word.substr(key.size() + 1));
    } else if (key == "runs") {
      in.runs = parse_runs(word.substr(key.size() + 1));
    } else if (key == "bucket") {
      in.bucket = BucketId(field(word, key));
    } else if (key == "event") {
      in.event = EventId(field(word, key));
    } else if (key == "when") {
      in.when = parse_filter(word.substr(key.size() + 1));
    } else {
      in.micro = MicroId(field(word, "micro"));
    }
  }
  Operand operand(std::string_view word) {
    Operand o;
    if (word[0] == '!') {
      o.last = true;
      word.remove_prefix(1);
    }
    if (word[0] == '=') o.access = Access::write;
    if (word[0] == '&') o.access = Access::update;
    word.remove_prefix(word.find('%') + 1);
    size_t colon = word.rfind(':');
    require(colon != std::string_view::npos, "operand must be %name:type, got '%{}'", word);
    o.type = parse_type(word.substr(colon + 1));
    std::string_view name = word.substr(0, colon);
    if (size_t plus = name.rfind('+'); plus != std::string_view::npos) {
      std::string_view begin = name.substr(plus + 1);
      size_t star = begin.find('*');
      if (star != begin.npos) o.stride = number(begin.substr(star + 1));
      o.begin = number(begin.substr(0, star));
      name = name.substr(0, plus);
    }
    auto it = names_.find(std::string(name));
    require(it != names_.end(), "operand names no buffer: '%{}'", name);
    o.buffer = it->second;
    return o;
  }
  std::map<std::string, BufferId> names_;
};

}  // namespace

const char* queue_name(Queue queue) { return kQueueNames[static_cast<int>(queue)]; }
const char* holds_name(Holds holds) { return kHolds[static_cast<int>(holds)]; }

const char* phase_name(Phase phase) { return kPhases[static_cast<int>(phase)]; }

std::string Segment::name() const {
  return micro.exists() ? fmt::format("{}[{}]", phase_name(phase), micro) : phase_name(phase);
}

std::string Program::print() const {
  std::string out = fmt::format("program {} rank={} mesh={} n={}{}\n", name, rank, mesh.name(),
                                bound, separate ? " separate" : "");
  for (int t = 0; t < 3; ++t) {
    out += fmt::format("arena {} persistent={} transient={}\n", kTierNames[t], arenas[t].persistent,
                       arenas[t].transient);
  }
  if (repeat.rounds > 1)
    out += fmt::format("repeat {} to {} rounds={} micros={}\n", repeat.begin, repeat.end,
                       repeat.rounds, repeat.micros);
  for (const Buffer& b : buffers) {
    out += fmt::format("buffer %{} {} {}[{}] {} @{}", b.name, kTierNames[static_cast<int>(b.tier)],
                       dtype_name(b.dtype), b.numel,
                       b.residency == Residency::persistent ? "persistent" : "transient", b.offset);
    out += b.holds == Holds::value ? "\n" : fmt::format(" {}\n", holds_name(b.holds));
  }
  SegmentId segment(0);
  for (InstrId i : instrs.ids()) {
    while (segments.has(segment) && segments[segment].end <= i) {
      out += "segment " + segments[segment++].name() + "\n";
    }
    const Instr& in = instrs[i];
    out += fmt::format("{} {} {}", i, queue_name(in.queue), in.def->name);
    for (const Operand& o : in.operands) out += " " + operand_text(*this, o);
    if (!in.attrs.empty()) out += " " + in.attrs.print();
    if (in.group.size > 0) out += " group=" + in.group.name();
    if (in.bucket.exists()) out += fmt::format(" bucket={}", in.bucket);
    if (in.event.exists()) out += fmt::format(" event={}", in.event);
    if (!in.runs.empty()) out += " runs=" + print_runs(in.runs);
    if (in.micro != MicroId(0)) out += fmt::format(" micro={}", in.micro);
    if (in.when.mask != 0) out += fmt::format(" when={}of{}", in.when.value, in.when.mask);
    if (in.comm_order >= 0) out += fmt::format(" #{}", in.comm_order);
    if (!in.waits.empty()) out += " wait";
    // A wait for the run before is a negative number, counted from the end.
    for (const Wait& wait : in.waits)
      out += fmt::format(" {}{}", wait.round_before ? "~" : "",
                         wait.run_before ? wait.instr - instrs.past() : wait.instr.number());
    out += "\n";
  }
  while (segments.has(segment)) out += "segment " + segments[segment++].name() + "\n";
  return out;
}

Program parse_program(std::string_view text) {
  Reader reader;
  while (!text.empty()) {
    size_t end = text.find('\n');
    reader.line(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  // Now that the number of instructions is known, negative numbers are resolved to instructions of
  // the run before.
  for (Instr& in : reader.program.instrs) {
    for (Wait& wait : in.waits)
      if (wait.run_before) wait.instr = reader.program.instrs.past() + wait.instr.number();
  }
  return std::move(reader.program);
}

}  // namespace ds
