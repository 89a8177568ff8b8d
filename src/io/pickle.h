#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Python's pickle format as data. Nothing is imported, called or run: what a pickle would call
// becomes an object that knows the name of the function and its arguments.

// A value, by its number in the document. Values may contain themselves.
using PickleId = uint32_t;

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,  // of at most 64 bits
    large,    // a longer integer: text has its bytes
    number,   // a double
    text,     // UTF-8, or bytes
    tuple,    // also sets: items
    list,     // items
    dict,     // items: key, value, key, value, ...
    global,   // text: "module.name"
    object,   // items: what makes it (a global or an object), its arguments (a tuple), then the
             // states that were given to it
    persistent,  // items: its number, which the format around the pickle explains
  };
  Kind kind = Kind::none;
  bool truth = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<PickleId> items;
  std::vector<PickleId> members;  // of an object that was filled like a list or a dict: as of these
};

// One pickle of protocol 0 to 5 as far as torch.save and DeepSpeed's checkpoints need it. Throws
// DS_ERROR_CORRUPT naming `source` for one that is cut off or damaged, DS_ERROR_UNSUPPORTED for an
// opcode that no such file has, and for one that names a function of the system, which is not
// called but has no place in a checkpoint. Takes memory in proportion to `bytes`.
class Pickle {
 public:
  Pickle() = default;
  Pickle(std::string_view bytes, std::string source);

  PickleId root() const { return root_; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  size_t size() const { return values_.size(); }
  size_t end() const { return end_; }  // bytes read: another pickle may follow
  const std::string& source() const { return source_; }

  // The value of a key of a dict, or of an object that was filled like one; nullptr without it.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // "torch._utils._rebuild_tensor_v2" of an object that this function makes; "" of anything else.
  std::string_view maker(const PickleValue& value) const;
  // Items of a tuple, list or set; of an object that is filled like a list, its members. Empty of
  // others.
  const std::vector<PickleId>& elements(const PickleValue& value) const;
  // Keys and values in turn, of a dict or an object that is filled like one (OrderedDict).
  const std::vector<PickleId>& pairs(const PickleValue& value) const;

 private:
  friend class PickleParser;
  std::vector<PickleValue> values_;
  PickleId root_ = 0;
  size_t end_ = 0;
  std::string source_;
};

// A pickle of protocol 2, written piece by piece.
class PickleWriter {
 public:
  PickleWriter& none() { return put("N"); }
  PickleWriter& boolean(bool value) { return put(value ? "\x88" : "\x89"); }
  PickleWriter& integer(int64_t value);
  PickleWriter& number(double value);
  PickleWriter& text(std::string_view value);
  PickleWriter& global(std::string_view module, std::string_view name);
  PickleWriter& empty_tuple() { return put(")"); }
  PickleWriter& empty_dict() { return put("}"); }
  PickleWriter& empty_list() { return put("]"); }
  PickleWriter& mark() { return put("("); }
  PickleWriter& tuple() { return put("t"); }  // of what follows the mark
  PickleWriter& items() {
    return put("u");
  }  // keys and values behind the mark go to the dict before it
  PickleWriter& appends() { return put("e"); }
  PickleWriter& persistent() { return put("Q"); }
  PickleWriter& reduce() { return put("R"); }
  PickleWriter& new_object() { return put("\x81"); }  // of the class and the arguments before it
  PickleWriter& build() { return put("b"); }  // gives the object before it the members of the dict
  std::string finish() const { return bytes_ + "."; }

 private:
  PickleWriter& put(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  std::string bytes_ = "\x80\x02";
};

}  // namespace ds
