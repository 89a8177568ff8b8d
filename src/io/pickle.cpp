// Reads pickles without running them.
//
// Problem. A pickle is a program for a stack machine whose instructions may import and call any
// function, so loading one executes whatever its author wants. The files of torch and DeepSpeed are
// pickles, although their content is plain data except for a few functions that create tensors and
// dictionaries.
//
// Invariant. Every instruction of this machine only creates values: a call creates an `object` that
// names the function. There is therefore no list of functions that are safe to call. The list of
// refused modules below only warns the user: a file that names one of them was probably made to
// attack its reader. Every instruction has at least one byte, and creates at most one value, so
// values and time are bounded by the size of the pickle, and values also by kMostValues. Strings
// are copied once, and memory for a size that the pickle claims is allocated only after checking
// that as many bytes exist.
//
// Algorithm. The machine has a stack of value indices, marks that are positions in the stack, and a
// memo. Values are stored in one table and refer to each other by index, so cycles are harmless and
// nothing recurses.
//
// Source. Lib/pickletools.py of CPython 3.12 describes each instruction.
#include "io/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {

using Kind = PickleValue::Kind;

namespace {

// Modules that malicious pickles use. A name also covers every name below it, such as "os.path".
constexpr std::array<std::string_view, 28> kSystem{"os",
                                                   "posix",
                                                   "nt",
                                                   "subprocess",
                                                   "sys",
                                                   "socket",
                                                   "shutil",
                                                   "pty",
                                                   "importlib",
                                                   "runpy",
                                                   "ctypes",
                                                   "commands",
                                                   "platform",
                                                   "webbrowser",
                                                   "code",
                                                   "codeop",
                                                   "builtin",
                                                   "asyncio",
                                                   "threading",
                                                   "multiprocessing",
                                                   "signal",
                                                   "tempfile",
                                                   "pathlib.Path.unlink",
                                                   "pickle",
                                                   "_pickle",
                                                   "marshal",
                                                   "types.CodeType",
                                                   "torch.hub"};
// Built-in names of Python that a pickle may use: data types.
constexpr std::array<std::string_view, 15> kBuiltins{
    "set",   "frozenset", "dict",  "list",    "tuple",     "int",    "float", "str",
    "bytes", "bool",      "slice", "complex", "bytearray", "object", "range"};

// The largest number of values in a pickle. A value needs about a hundred bytes of memory;
// DeepSpeed's pickles have some dozens of values for each tensor.
constexpr size_t kMostValues = size_t{4} << 20;

bool is_below(std::string_view name, std::string_view module) {
  return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
}

bool is_system(std::string_view name) {
  for (std::string_view python : {"builtins.", "__builtin__."}) {
    if (name.starts_with(python)) {
      return !contains(kBuiltins, name.substr(python.size()));
    }
  }
  return std::ranges::any_of(kSystem, [&](auto module) { return is_below(name, module); });
}

}  // namespace

class PickleParser {
 public:
  PickleParser(std::string_view bytes, Pickle& out) : bytes_(bytes), out_(out) {}

  void parse() {
    while (!done_) step();
    if (stack_.size() != 1 || !marks_.empty()) corrupt("more than one value is left at its end");
    out_.root_ = stack_[0];
    out_.end_ = at_;
  }

 private:
  [[noreturn]] void corrupt(std::string_view fault) const {
    raise(DS_ERROR_CORRUPT, "{}: the pickle is damaged at byte {}: {}", out_.source_, at_, fault);
  }

  // Returns the next `count` bytes. The bound is checked before a size is used, so a false size
  // cannot cause a read beyond the end or an allocation.
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) corrupt("it ends early");
    std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  template <typename Number>
  Number take() {
    Number value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) corrupt("a line has no end");
    std::string_view part = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return part;
  }

  PickleValue& make(Kind kind) {
    if (out_.values_.size() >= kMostValues) {
      raise(DS_ERROR_UNSUPPORTED, "{}: the pickle has more than {} values", out_.source_,
            kMostValues);
    }
    stack_.push_back(static_cast<PickleId>(out_.values_.size()));
    out_.values_.emplace_back();
    out_.values_.back().kind = kind;
    return out_.values_.back();
  }
  void make_integer(int64_t value) { make(Kind::integer).integer = value; }
  void make_text(std::string_view value) { make(Kind::text).text = value; }
  void make_global(std::string name) {
    if (is_system(name)) {
      raise(DS_ERROR_UNSUPPORTED,
            "{}: asks for '{}', which no checkpoint needs: the file may have been made to attack "
            "its reader; no part of it was run",
            out_.source_, name);
    }
    make(Kind::global).text = std::move(name);
  }

  // Index of the lowest stack entry that may be popped. Values below the last mark belong to an
  // enclosing container.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleId pop() {
    if (stack_.size() <= floor()) corrupt("a value is missing");
    PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) corrupt("a value is missing");
    return out_.values_[stack_.back()];
  }
  std::vector<PickleId> pop_mark() {
    if (marks_.empty()) corrupt("a mark is missing");
    std::vector<PickleId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void make_of(Kind kind, std::vector<PickleId> items) { make(kind).items = std::move(items); }
  void make_tuple(size_t count) {
    std::vector<PickleId> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    make_of(Kind::tuple, std::move(items));
  }
  // Adds items to a list or dict, or to the members of an object.
  void extend(const std::vector<PickleId>& more, Kind kind) {
    PickleValue& value = top();
    if (value.kind != kind && value.kind != Kind::object &&
        !(kind == Kind::list && value.kind == Kind::tuple))
      corrupt("an item is added to a value that is not a container");
    auto& items = value.kind == Kind::object ? value.members : value.items;
    items.insert(items.end(), more.begin(), more.end());
    if (kind == Kind::dict && more.size() % 2 != 0) corrupt("a key has no value");
  }
  void call() {
    PickleId arguments = pop(), maker = pop();
    Kind kind = out_.values_[maker].kind;
    if (kind != Kind::global && kind != Kind::object)
      corrupt("a value is called that is not a function");
    make_of(Kind::object, {maker, arguments});
  }
  void build() {
    PickleId state = pop();
    PickleValue& value = top();
    if (value.kind == Kind::object)
      value.items.push_back(state);
    else
      corrupt("a state is given to a value that is not an object");
  }
  void keep(uint64_t key) { top(), memo_[key] = stack_.back(); }
  void recall(uint64_t key) {
    auto it = memo_.find(key);
    if (it == memo_.end()) corrupt("an instruction reads a value that was not stored");
    stack_.push_back(it->second);
  }
  uint64_t key_line() {
    std::string_view digits = line();
    uint64_t key = 0;
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), key);
    if (code != std::errc{} || end != digits.data() + digits.size())
      corrupt("a number is expected");
    return key;
  }
  void integer_line() {
    std::string_view digits = line();
    if (!digits.empty() && digits.back() == 'L') digits.remove_suffix(1);
    if (digits == "00" || digits == "01") {
      make(Kind::boolean).truth = digits == "01";
      return;
    }
    int64_t value = 0;
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code == std::errc::result_out_of_range) {
      make(Kind::large).text = digits;
      return;
    }
    if (code != std::errc{} || end != digits.data() + digits.size())
      corrupt("an integer is expected");
    make_integer(value);
  }
  void number_line() {
    std::string_view digits = line();
    double value = 0;
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code == std::errc::invalid_argument || end != digits.data() + digits.size())
      corrupt("a number is expected");
    make(Kind::number).number = value;
  }
  // Reads an integer of `count` little-endian bytes in two's complement.
  void long_bytes(uint64_t count) {
    std::string_view part = take(count);
    if (part.size() > sizeof(int64_t)) {
      make(Kind::large).text = part;
      return;
    }
    uint64_t value = 0;
    std::memcpy(&value, part.data(), part.size());
    bool negative = !part.empty() && (static_cast<unsigned char>(part.back()) & 0x80) != 0;
    if (negative && part.size() < sizeof value) value |= ~uint64_t{0} << (8 * part.size());
    make_integer(std::bit_cast<int64_t>(value));
  }
  void big_endian_number() {
    auto bits = take<uint64_t>();
    make(Kind::number).number = std::bit_cast<double>(__builtin_bswap64(bits));
  }
  void stack_global() {
    PickleId name = pop(), module = pop();
    if (out_.values_[name].kind != Kind::text || out_.values_[module].kind != Kind::text)
      corrupt("a name is not a text");
    make_global(out_.values_[module].text + "." + out_.values_[name].text);
  }
  void global_line() {
    std::string module(line());
    make_global(module + "." + std::string(line()));
  }

  void step() {
    auto op = take<uint8_t>();
    if (!scalar(op) && !container(op) && !control(op)) {
      if (op < 0x20 || op > 0x7e)
        raise(DS_ERROR_UNSUPPORTED,
              "{}: the pickle has the unsupported instruction 0x{:02x} at byte {}", out_.source_,
              op, at_ - 1);
      raise(DS_ERROR_UNSUPPORTED, "{}: the pickle has the unsupported instruction '{}' at byte {}",
            out_.source_, static_cast<char>(op), at_ - 1);
    }
  }

  bool scalar(uint8_t op) {
    switch (op) {
      case 'N':
        make(Kind::none);
        return true;
      case 0x88:
        make(Kind::boolean).truth = true;
        return true;
      case 0x89:
        make(Kind::boolean);
        return true;
      case 'I':
      case 'L':
        integer_line();
        return true;
      case 'J':
        make_integer(take<int32_t>());
        return true;
      case 'K':
        make_integer(take<uint8_t>());
        return true;
      case 'M':
        make_integer(take<uint16_t>());
        return true;
      case 0x8a:
        long_bytes(take<uint8_t>());
        return true;
      case 0x8b:
        long_bytes(take<uint32_t>());
        return true;
      case 'F':
        number_line();
        return true;
      case 'G':
        big_endian_number();
        return true;
      case 'U':
      case 0x8c:
      case 'C':
        make_text(take(take<uint8_t>()));
        return true;
      case 'T':
      case 'X':
      case 'B':
        make_text(take(take<uint32_t>()));
        return true;
      case 0x8d:
      case 0x8e:
      case 0x96:
        make_text(take(take<uint64_t>()));
        return true;
      case 'c':
        global_line();
        return true;
      case 0x93:
        stack_global();
        return true;
      default:
        return false;
    }
  }

  bool container(uint8_t op) {
    switch (op) {
      case ']':
        make(Kind::list);
        return true;
      case '}':
        make(Kind::dict);
        return true;
      case ')':
      case 0x8f:
        make(Kind::tuple);
        return true;
      case 'l':
        make_of(Kind::list, pop_mark());
        return true;
      case 't':
      case 0x91:
        make_of(Kind::tuple, pop_mark());
        return true;
      case 'd':
        make_of(Kind::dict, pop_mark());
        if (top().items.size() % 2 != 0) corrupt("a key has no value");
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        make_tuple(op - 0x84u);
        return true;
      case 'a': {
        PickleId item = pop();
        extend({item}, Kind::list);
        return true;
      }
      case 'e':
      case 0x90:
        extend(pop_mark(), Kind::list);
        return true;
      case 's': {
        PickleId value = pop(), key = pop();
        extend({key, value}, Kind::dict);
        return true;
      }
      case 'u':
        extend(pop_mark(), Kind::dict);
        return true;
      default:
        return false;
    }
  }

  bool control(uint8_t op) {
    switch (op) {
      case 0x80:
        if (take<uint8_t>() > 5) corrupt("its protocol is unknown");
        return true;
      case 0x95:
        // Frames only help readers that buffer, so they are ignored.
        take<uint64_t>();
        return true;
      case '.':
        done_ = true;
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        if (stack_.size() == floor() && !marks_.empty())
          marks_.pop_back();
        else
          pop();
        return true;
      case '1':
        pop_mark();
        return true;
      case '2':
        top();
        stack_.push_back(stack_.back());
        return true;
      case 'p':
        keep(key_line());
        return true;
      case 'q':
        keep(take<uint8_t>());
        return true;
      case 'r':
        keep(take<uint32_t>());
        return true;
      case 0x94:
        keep(memo_.size());
        return true;
      case 'g':
        recall(key_line());
        return true;
      case 'h':
        recall(take<uint8_t>());
        return true;
      case 'j':
        recall(take<uint32_t>());
        return true;
      case 'R':
      case 0x81:
        call();
        return true;
      case 0x92:
        // A call with keyword arguments, which no supported file needs. The keywords are dropped.
        pop(), call();
        return true;
      case 'b':
        build();
        return true;
      case 'Q': {
        PickleId number = pop();
        make_of(Kind::persistent, {number});
        return true;
      }
      default:
        return false;
    }
  }

  std::string_view bytes_;
  Pickle& out_;
  size_t at_ = 0;
  bool done_ = false;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleId> memo_;
};

Pickle::Pickle(std::string_view bytes, std::string source) : source_(std::move(source)) {
  PickleParser(bytes, *this).parse();
}

std::string_view Pickle::maker(const PickleValue& value) const {
  if (value.kind != Kind::object) return "";
  const PickleValue& made_by = values_[value.items[0]];
  return made_by.kind == Kind::global ? std::string_view(made_by.text) : "";
}

const std::vector<PickleId>& Pickle::elements(const PickleValue& value) const {
  static const std::vector<PickleId> nothing;
  if (value.kind == Kind::tuple || value.kind == Kind::list) return value.items;
  return value.kind == Kind::object ? value.members : nothing;
}

const std::vector<PickleId>& Pickle::pairs(const PickleValue& value) const {
  static const std::vector<PickleId> nothing;
  const auto& all = value.kind == Kind::dict     ? value.items
                    : value.kind == Kind::object ? value.members
                                                 : nothing;
  return all.size() % 2 == 0 ? all : nothing;
}

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  const std::vector<PickleId>& all = pairs(dict);
  // If a key appears several times, its last value counts.
  for (size_t i = all.size(); i >= 2; i -= 2) {
    const PickleValue& name = values_[all[i - 2]];
    if (name.kind == Kind::text && name.text == key) return &values_[all[i - 1]];
  }
  return nullptr;
}

namespace {

template <typename Number>
std::string raw(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

PickleWriter& PickleWriter::integer(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) return put("J" + raw(static_cast<int32_t>(value)));
  return put("\x8a\x08" + raw(value));
}

PickleWriter& PickleWriter::number(double value) {
  return put("G" + raw(__builtin_bswap64(std::bit_cast<uint64_t>(value))));
}

PickleWriter& PickleWriter::text(std::string_view value) {
  put("X" + raw(static_cast<uint32_t>(value.size())));
  return put(value);
}

PickleWriter& PickleWriter::global(std::string_view module, std::string_view name) {
  put("c");
  put(module).put("\n");
  return put(name).put("\n");
}

}  // namespace ds
