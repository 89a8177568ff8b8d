// Reads the special tokens of the files beside a tokenizer.
//
// Problem: Transformers has changed the files in which it stores tokens several times, and folders
// of every age exist. A token may be named in tokenizer_config.json, special_tokens_map.json,
// added_tokens.json and tokenizer.json, with and without flags, and the same token may appear in
// several of them with different flags.
//
// Algorithm: the files are read in the order in which Transformers reads them into the keyword
// arguments of its class (Arguments), then the names are taken from these, and last the tokens with
// ids. That order decides which flags apply and which ids new tokens get, so it is part of the
// result: two readers that disagree about it disagree about ids. merge_added_tokens() then does
// what Transformers' add_tokens does with them.
#include "text/tokenizers/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "text/tokenizers/file_text.h"

namespace ds::text {
namespace {

constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// Returns whether a name is one of those that every class has.
bool is_usual(std::string_view name) { return contains(kNames, name); }

// Returns the member that holds a usual name, or null for any other name.
std::string* field(SpecialTokens& tokens, std::string_view name) {
  std::string* fields[] = {&tokens.begin, &tokens.end, &tokens.unknown, &tokens.sep,
                           &tokens.pad,   &tokens.cls, &tokens.mask};
  const auto* found = std::ranges::find(kNames, name);
  return found == std::end(kNames) ? nullptr : fields[found - std::begin(kNames)];
}

// Returns the spelling of a token, which is a text or an object with "content"; "" for anything
// else.
std::string spelling(const Json& value) {
  const Json* content = value.is_object() ? value.find("content") : &value;
  return content && content->is_string() ? content->string() : "";
}

// Returns the entry of a token given as a text or object. The flags of an object are kept; the
// token is special unless they say otherwise.
Json entry_of(const Json& value) {
  Json out = value.is_object() ? value : Json(Json::Object{});
  out.set("content", spelling(value));
  const Json* special = out.find("special");
  if (!special || special->is_null()) out.set("special", true);
  return out;
}

// Replaces a key in place, so that the first file decides the order.
void set_key(Json::Object& object, const std::string& key, const Json& value) {
  for (auto& [name, old] : object) {
    if (name == key) {
      old = value;
      return;
    }
  }
  object.emplace_back(key, value);
}

// The keyword arguments that Transformers builds from the files, as far as they concern tokens.
struct Arguments {
  // All arguments, in the order of the files.
  Json::Object values;
  // The model's own tokens by name: those that tokenizer_config.json spells in plain text, then
  // those of the object extra_special_tokens.
  Json::Object specific;
  // The list extra_special_tokens.
  std::optional<Json::Array> extra;
  // additional_special_tokens, the earlier name of `extra`, which is used if there is no list
  // `extra`.
  Json::Array earlier;

  const Json* find(std::string_view key) const {
    for (const auto& [name, value] : values) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  const Json::Array& listed() const { return extra ? *extra : earlier; }
  // Returns the spellings that make a token of added_tokens.json special: those of the usual names
  // and of the list `extra`. Spellings that tokenizer_config.json gives as objects are left out,
  // since Transformers has not read them yet at that point.
  std::set<std::string> told() const {
    std::set<std::string> out;
    for (const auto& [key, value] : values) {
      if (is_usual(key) && !as_objects_.contains(key)) out.insert(spelling(value));
    }
    for (size_t i = 0; extra && i < extra->size(); ++i) {
      if (i >= extra_of_config_ || !(*extra)[i].is_object()) out.insert(spelling((*extra)[i]));
    }
    return out;
  }

  void take_config(const Json& json) {
    take(json, true);
    const Json *list = json.find("extra_special_tokens"),
               *old = json.find("additional_special_tokens");
    if (old && is_nothing(list)) std::swap(list, old);
    take_lists(list, old);
    extra_of_config_ = extra ? extra->size() : 0;
  }
  void take_map(const Json& json) {
    take(json, false);
    take_lists(json.find("extra_special_tokens"), json.find("additional_special_tokens"));
  }

 private:
  // Keys whose value is an object in tokenizer_config.json.
  std::set<std::string> as_objects_;
  // Number of entries of `extra` from tokenizer_config.json.
  size_t extra_of_config_ = 0;

  static bool is_nothing(const Json* list) {
    return !list || list->is_null() || (list->is_array() && list->array().empty()) ||
           (list->is_object() && list->object().empty());
  }
  // Adds the values of a file, which replace those of earlier files.
  void take(const Json& json, bool config) {
    for (const auto& [key, value] : json.object()) {
      if (key == "extra_special_tokens" || key == "additional_special_tokens") continue;
      bool own = key.ends_with("_token") && !is_usual(key);
      set_key(config && own && value.is_string() ? specific : values, key, value);
      if (config && value.is_object()) as_objects_.insert(key);
      if (!config) as_objects_.erase(key);
    }
  }
  // Adds the lists of tokens of a file: an object names tokens, a list only adds them.
  void take_lists(const Json* list, const Json* old) {
    if (old && old->is_array()) earlier = old->array();
    if (!list) return;
    if (list->is_object()) {
      for (const auto& [name, token] : list->object()) set_key(specific, name, token);
      extra.reset();
      return;
    }
    if (!extra) extra.emplace();
    if (!list->is_array()) return;
    extra->insert(extra->end(), list->array().begin(), list->array().end());
  }
};

// Adds a token with its id. Refuses an id outside 0 to INT32_MAX and an entry without `content`;
// errors name the file.
void add_numbered(std::map<int64_t, SpecialTokens::Numbered>& tokens, const std::string& file,
                  int64_t id, Json entry) {
  const Json* content = entry.is_object() ? entry.find("content") : nullptr;
  if (id < 0 || id > INT32_MAX || !content || !content->is_string()) {
    raise(DS_ERROR_CORRUPT,
          "{}: an added token must have an id from 0 and a content, got id {} and {}", file, id,
          entry.dump());
  }
  std::string text = content->string();
  tokens[id] = {id, std::move(text), file, std::move(entry)};
}

// The keys of added_tokens_decoder are ids written as text.
void read_decoder(const Json& given, const std::string& file,
                  std::map<int64_t, SpecialTokens::Numbered>& tokens) {
  if (!given.is_object()) {
    raise(DS_ERROR_CORRUPT, "{}: added_tokens_decoder must be an object, got {}", file,
          given.kind());
  }
  for (const auto& [key, entry] : given.object()) {
    int64_t id = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    bool whole = error == std::errc() && end == key.data() + key.size();
    add_numbered(tokens, file, whole ? id : -1, entry);
  }
}

// Reads added_tokens.json, which has no flags. Tokens under the usual names or in the list are
// special.
void read_legacy(const std::string& file, const Arguments& named,
                 std::map<int64_t, SpecialTokens::Numbered>& tokens) {
  const std::set<std::string> special = named.told();
  Json json = read_tokenizer_object(file);
  for (const auto& [content, id] : json.object()) {
    Json entry;
    entry.set("content", content);
    entry.set("special", special.contains(content));
    add_numbered(tokens, file, id.is_integer() ? id.integer() : -1, std::move(entry));
  }
}

std::optional<bool> flag(const Arguments& arguments, const char* key) {
  const Json* value = arguments.find(key);
  return value && value->is_bool() ? std::optional(value->boolean()) : std::nullopt;
}

// Reads split_special_tokens. Transformers refuses a value that is neither true nor false, too.
bool splits_special(const Arguments& arguments, const std::string& file) {
  const Json* value = arguments.find("split_special_tokens");
  if (value && !value->is_bool()) {
    raise(DS_ERROR_CORRUPT, "{}: split_special_tokens must be true or false, got {}", file,
          value->kind());
  }
  return value && value->boolean();
}

// Refuses a usual token that is neither a text nor an object, as Transformers does.
void check_usual(const Json& json, const std::string& file) {
  for (const char* key : kNames) {
    const Json* value = json.find(key);
    if (!value || value->is_null() || value->is_string() || value->is_object()) continue;
    raise(DS_ERROR_CORRUPT, "{}: {} must be a text or an object with \"content\", got {}", file,
          key, value->kind());
  }
}

// Sets the names and spellings: the usual names come first, then the model's own, then tokens
// without a name.
void read_names(const Arguments& arguments, SpecialTokens& out) {
  auto name = [&](const std::string& key, const Json& value) {
    std::string content = spelling(value);
    if (content.empty()) return;
    if (std::string* known = field(out, key)) *known = content;
    out.named.emplace_back(key, content);
    out.spelt.push_back(entry_of(value));
  };
  for (const char* key : kNames) {
    if (const Json* value = arguments.find(key)) name(key, *value);
  }
  Json::Object own;
  for (const auto& [key, value] : arguments.values) {
    if (key.ends_with("_token") && !is_usual(key)) own.emplace_back(key, value);
  }
  for (const auto& [key, value] : arguments.specific) set_key(own, key, value);
  for (const auto& [key, value] : own) name(key, value);
  for (const Json& value : arguments.listed()) {
    if (!spelling(value).empty()) out.spelt.push_back(entry_of(value));
  }
}

// Returns an entry of "added_tokens" with all its flags, so that entries can be compared.
Json whole_entry(const Json& entry) {
  auto given = [&](const char* key, bool without) {
    const Json* value = entry.find(key);
    return value && value->is_bool() ? value->boolean() : without;
  };
  Json out;
  out.set("content", spelling(entry));
  bool special = given("special", false);
  for (const char* key : {"single_word", "lstrip", "rstrip"}) out.set(key, given(key, false));
  out.set("normalized", given("normalized", !special));
  out.set("special", special);
  return out;
}

// The added tokens of a tokenizer.json, to which tokens of the files beside it are added.
class Merged {
 public:
  Merged(const Json::Array& of_file, const Json& vocabulary) : entries_(of_file) {
    const Json::Object none;
    const Json::Object& pieces = vocabulary.is_object() ? vocabulary.object() : none;
    for (const auto& [piece, id] : pieces) {
      if (id.is_integer()) ids_[piece] = id.integer();
    }
    next_ = static_cast<int64_t>(pieces.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Json* id = entries_[i].is_object() ? entries_[i].find("id") : nullptr;
      // An entry without an id is refused when the entries are read (hugging_face.cpp).
      if (!id || !id->is_integer()) continue;
      note_special(entries_[i]);
      place(i, id->integer());
    }
  }

  bool has(const std::string& content) const { return places_.contains(content); }
  bool has_id(int64_t id) const { return taken_.contains(id); }
  bool has_equal(const Json& entry) const {
    auto found = places_.find(entry.at("content").string());
    return found != places_.end() && whole_entry(entries_[found->second]).dump() == entry.dump();
  }

  // Adds a token. A token that exists keeps its id and place and gets the new flags.
  void add(Json entry) {
    std::string content = entry.at("content").string();
    note_special(entry);
    auto known = ids_.find(content);
    int64_t id = known != ids_.end() ? known->second : next_;
    entry.set("id", id);
    if (auto found = places_.find(content); found != places_.end()) {
      entries_[found->second] = std::move(entry);
    } else {
      entries_.push_back(std::move(entry));
      place(entries_.size() - 1, id);
    }
  }

  // Returns the spellings of all entries that are special, or that were before another replaced
  // them.
  const std::set<std::string>& ever_special() const { return special_; }
  Json::Array take() { return std::move(entries_); }

 private:
  void note_special(const Json& entry) {
    const Json* special = entry.find("special");
    if (special && special->is_bool() && special->boolean()) special_.insert(spelling(entry));
  }
  // Records where a token is and that its id is in use.
  void place(size_t at, int64_t id) {
    std::string content = spelling(entries_[at]);
    ids_[content] = id;
    places_[content] = at;
    taken_.insert(id);
    next_ = std::max(next_, id + 1);
  }

  Json::Array entries_;
  std::map<std::string, int64_t> ids_;
  std::map<std::string, size_t> places_;
  std::set<int64_t> taken_;
  std::set<std::string> special_;
  int64_t next_ = 0;
};

}  // namespace

void SpecialTokens::name_otherwise(const char* name, const std::string& content) {
  std::string* known = field(*this, name);
  if (!known->empty()) return;
  *known = content;
  // The usual names come first, in their order.
  std::ptrdiff_t place = 0;
  for (const char* const* usual = std::begin(kNames); std::string_view(*usual) != name; ++usual) {
    if (!field(*this, *usual)->empty()) ++place;
  }
  named.emplace(named.begin() + place, name, content);
  spelt.insert(spelt.begin() + place, entry_of(content));
}

// added_tokens_decoder decides which generation of files is read.
SpecialTokens read_special_tokens(const std::string& folder) {
  const std::string file = folder + "/tokenizer_config.json";
  Json config = read_tokenizer_object(file);
  Arguments arguments;
  check_usual(config, file);
  arguments.take_config(config);
  const Json* decoder = config.find("added_tokens_decoder");
  SpecialTokens out;
  out.legacy = !decoder;
  if (out.legacy) {
    const std::string map = folder + "/special_tokens_map.json";
    const Json names = read_tokenizer_object(map);
    check_usual(names, map);
    arguments.take_map(names);
  }
  read_names(arguments, out);
  std::map<int64_t, SpecialTokens::Numbered> numbered;
  if (decoder) {
    read_decoder(*decoder, file, numbered);
  } else {
    read_legacy(folder + "/added_tokens.json", arguments, numbered);
  }
  for (auto& [id, token] : numbered) out.numbered.push_back(std::move(token));

  std::optional<bool> begin = flag(arguments, "add_bos_token"),
                      end = flag(arguments, "add_eos_token");
  out.add_begin = begin.value_or(false);
  out.add_end = end.value_or(false);
  out.begin_given = begin.has_value();
  out.end_given = end.has_value();
  out.add_prefix_space = flag(arguments, "add_prefix_space");
  out.do_lower_case = flag(arguments, "do_lower_case");
  out.tokenize_chinese_chars = flag(arguments, "tokenize_chinese_chars");
  out.strip_accents = flag(arguments, "strip_accents");
  for (const char* key : kNames) {
    if (arguments.find(key)) out.given.insert(key);
  }
  out.split_special = splits_special(arguments, file);
  const Json* kind = arguments.find("tokenizer_class");
  if (kind && kind->is_string()) out.tokenizer_class = kind->string();
  return out;
}

Json::Array merge_added_tokens(const Json::Array& of_file, const Json& vocabulary,
                               SpecialTokens& beside) {
  Merged all(of_file, vocabulary);
  // `names` holds the spellings that have a name, `flagged` those that `numbered` gives with flags,
  // which have precedence.
  std::set<std::string> names, flagged;
  for (const auto& [name, content] : beside.named) names.insert(content);
  std::vector<Json> fresh;
  // Without added_tokens_decoder, Transformers reads the tokens of the file as if they were in it.
  for (size_t i = 0; beside.legacy && i < of_file.size(); ++i) {
    if (!of_file[i].is_object() || !names.contains(spelling(of_file[i]))) continue;
    fresh.push_back(whole_entry(of_file[i]));
    fresh.back().set("special", true);
  }
  for (const SpecialTokens::Numbered& token : beside.numbered) {
    Json entry = whole_entry(token.entry);
    if (names.contains(token.content)) entry.set("special", true);
    if (token.content.empty() || all.has_equal(entry) || (beside.legacy && all.has_id(token.id)))
      continue;
    flagged.insert(token.content);
    fresh.push_back(std::move(entry));
  }
  for (const Json& spelt : beside.spelt) {
    std::string content = spelt.at("content").string();
    if (all.has(content) || flagged.contains(content)) continue;
    Json entry = whole_entry(spelt);
    if (names.contains(content)) entry.set("special", true);
    auto equal = [text = entry.dump()](const Json& other) { return other.dump() == text; };
    // If several keys spell a token with different flags, the last flags win.
    if (std::ranges::none_of(fresh, equal)) fresh.push_back(std::move(entry));
  }
  for (Json& entry : fresh) all.add(std::move(entry));
  if (beside.split_special) beside.split = all.ever_special();
  return all.take();
}

}  // namespace ds::text
