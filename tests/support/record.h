// Readers of recorded numbers. A field that a test does not read makes the test fail, so that
// nothing in a recording is ignored by accident.
#pragma once
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"

namespace ds::test {

// The allowed distance between a number and its recorded value.
struct Tolerance {
  double rtol = 0, atol = 0;
  double of(double want) const;
};
Tolerance tolerance_of(const Json& given);

// A view of an object in a recording, which must outlive the view. Every field must be read by name
// before the view is destroyed; told() marks fields that only inform the reader. Threads may share
// a record.
class Record {
 public:
  Record(const Json& object, std::string where);
  Record(Record&&) = default;
  Record& operator=(Record&&) = delete;
  ~Record();

  const Json& at(std::string_view name) const;
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Returns a member that is an object. list() returns the elements of a member that is a list of
  // objects.
  Record inside(std::string_view name) const;
  std::vector<Record> list(std::string_view name) const;
  // Marks these fields as read, if they exist, because they only inform the reader.
  void told(std::initializer_list<const char*> names) const;
  // Returns the whole object and marks all fields as read, for a caller that refuses unknown fields
  // itself.
  const Json& all() const;
  // Returns the whole object without marking its fields, which must still be read by name.
  const Json& all_unread() const { return *json_; }
  std::string dump() const { return json_->dump(); }

 private:
  struct Read {
    std::mutex mutex;
    std::set<std::string, std::less<>> names;
  };
  void note(std::string_view name) const;

  const Json* json_;
  std::string where_;
  std::unique_ptr<Read> read_;
  int exceptions_;
};

Json read_json(const std::string& path);

// A recorded file: metadata about the recording, and lists of records.
class Recording {
 public:
  // `path` is from semantics_path() or data_path(). `lists` names all lists that the tests together
  // read, and those that have no counterpart in libds.
  Recording(const std::string& path, std::initializer_list<const char*> lists);
  std::vector<Record> list(const std::string& name) const;
  // Returns the tolerance of the whole recording, or that of one kind of case.
  Tolerance tolerance(const std::string& kind = "") const;
  const Json& document() const { return document_; }

 private:
  Json document_;
  std::string path_;
};

}  // namespace ds::test
