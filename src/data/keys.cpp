// The keys of `data`: files, their format, tokenizer and held-out share, and how documents become
// samples. A key that only some formats have is refused by check_data() beside another format. Most
// of these keys are printed only where they apply.
#include "data/keys.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"
#include "core/config/values.h"

namespace ds {
namespace {

// Reads false, true or "isolated" as one of the words of DataKeys::packing.
std::string read_packing(const std::string& path, const Json& given) {
  if (const std::optional<bool> truth = truth_of(given)) return *truth ? "joined" : "none";
  if (given.is_string() && given.string() == "isolated") return given.string();
  refuse(path, "must be false, true or \"isolated\", got {}", given.dump());
}

Json write_packing(const std::string& packing) {
  return packing == "isolated" ? Json(packing) : Json(packing == "joined");
}

// Appends the keys of masked language models. They are printed only for a model folder, since
// built-in models are causal.
template <typename Rows>
void masking_keys(Rows& rows) {
  constexpr Limits share{.low = 0, .high = 1};
  rows.only([](const Config& c) { return !c.model.folder.empty(); });
  rows.add("mlm_probability", &DataKeys::mlm_probability,
           "folders of masked language models ([models.md](models.md)): the share of the tokens "
           "that are targets, above 0 and at most 1",
           share);
  rows.add("mask_replace_prob", &DataKeys::mask_replace_prob,
           "the share of the targets that become the mask token", share);
  rows.add(
      "random_replace_prob", &DataKeys::random_replace_prob,
      "the share of the targets that become a random token; the remaining targets stay unchanged",
      share);
  rows.add("mask_token", &DataKeys::mask_token, "id of the mask token", count)
      .shown("the tokenizer's")
      .when([](const Config& c) { return c.get<DataKeys>().mask_token >= 0; });
}

}  // namespace

void data_keys(KeyList& keys) {
  using D = DataKeys;
  KeyRows rows(keys, "data.", of_section<DataKeys>);
  const auto jsonl = [](const Config& c) { return c.get<DataKeys>().format == "jsonl"; };
  rows.add("paths", &D::paths,
           "files or folders of `data.format`, the same on all ranks; a single text counts as a "
           "list of one. Rank 0 reads text and jsonl; every rank reads token files");
  rows.nonempty("text", &D::text,
                "for `text` and `jsonl`: the text itself, in place of `data.paths`: one document, "
                "or lines of jsonl. The configuration in the run folder holds it, too");
  rows.words("format", &D::format, {"text", "jsonl", "tokens"},
             "`text`: each file is a text. `jsonl`: each line of the files, and of `.jsonl` and "
             "`.ndjson` in the folders (of `.json`, where there is neither), is a conversation or "
             "a text ([data.md](data.md)). `tokens`: files of `libds tokenize`, and `*.tokens` in "
             "the folders, which may be larger than memory");
  rows.words("loss_on", &D::loss_on, {"answers", "all"},
             "for `jsonl`: with `answers`, only the words of the assistant, or the completion, "
             "count in the loss; with `all`, every token does")
      .when(jsonl);
  rows.nonempty(
          "chat_template", &D::chat_template,
          "for `jsonl`: a file with a template, or the name of one of the tokenizer's templates, "
          "to use instead of the tokenizer's default")
      .when(jsonl);
  rows.row("packing", &D::packing, read_packing, write_packing, KeyKind::boolean,
           "several documents share a sample. With true, which only `jsonl` has, attention sees "
           "the earlier documents of the sample, too. With `\"isolated\"`, which every format has, "
           "each document sees only itself, and its positions begin at 0; this needs a causal "
           "model without `model.mask`. No other key changes this meaning ([data.md](data.md))",
           {}, {"isolated"})
      .when([=](const Config& c) { return jsonl(c) || c.get<DataKeys>().packing == "isolated"; });
  rows.nonempty(
      "tokenizer", &D::tokenizer,
      "`bytes`: each byte is a token; `learn`: a byte-level BPE vocabulary of at most "
      "`model.vocab` tokens (257 or more), learned from the training text and kept in the run "
      "folder; any other text names a tokenizer's file or folder ([tokenizers.md](tokenizers.md)). "
      "`model.vocab` must be above the largest token of the text");
  rows.add("heldout", &D::heldout,
           "the share of the data that is held out: files of text and lines of jsonl, chosen by a "
           "hash of their content; of token files, the last tokens or documents",
           Limits{.low = 0, .high = 0.9});
  rows.bytes("max_bytes", &D::max_bytes,
             "for `text`: the largest number of bytes to read, 1 byte to 1 TiB",
             Limits{.low = 1, .high = 0x1p40});
  rows.add("strip_licences", &D::strip_licences, "for `text`: remove leading licence comments");
  masking_keys(rows);
}

void take_folder_tokenizer(Config& c) {
  if (c.model.folder.empty() || c.origins.contains("data.tokenizer")) return;
  c.get<DataKeys>().tokenizer = c.model.folder;
  c.origins["data.tokenizer"] = "derived";
}

// The shares are real numbers whose sum may exceed 1 by rounding, hence the 1e-9.
void check_masking(const Config& c) {
  using enum ConfigNeed::Kind;
  const DataKeys& data = c.get<DataKeys>();
  for (const char* key : kMaskingKeys) {
    const ConfigNeed need{key,
                          {},
                          excludes,
                          "model.folder",
                          {"null"},
                          "",
                          ": needs model.folder with a masked language model, got none"};
    check_needs(c, {&need, 1});
  }
  if (data.mlm_probability == 0) {
    refuse("data.mlm_probability", "must be above 0, or no token is a target, got 0");
  }
  const double changed = data.mask_replace_prob + data.random_replace_prob;
  if (changed > 1 + 1e-9) {
    raise(DS_ERROR_CONFIG, "{} {} and data.random_replace_prob {} must add up to at most 1",
          KeyName("data.mask_replace_prob"), data.mask_replace_prob, data.random_replace_prob);
  }
}

void check_data_given(const DataKeys& data) {
  if (data.given()) return;
  refuse("data.paths", "must name files or folders of text, or data.text must be a text, got none");
}

void check_data(const Config& c) {
  using enum ConfigNeed::Kind;
  constexpr const char* kFormat = "data.format";
  static const std::vector<ConfigNeed> rows{
      {"data.loss_on", {}, needs, kFormat, {"jsonl"}},
      // "isolated" has no such rule, because files of every format hold documents.
      {"data.packing", {"true"}, needs, kFormat, {"jsonl"}},
      {"data.chat_template", {}, needs, kFormat, {"jsonl"}},
      {"data.text", {}, needs, kFormat, {"text", "jsonl"}},
      {"data.max_bytes", {}, needs, kFormat, {"text"}},
      {"data.strip_licences", {}, needs, kFormat, {"text"}},
      {"data.tokenizer", {kLearnTokenizer}, needs, kFormat, {"text"}}};
  check_needs(c, rows);
  const DataKeys& data = c.get<DataKeys>();
  if (!data.text.empty() && !data.paths.empty()) {
    refuse("data.text", "is a text in place of files, so data.paths must be empty, got '{}'",
           data.paths[0]);
  }
}

}  // namespace ds
