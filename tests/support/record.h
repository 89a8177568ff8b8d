// Recorded numbers that are read whole: a field that a test does not know is a failure of this
// test, so that nothing in a recording is passed over.
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

// How far numbers may be from recorded ones.
struct Tolerance {
  double rtol = 0, atol = 0;
  double of(double want) const;
};
Tolerance tolerance_of(const Json& given);

// An object of a recording, which outlives it. Every field must have been asked for, by a name that
// it has, when the record goes; a field that says something to the reader alone is told(). Threads
// may share one.
class Record {
 public:
  Record(const Json& object, std::string where);
  Record(Record&&) = default;
  Record& operator=(Record&&) = delete;
  ~Record();

  const Json& at(std::string_view name) const;
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // A member that is an object, and a member that is a list of objects.
  Record inside(std::string_view name) const;
  std::vector<Record> list(std::string_view name) const;
  // Fields that decide nothing, where they are there.
  void told(std::initializer_list<const char*> names) const;
  // The whole of it, to be read by what refuses strangers itself.
  const Json& all() const;
  // The same as input alone: its fields are still to be asked for.
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

// A recorded file: fields about the recording itself, and lists of records.
class Recording {
 public:
  // path: as semantics_path() and data_path() give it. lists: all that tests read of it between
  // them, and what libds has nothing to compare with.
  Recording(const std::string& path, std::initializer_list<const char*> lists);
  std::vector<Record> list(const std::string& name) const;
  // The tolerance of all of it, or of a kind of case.
  Tolerance tolerance(const std::string& kind = "") const;
  const Json& document() const { return document_; }

 private:
  Json document_;
  std::string path_;
};

}  // namespace ds::test
