// Converts a manifest to JSON text and back.
//
// Problem. The manifest decides whether a folder is a checkpoint. A damaged or hostile one must
// therefore be refused with an error that names the wrong member, and must never lead to a read
// beyond the end of a file or to unbounded memory use.
// Invariant. A Manifest that parse_manifest() returns is consistent in itself: its hash matches,
// its pieces tile every tensor of every kind once, and every name that it mentions is one of its
// tensors. Comparing it with the files is left to StateFiles.
// Algorithm. The hash covers the printed form of all members before it, so Manifest::print() and
// check_hash() must print alike. If an optional member is absent, its default is the behavior of
// the versions that did not have it.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <span>
#include <system_error>
#include <tuple>

#include "checkpoint/pieces.h"
#include "checkpoint/state_access.h"
#include "core/base/contains.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/config/loss_scaler.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

constexpr std::string_view kSuffix = ".safetensors";

// Returns the pieces of one tensor as JSON, starting at m.pieces[next], and advances `next` past
// them.
Json print_pieces(const Manifest& m, size_t& next, size_t kind, size_t tensor) {
  Json::Array out;
  for (; next < m.pieces.size(); ++next) {
    const Piece& p = m.pieces[next];
    if (static_cast<size_t>(p.kind) != kind || static_cast<size_t>(p.tensor) != tensor) break;
    Json::Array row{p.begin, p.count};
    if (p.rows != 1) row.insert(row.end(), {p.rows, p.stride});
    row.push_back(std::string(p.hash.data(), p.hash.size()));
    out.push_back(std::move(row));
  }
  return out;
}

void parse_pieces(Manifest& m, const Json& list, size_t kind, size_t tensor) {
  for (const Json& item : list.array()) {
    const Json::Array& row = item.array();
    bool known = row.size() == 3 || row.size() == 5;
    if (!known || row.back().string().size() != Piece{}.hash.size()) {
      raise(DS_ERROR_CORRUPT,
            "a piece must be [begin, count, 32 digits] or [begin, count, rows, stride, 32 digits], "
            "got {}",
            item.dump());
    }
    Piece p{static_cast<int32_t>(kind), static_cast<int32_t>(tensor), row[0].integer(),
            row[1].integer()};
    if (row.size() == 5) p.rows = row[2].integer(), p.stride = row[3].integer();
    std::copy_n(row.back().string().data(), p.hash.size(), p.hash.data());
    m.pieces.push_back(p);
  }
}

Json::Array print_shape(const std::vector<int64_t>& shape) { return {shape.begin(), shape.end()}; }

// Reads the kinds of state from the names of their files. The names become paths, so only
// lower-case letters, digits and underscores are accepted.
void parse_files(Manifest& m, const Json& files) {
  for (const auto& [name, file] : files.object()) {
    size_t stem = name.size() - std::min(name.size(), kSuffix.size());
    bool plain = std::all_of(
        name.begin(), name.begin() + static_cast<std::ptrdiff_t>(stem),
        [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
    if (stem == 0 || !plain || !name.ends_with(kSuffix)) {
      raise(DS_ERROR_CORRUPT, "'{}' is not a file name of a kind of state", name);
    }
    m.kinds.push_back(name.substr(0, stem));
    m.files.push_back({file.at("bytes").integer(), file.at("header").string()});
  }
  if (m.kinds.empty() || m.kinds[0] != kMasterName) {
    raise(DS_ERROR_CORRUPT, "the first kind of state must be {}, got '{}'", kMasterName,
          m.kinds.empty() ? "" : m.kinds[0]);
  }
}

void parse_tensors(Manifest& m, const Json& tensors, const Json& pieces) {
  for (const Json& item : tensors.array()) {
    ManifestTensor tensor{item.at("name").string(), {}};
    for (const Json& extent : item.at("shape").array()) tensor.shape.push_back(extent.integer());
    m.tensors.push_back(std::move(tensor));
  }
  for (size_t k = 0; k < m.kinds.size(); ++k) {
    const Json::Array& lists = pieces.at(m.kinds[k]).array();
    if (lists.size() != m.tensors.size()) {
      raise(DS_ERROR_CORRUPT, "pieces.{} must have a list for each of {} tensors, got {}",
            m.kinds[k], m.tensors.size(), lists.size());
    }
    for (size_t t = 0; t < lists.size(); ++t) parse_pieces(m, lists[t], k, t);
  }
}

// Reads the model folder that has the parameters which are not tensors of the checkpoint.
void parse_base(Manifest& m, const Json* base) {
  if (!base) return;
  for (const char* member : {"folder", "hash"}) {
    if (base->at(member).string().empty())
      raise(DS_ERROR_CORRUPT, "base.{} must not be empty, got \"\"", member);
  }
  base->at("adapters").object();
  m.info.base = *base;
}

// Reads the frozen parameters. Each must be a tensor, unless a base has it, and be named once, and
// at least one tensor must not be frozen.
void parse_frozen(Manifest& m, const Json& names) {
  std::set<std::string> left, seen;
  for (const ManifestTensor& t : m.tensors) left.insert(t.name);
  for (const Json& item : names.array()) {
    const std::string& name = item.string();
    const bool of_base = !m.info.base.is_null() && seen.insert(name).second;
    if (left.erase(name) == 0 && !of_base)
      raise(DS_ERROR_CORRUPT, "frozen names '{}', which is not a tensor or is named twice", name);
    m.info.frozen.push_back(name);
  }
  if (left.empty() && !m.info.frozen.empty())
    raise(DS_ERROR_CORRUPT, "frozen names all {} tensors, but at least one must be trained",
          m.tensors.size());
}

// Reads which frozen parameters have states. Older versions did not store this member: they stored
// states for all frozen parameters with at least one update.
void parse_frozen_with_states(Manifest& m, const Json* names) {
  const std::vector<std::string>& frozen = m.info.frozen;
  for (size_t i = 0; !names && i < frozen.size(); ++i) {
    const auto it = std::ranges::find_if(m.info.updates,
                                         [&](const auto& late) { return late.first == frozen[i]; });
    if ((it == m.info.updates.end() ? m.info.updates_taken() : it->second) > 0)
      m.info.frozen_with_states.push_back(frozen[i]);
  }
  if (!names) return;
  for (const Json& item : names->array()) {
    const std::string& name = item.string();
    if (!contains(frozen, name))
      raise(DS_ERROR_CORRUPT, "frozen_with_states has '{}', which is not frozen", name);
    m.info.frozen_with_states.push_back(name);
  }
}

// Reads the hyperparameters that were set by calls. The member is absent if nothing was set.
void parse_set(Manifest& m, const Json* groups) {
  if (!groups) return;
  for (const Json& group : groups->array()) {
    m.info.set_numbers.emplace_back();
    for (const auto& [name, value] : group.object()) {
      if (value.number() < 0)
        raise(DS_ERROR_CORRUPT, "set.{} must be at least 0, got {}", name, value.number());
      m.info.set_numbers.back()[name] = value.number();
    }
  }
}

// Prints the hyperparameters that were set by calls, without trailing groups in which nothing was
// set.
Json print_set(const CheckpointInfo& info) {
  Json::Array groups;
  size_t count = info.set_numbers.size();
  while (count > 0 && info.set_numbers[count - 1].empty()) --count;
  for (size_t g = 0; g < count; ++g) {
    Json numbers = Json::Object();
    for (const auto& [name, value] : info.set_numbers[g]) numbers.set(name, value);
    groups.push_back(std::move(numbers));
  }
  return groups;
}

// Reads the update counts of parameters that were updated less often than the run. The member is
// absent if there are no such parameters, and in files of older versions.
void parse_updates(Manifest& m, const Json* updates) {
  if (!updates) return;
  for (const auto& [name, value] : updates->object()) {
    int64_t count = value.integer();
    auto named = [&](const ManifestTensor& t) { return t.name == name; };
    if (std::ranges::none_of(m.tensors, named) &&
        (m.info.base.is_null() || !contains(m.info.frozen, name)))
      raise(DS_ERROR_CORRUPT, "updates names '{}', which is not a tensor", name);
    if (count < 0 || count >= m.info.updates_taken())
      raise(DS_ERROR_CORRUPT,
            "updates of '{}' must be 0 to {}, fewer than those of the run, got {}", name,
            m.info.updates_taken() - 1, count);
    m.info.updates.emplace_back(name, count);
  }
}

void parse_scaler(Manifest& m, const Json* scaler) {
  if (!scaler) return;
  LossScaler& s = m.info.scaler.emplace();
  s.scale = scaler->at("scale").number();
  s.steps = scaler->at("steps").integer();
  s.last_overflow = scaler->at("last_overflow").integer();
  s.hysteresis = scaler->at("hysteresis").integer();
  if (!(s.scale > 0) || !std::isfinite(s.scale))
    raise(DS_ERROR_CORRUPT, "loss_scaler: scale must be above 0 and finite, got {}", s.scale);
  if (s.steps < 0 || s.last_overflow < -1 || s.last_overflow >= std::max<int64_t>(s.steps, 1))
    raise(DS_ERROR_CORRUPT, "loss_scaler: last_overflow must be -1 to {}, got {}", s.steps - 1,
          s.last_overflow);
}

Json::Array print_rank_files(const std::vector<ManifestRankFile>& files) {
  Json::Array out;
  for (const ManifestRankFile& f : files)
    out.push_back(Json::Object{{"bytes", f.bytes}, {"hash", f.hash}});
  return out;
}

// Reads the sizes and hashes of files that each rank wrote for itself, from the member `name`. It
// is absent if there are none.
std::vector<ManifestRankFile> parse_rank_files(const Json& document, const char* name,
                                               int64_t world) {
  std::vector<ManifestRankFile> out;
  const Json* files = document.find(name);
  if (!files) return out;
  if (std::ssize(files->array()) != world)
    raise(DS_ERROR_CORRUPT, "{} lists {} files, but there were {} ranks", name,
          files->array().size(), world);
  for (const Json& item : files->array()) {
    out.push_back({item.at("bytes").integer(), item.at("hash").string()});
    if (out.back().bytes < 0)
      raise(DS_ERROR_CORRUPT, "{}: the bytes of a file must be at least 0, got {}", name,
            out.back().bytes);
  }
  return out;
}

// Throws unless the member "hash", which must be the last one, is the hash of all members before it
// in their printed form.
void check_hash(const Json& document, const std::string& source) {
  Json::Object members = document.object();
  if (members.empty() || members.back().first != "hash") {
    raise(DS_ERROR_CORRUPT, "{}: the last member must be hash", source);
  }
  std::string recorded = members.back().second.string();
  members.pop_back();
  std::string found = hash_hex(Json(std::move(members)).dump());
  if (recorded != found)
    raise(DS_ERROR_CORRUPT, "{}: the member hash is {}, but the content has hash {}", source,
          recorded, found);
}

Manifest parse_checked(const Json& document, const std::string& source) {
  int64_t schema = document.at("libds_checkpoint").integer();
  if (schema != kManifestSchema) {
    raise(DS_ERROR_UNSUPPORTED, "{}: the checkpoint has schema {}, but this build reads schema {}",
          source, schema, kManifestSchema);
  }
  check_hash(document, source);
  Manifest m;
  m.info.step = document.at("step").integer();
  if (const Json* skipped = document.find("skipped")) m.info.skipped = skipped->integer();
  if (m.info.skipped < 0 || m.info.skipped > m.info.step)
    raise(DS_ERROR_CORRUPT, "skipped must be 0 to {}, the steps, got {}", m.info.step,
          m.info.skipped);
  const std::string& seed = document.at("seed").string();
  auto [end, code] = std::from_chars(seed.data(), seed.data() + seed.size(), m.info.seed);
  if (code != std::errc{} || end != seed.data() + seed.size()) {
    raise(DS_ERROR_CORRUPT, "seed must be an unsigned 64-bit number, got '{}'", seed);
  }
  parse_scaler(m, document.find("loss_scaler"));
  m.info.numerics_key = document.at("numerics_key").string();
  m.world = document.at("world").integer();
  m.hash = document.at("hash").string();
  parse_files(m, document.at("files"));
  parse_tensors(m, document.at("tensors"), document.at("pieces"));
  parse_base(m, document.find("base"));
  parse_frozen(m, document.at("frozen"));
  parse_updates(m, document.find("updates"));
  parse_frozen_with_states(m, document.find("frozen_with_states"));
  parse_set(m, document.find("set"));
  m.own = parse_rank_files(document, "own", m.world);
  m.attached = parse_rank_files(document, "attached", m.world);
  m.info.config = document.at("config");
  m.info.client = document.at("client");
  sort_and_check_pieces(m, source);
  return m;
}

}  // namespace

std::string state_file(const std::string& kind) { return kind + std::string(kSuffix); }

int64_t ManifestTensor::numel() const {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, extent, &n)) {
      raise(DS_ERROR_CORRUPT,
            "tensor '{}' has an extent of {}, which is negative or makes its size exceed 64 bits",
            TensorName(name), extent);
    }
  }
  return n;
}

std::string Manifest::print() const {
  Json document, by_file, lists;
  document.set("libds_checkpoint", kManifestSchema);
  document.set("step", info.step);
  if (info.skipped > 0) document.set("skipped", info.skipped);
  document.set("seed", std::to_string(info.seed));
  if (info.scaler) {
    document.set("loss_scaler", Json::Object{{"scale", info.scaler->scale},
                                             {"steps", info.scaler->steps},
                                             {"last_overflow", info.scaler->last_overflow},
                                             {"hysteresis", info.scaler->hysteresis}});
  }
  if (Json set = print_set(info); !set.array().empty()) document.set("set", std::move(set));
  document.set("numerics_key", info.numerics_key);
  document.set("world", world);
  if (!info.base.is_null()) document.set("base", info.base);
  document.set("frozen", Json::Array(info.frozen.begin(), info.frozen.end()));
  if (!info.frozen.empty()) {
    document.set("frozen_with_states",
                 Json::Array(info.frozen_with_states.begin(), info.frozen_with_states.end()));
  }
  if (!info.updates.empty())
    document.set("updates", Json::Object(info.updates.begin(), info.updates.end()));
  Json::Array list;
  for (const ManifestTensor& t : tensors) {
    list.push_back(Json::Object{{"name", t.name}, {"shape", print_shape(t.shape)}});
  }
  size_t next = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const ManifestFile& file = files[k];
    by_file.set(state_file(kinds[k]), Json::Object{{"bytes", file.bytes}, {"header", file.header}});
    Json::Array of_kind;
    for (size_t t = 0; t < tensors.size(); ++t) of_kind.push_back(print_pieces(*this, next, k, t));
    lists.set(kinds[k], std::move(of_kind));
  }
  document.set("files", std::move(by_file));
  document.set("tensors", std::move(list));
  document.set("pieces", std::move(lists));
  if (!own.empty()) document.set("own", print_rank_files(own));
  if (!attached.empty()) document.set("attached", print_rank_files(attached));
  document.set("config", info.config);
  document.set("client", info.client);
  {
    // Hashes the text as a reader will parse it: printing replaces bytes of the client's strings
    // that are not UTF-8.
    const std::string text = document.dump();
    document = {};
    document = Json::parse(text);
  }
  document.set("hash", hash_hex(document.dump()));
  return document.dump() + "\n";
}

// After sorting, the pieces of one tensor are consecutive, so a single pass over the tensors finds
// the span of each. Any pieces left over refer to a kind or tensor that does not exist.
void sort_and_check_pieces(Manifest& m, const std::string& source) {
  auto order = [](const Piece& p) { return std::make_tuple(p.kind, p.tensor, p.begin); };
  std::ranges::sort(m.pieces, [&](const Piece& a, const Piece& b) { return order(a) < order(b); });
  size_t next = 0;
  for (size_t k = 0; k < m.kinds.size(); ++k) {
    for (size_t t = 0; t < m.tensors.size(); ++t) {
      size_t first = next;
      auto of_tensor = [&](const Piece& p) {
        return static_cast<size_t>(p.kind) == k && static_cast<size_t>(p.tensor) == t;
      };
      while (next < m.pieces.size() && of_tensor(m.pieces[next])) ++next;
      std::string bad =
          find_bad_tiling(std::span(m.pieces).subspan(first, next - first), m.tensors[t].numel());
      if (!bad.empty())
        raise(DS_ERROR_CORRUPT, "{}: {} of '{}': {}", source, m.kinds[k], m.tensors[t].name, bad);
    }
  }
  if (next != m.pieces.size()) {
    raise(DS_ERROR_CORRUPT, "{}: piece {} of {} belongs to no tensor", source, next,
          m.pieces.size());
  }
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  try {
    return parse_checked(Json::parse(text, source), source);
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_CONFIG) throw;
    std::string_view message = error.what();
    // A parse error already begins with the name of the source.
    if (message.starts_with(source)) raise(DS_ERROR_CORRUPT, "{}", message);
    raise(DS_ERROR_CORRUPT, "{}: {}", source, message);
  }
}

Manifest read_manifest(const std::string& path) {
  std::string file = path + "/" + std::string(kManifestName);
  if (is_absent(file))
    raise(DS_ERROR_NOT_FOUND, "no checkpoint at '{}': it has no {}", path, kManifestName);
  const std::string text = read_file(file, kMostManifest);
  try {
    return parse_manifest(text, file);
  } catch (const Error& fault) {
    raise_fault(file, fault, Wanted::json);
  }
}

}  // namespace ds
