#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Reads Python's pickle format as data. Nothing is imported, called or run: where a pickle would
// call a function, the result is an object with the name of the function and its arguments.

// Index of a value in its pickle. Values may contain themselves.
using PickleId = uint32_t;

// One value of a pickle.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    // An integer of at most 64 bits.
    integer,
    // A longer integer; `text` has its bytes.
    large,
    // A double.
    number,
    // A string in UTF-8, or bytes.
    text,
    // A tuple or a set; `items` has its elements.
    tuple,
    // A list; `items` has its elements.
    list,
    // A dictionary; `items` has keys and values alternately.
    dict,
    // A global name; `text` is "module.name".
    global,
    // The result of a call. `items` has the maker (a global or an object), its arguments (a tuple),
    // and then the states that were assigned to the object.
    object,
    // A persistent id, whose meaning the enclosing file format defines; `items` has one value, the
    // id.
    persistent,
  };
  Kind kind = Kind::none;
  bool truth = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<PickleId> items;
  // Items that were added to an object as if it were a list or a dict, in the form of `items`.
  std::vector<PickleId> members;
};

// A pickle of protocol 0 to 5, as far as torch.save and DeepSpeed's checkpoints need it. The
// constructor throws DS_ERROR_CORRUPT naming `source` if the pickle is truncated or damaged, and
// DS_ERROR_UNSUPPORTED for an instruction that no such file contains, for too many values, and for
// the name of a system function: it would not be called, but has no place in a checkpoint. Needs
// memory in proportion to `bytes`.
class Pickle {
 public:
  Pickle() = default;
  Pickle(std::string_view bytes, std::string source);

  PickleId root() const { return root_; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  size_t size() const { return values_.size(); }
  // Number of bytes that were parsed; another pickle may follow them.
  size_t end() const { return end_; }
  const std::string& source() const { return source_; }

  // Returns the value of a key in a dict, or in an object that was filled like a dict. Returns null
  // if the key is missing or the value is neither.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // Returns the name of the function that creates an object, such as
  // "torch._utils._rebuild_tensor_v2", or "" for any other value.
  std::string_view maker(const PickleValue& value) const;
  // Returns the items of a tuple, list or set, or the members of an object that was filled like a
  // list. Returns an empty list for other values.
  const std::vector<PickleId>& elements(const PickleValue& value) const;
  // Returns the keys and values, alternately, of a dict or of an object that was filled like a dict
  // (OrderedDict). Returns an empty list for other values.
  const std::vector<PickleId>& pairs(const PickleValue& value) const;

 private:
  friend class PickleParser;
  std::vector<PickleValue> values_;
  PickleId root_ = 0;
  size_t end_ = 0;
  std::string source_;
};

// A pickle of protocol 2 that is being written, one instruction for each call. Instructions push
// values onto a stack, or replace the values at its top by a value that contains them.
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
  // Creates a tuple of the values after the last mark.
  PickleWriter& tuple() { return put("t"); }
  // Adds the keys and values after the last mark to the dict below it.
  PickleWriter& items() { return put("u"); }
  PickleWriter& appends() { return put("e"); }
  PickleWriter& persistent() { return put("Q"); }
  PickleWriter& reduce() { return put("R"); }
  // Creates an object from the class and the arguments below it on the stack.
  PickleWriter& new_object() { return put("\x81"); }
  // Sets the members of the object below the dict at the top of the stack from that dict.
  PickleWriter& build() { return put("b"); }
  std::string finish() const { return bytes_ + "."; }

 private:
  PickleWriter& put(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  std::string bytes_ = "\x80\x02";
};

}  // namespace ds
