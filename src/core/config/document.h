#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Returns whether "auto" may be given for a key or a section.
bool takes_auto(const std::string& path);

// The micro-batch size that Hugging Face's integration fills in.
inline constexpr int64_t kAutoMicroBatch = 8;

// The origin of a key whose given value was refused.
inline constexpr const char* kRefused = "refused";

// A value that the document gives for a key.
struct Given {
  Json value;
  // "config" or "auto".
  const char* origin;
};

// The values of a document by canonical path, in the order of reading. Refusals are added to
// `refusals` and warnings to `config`; both are borrowed.
class ConfigDocument {
 public:
  ConfigDocument(ConfigRefusals& refusals, Config& config);

  void read(const Json& section, const std::string& prefix);
  // Returns null if the document does not give the key.
  const Given* find(const std::string& path) const;
  // Returns whether the key was given as "auto" and waits for the value from which it is derived:
  // the micro-batch, the learning rate, run.steps or the model's width.
  bool waits(const std::string& path) const { return waiting_.contains(path); }

 private:
  void add(const std::string& name, const std::string& canonical);
  void member(const std::string& path, const Json& value);
  std::string meant_inside(const std::string& path, const Json& value) const;
  void unknown(const std::string& path);
  void warn_of_stranger(const std::string& name);
  void dotted(const std::string& prefix, const std::string& name);
  void automatic(const std::string& canonical, const std::string& name);
  bool is_given(const std::string& path) const {
    return given_as_.contains(path) || read_.contains(path);
  }
  void claim(const std::string& canonical, const std::string& name);
  void give(const std::string& canonical, const std::string& name, const Json& value,
            const char* origin);

  ConfigRefusals& refusals_;
  Config& config_;
  // Canonical paths by accepted name.
  std::map<std::string, std::string> names_;
  // The paths of all sections.
  std::set<std::string> sections_;
  // Sections that check_foreign() checks as one value.
  std::set<std::string> whole_;
  // Canonical paths of the keys for which waits() holds.
  std::set<std::string> waiting_;
  // All names and sections, from which suggestions for a misspelt key are chosen.
  std::vector<std::string> known_;
  // Sections that the document has.
  std::set<std::string> read_;
  // The name under which each canonical path was given.
  std::map<std::string, std::string> given_as_;
  std::vector<std::pair<std::string, Given>> values_;
};

}  // namespace ds
