// Vocabularies of a tokenizer.json and the choice of the model.
#include "text/tokenizers/word_model.h"

#include "core/base/json.h"
#include "text/tokenizers/bpe.h"
#include "text/tokenizers/word_piece.h"

namespace ds::text {

// Ids must be different, since tokens are decoded by them.
WordModel::WordModel(Section& section) {
  const Json& vocabulary = section.at("vocab");
  std::string where = section.path("vocab");
  if (!vocabulary.is_object())
    raise(DS_ERROR_CORRUPT, "{} must be an object, got {}", where, vocabulary.kind());
  const Json::Object& pieces = vocabulary.object();
  const int64_t largest = largest_id(pieces.size());
  std::vector<int32_t> ids;
  vocabulary_.reserve(pieces.size());
  ids.reserve(pieces.size());
  for (const auto& [piece, id] : pieces) {
    if (!id.is_integer() || id.integer() < 0 || id.integer() > largest) {
      raise(DS_ERROR_CORRUPT, "{}['{}'] must be an id from 0 to {}, got {}", where, piece, largest,
            id.dump());
    }
    ids.push_back(static_cast<int32_t>(id.integer()));
    vocabulary_.emplace(piece, ids.back());
  }
  std::ranges::sort(ids);
  auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end())
    raise(DS_ERROR_CORRUPT, "{}: id {} is given to two pieces", where, *twice);
}

std::unique_ptr<const WordModel> read_word_model(Section& file, bool spell_bytes) {
  Section section = file.inside("model");
  // Older files have no type; only WordPiece has this key.
  bool limited = file.at("model").find("max_input_chars_per_word") != nullptr;
  std::string type = section.text("type", limited ? "WordPiece" : "BPE");
  if (type == "BPE") return std::make_unique<Bpe>(section, spell_bytes);
  if (type != "WordPiece" || spell_bytes) section.unsupported("type");
  return std::make_unique<WordPiece>(section);
}

}  // namespace ds::text
