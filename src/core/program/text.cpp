#include <charconv>
#include <map>

#include "core/base/error.h"
#include "core/program/program.h"

namespace ds {
namespace {

constexpr const char* kQueueNames[kQueues] = {"comp", "host", "comm", "copy", "read", "write"};
constexpr const char* kTierNames[3] = {"dev", "host", "nvme"};
constexpr const char* kAccessMarks[3] = {"", "=", "&"};  // read, write, update

std::string operand_text(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers.at(static_cast<size_t>(operand.buffer));
  std::string out = operand.last ? "!" : "";
  out += kAccessMarks[static_cast<int>(operand.access)];
  out += "%" + buffer.name;
  if (operand.begin != 0) out += "+" + std::to_string(operand.begin);
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

// "key=123" -> 123
int64_t field(std::string_view word, std::string_view key) {
  require(word.substr(0, key.size()) == key && word.size() > key.size() && word[key.size()] == '=',
          "program text must have {}=, got '{}'", key, word);
  return number(word.substr(key.size() + 1));
}

int index_of(const char* const* names, int count, std::string_view name, const char* what) {
  for (int i = 0; i < count; ++i) {
    if (name == names[i]) return i;
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "program text has no {} '{}'", what, name);
}

TensorType parse_type(std::string_view text) {
  size_t bracket = text.find('[');
  require(bracket != std::string_view::npos, "type must be like f32[n,8], got '{}'", text);
  return {parse_dtype(text.substr(0, bracket)), Shape::parse(text.substr(bracket))};
}

class Reader {
 public:
  Program program;

  void line(std::string_view text) {
    std::vector<std::string> w = words(text);
    if (w.empty() || w[0] == ";") return;
    if (w[0] == "program") return header(w);
    if (w[0] == "arena") return arena(w);
    if (w[0] == "buffer") return buffer(w);
    if (w[0] == "segment") {
      program.segments.push_back({w.at(1), static_cast<InstrId>(program.instrs.size())});
      return;
    }
    instr(w);
  }

 private:
  void header(const std::vector<std::string>& w) {
    program.name = w.at(1);
    program.rank = static_cast<int>(field(w.at(2), "rank"));
    program.world = static_cast<int>(field(w.at(3), "world"));
    program.bound = field(w.at(4), "n");
  }
  void arena(const std::vector<std::string>& w) {
    ArenaSizes& a = program.arenas[index_of(kTierNames, 3, w.at(1), "tier")];
    a.persistent = field(w.at(2), "persistent");
    a.transient = field(w.at(3), "transient");
  }
  // buffer %name dev f32[123] persistent @offset
  void buffer(const std::vector<std::string>& w) {
    Buffer b;
    b.name = w.at(1).substr(1);
    b.tier = static_cast<Tier>(index_of(kTierNames, 3, w.at(2), "tier"));
    TensorType type = parse_type(w.at(3));
    b.dtype = type.dtype;
    b.numel = type.shape.rank() == 0 ? 0 : type.shape[0].extent;
    b.residency = w.at(4) == "persistent" ? Residency::persistent : Residency::transient;
    b.offset = number(std::string_view(w.at(5)).substr(1));
    names_[b.name] = static_cast<BufferId>(program.buffers.size());
    program.buffers.push_back(std::move(b));
  }
  // 12 comp linear !%x:f32[n,8] %w:... =%y:... {attrs} micro=0 #6 wait 3 9
  void instr(const std::vector<std::string>& w) {
    Instr in;
    in.queue = static_cast<Queue>(index_of(kQueueNames, kQueues, w.at(1), "queue"));
    in.op = w.at(2);
    in.segment = static_cast<int32_t>(program.segments.size());
    bool waits = false;
    for (size_t i = 3; i < w.size(); ++i) {
      const std::string& word = w[i];
      if (waits) {
        in.waits.push_back(static_cast<InstrId>(number(word)));
      } else if (word == "wait") {
        waits = true;
      } else if (word[0] == '{') {
        in.attrs = Attrs::parse(word);
      } else if (word[0] == '#') {
        in.comm_order = static_cast<int32_t>(number(std::string_view(word).substr(1)));
      } else if (word.find('%') != std::string::npos) {
        in.operands.push_back(operand(word));
      } else {
        in.micro = static_cast<int32_t>(field(word, "micro"));
      }
    }
    program.instrs.push_back(std::move(in));
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
      o.begin = number(name.substr(plus + 1));
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

std::string Program::print() const {
  std::string out = fmt::format("program {} rank={} world={} n={}\n", name, rank, world, bound);
  for (int t = 0; t < 3; ++t) {
    out += fmt::format("arena {} persistent={} transient={}\n", kTierNames[t], arenas[t].persistent,
                       arenas[t].transient);
  }
  for (const Buffer& b : buffers) {
    out += fmt::format("buffer %{} {} {}[{}] {} @{}\n", b.name, kTierNames[static_cast<int>(b.tier)],
                       dtype_name(b.dtype), b.numel,
                       b.residency == Residency::persistent ? "persistent" : "transient", b.offset);
  }
  size_t segment = 0;
  for (size_t i = 0; i < instrs.size(); ++i) {
    while (segment < segments.size() && segments[segment].end <= static_cast<InstrId>(i)) {
      out += "segment " + segments[segment++].name + "\n";
    }
    const Instr& in = instrs[i];
    out += fmt::format("{} {} {}", i, queue_name(in.queue), in.op);
    for (const Operand& o : in.operands) out += " " + operand_text(*this, o);
    if (!in.attrs.empty()) out += " " + in.attrs.print();
    if (in.micro != 0) out += fmt::format(" micro={}", in.micro);
    if (in.comm_order >= 0) out += fmt::format(" #{}", in.comm_order);
    if (!in.waits.empty()) out += " wait";
    for (InstrId wait : in.waits) out += fmt::format(" {}", wait);
    out += "\n";
  }
  while (segment < segments.size()) out += "segment " + segments[segment++].name + "\n";
  return out;
}

Program parse_program(std::string_view text) {
  Reader reader;
  while (!text.empty()) {
    size_t end = text.find('\n');
    reader.line(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return std::move(reader.program);
}

}  // namespace ds
