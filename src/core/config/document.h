#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"

namespace ds {

// Why a part of the parse may refuse a key: for itself, or for what other keys say.
enum class Causes { itself, others };

// Keeps a refusal, unless other keys that were refused are its cause. Its message ends with the
// anchor of docs/reference/config.md that describes its key or, if given, the key `described`.
void keep_refusal(ConfigRefusals& refusals, Causes causes, const Error& error,
                  const std::string& described);

// Runs a part of the parse; what it refuses is kept.
template <typename Part>
void collect(ConfigRefusals& refusals, Causes causes, Part part,
             const std::string& described = "") {
  try {
    part();
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_CONFIG) throw;
    keep_refusal(refusals, causes, error, described);
  }
}

// The samples of a micro-batch that Hugging Face's integration fills in.
inline constexpr int64_t kAutoMicroBatch = 8;

// The origin of a value that was given and is refused.
inline constexpr const char* kRefused = "refused";

struct Given {
  Json value;
  const char* origin;  // "config" or "auto"
};

// The values of a document by canonical path, in reading order. Refusals of reading go where
// collect() puts them, warnings into the configuration.
class ConfigDocument {
 public:
  ConfigDocument(ConfigRefusals& refusals, Config& config);

  void read(const Json& section, const std::string& prefix);
  const Given* find(const std::string& path) const;  // null: not given
  // Whether the key was given as "auto" and waits for others: the learning rate, run.steps, the
  // model's width.
  bool waits(const std::string& path) const { return waiting_.contains(path); }

  static constexpr const char* kMaxGradNorm = "optimizer.params.max_grad_norm";

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
  std::map<std::string, std::string> names_;  // accepted name -> canonical path
  std::set<std::string> sections_;            // every path that holds others
  std::set<std::string> whole_;               // sections that are checked as one value
  std::set<std::string> waiting_;  // canonical paths that were given as "auto" and wait for others
  std::vector<std::string> known_;
  std::set<std::string> read_;  // sections that the document has
  std::map<std::string, std::string> given_as_;
  std::vector<std::pair<std::string, Given>> values_;
};

}  // namespace ds
