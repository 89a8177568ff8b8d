// The plugin libds_text.so: implements the table of ds_plugin.h with the functions of this folder.
// No exception leaves the plugin: a call that fails returns a status, and each thread keeps the
// message and key of its last error.
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "ds.h"
#include "ds_plugin.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tokenizers/bpe_learner.h"

struct ds_plugin_tokenizer {
  explicit ds_plugin_tokenizer(const std::string& name)
      : tokenizer(ds::text::open_tokenizer(name)), frame(tokenizer->frame()) {}

  const std::unique_ptr<const ds::text::Tokenizer> tokenizer;
  const ds::text::Tokenizer::Frame frame;
};

struct ds_plugin_chat {
  ds::text::ChatEncoder encoder;
};

namespace ds::text {
namespace {

// The data to which a ds_plugin_result points; release() deletes it.
struct Result {
  std::string text = {};
  std::vector<int32_t> tokens = {};
  std::vector<uint8_t> targets = {};
};

// Moves a result to the heap and gives the caller views of it.
void give(Result result, ds_plugin_result* out) {
  auto owner = std::make_unique<Result>(std::move(result));
  *out = {{owner->text.data(), owner->text.size()},
          owner->tokens.data(),
          owner->targets.data(),
          owner->tokens.size(),
          owner.get()};
  static_cast<void>(owner.release());
}

void release(ds_plugin_result* result) {
  delete static_cast<Result*>(result->owner);
  *result = {};
}

struct LastError {
  std::string message, key;
};
// Each thread reads the error of its own last call that failed, without a lock.
thread_local LastError last;

const char* message() { return last.message.c_str(); }
const char* key() { return last.key.c_str(); }

// Keeps the error for message() and key(), and returns its status. If there is no memory for the
// message, returns DS_ERROR_OUT_OF_MEMORY and leaves the message empty.
int32_t fail(ds_status status, const char* message, const std::string& key = "") noexcept {
  try {
    last = {message, key};
    return status;
  } catch (const std::bad_alloc&) {
    last.message.clear();
    last.key.clear();
    return DS_ERROR_OUT_OF_MEMORY;
  }
}

// Runs the body of a call and turns its exceptions into a status.
template <typename Body>
int32_t guarded(Body body) noexcept {
  try {
    body();
    return DS_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what(), error.details().key);
  } catch (const std::bad_alloc&) {
    return fail(DS_ERROR_OUT_OF_MEMORY, "");
  } catch (const std::exception& error) {
    return fail(DS_ERROR_INTERNAL, error.what());
  } catch (...) {
    return fail(DS_ERROR_INTERNAL, "an exception of unknown type");
  }
}

std::string_view view(const ds_plugin_chars* chars) { return {chars->data, chars->size}; }
std::string copy(const ds_plugin_chars* chars) { return std::string(view(chars)); }

int32_t open(const ds_plugin_chars* name, ds_plugin_tokenizer** out) {
  return guarded([&] { *out = std::make_unique<ds_plugin_tokenizer>(copy(name)).release(); });
}

void close(ds_plugin_tokenizer* tokenizer) { delete tokenizer; }

// Fills `out` with views that stay valid until the tokenizer is closed.
void info(const ds_plugin_tokenizer* tokenizer, ds_plugin_tokenizer_info* out) {
  const Tokenizer& of = *tokenizer->tokenizer;
  const auto& [before, after] = tokenizer->frame;
  *out = {sizeof *out,
          {of.name().data(), of.name().size()},
          of.vocab(),
          of.end_of_text().value_or(-1),
          of.mask_token().value_or(-1),
          before.data(),
          after.data(),
          before.size(),
          after.size()};
}

int32_t token_bits(const ds_plugin_tokenizer* tokenizer, int32_t token) {
  const Tokenizer& of = *tokenizer->tokenizer;
  return (of.is_special(token) ? DS_PLUGIN_TOKEN_SPECIAL : 0) |
         (of.joins_next(token) ? DS_PLUGIN_TOKEN_JOINS_NEXT : 0);
}

int32_t encode(const ds_plugin_tokenizer* tokenizer, const ds_plugin_chars* text, int32_t special,
               ds_plugin_result* out) {
  return guarded(
      [&] { give({.tokens = tokenizer->tokenizer->encode(view(text), special != 0)}, out); });
}

int32_t decode(const ds_plugin_tokenizer* tokenizer, const int32_t* tokens, size_t count,
               int32_t skip_special, ds_plugin_result* out) {
  return guarded([&] {
    give({.text = tokenizer->tokenizer->decode(std::span(tokens, count), skip_special != 0)}, out);
  });
}

int32_t files(const ds_plugin_chars* name, ds_plugin_result* out) {
  return guarded([&] {
    std::string text;
    // For each file, its path and its name follow, both ended by a NUL.
    for (const TokenizerFile& file : tokenizer_files(copy(name)))
      (text += file.path + '\0') += file.name + '\0';
    give({.text = std::move(text)}, out);
  });
}

int32_t hash(const ds_plugin_chars* name, ds_plugin_result* out) {
  return guarded([&] { give({.text = tokenizer_hash(copy(name))}, out); });
}

int32_t learn(const ds_plugin_chars* text, int64_t vocab, const ds_plugin_chars* folder,
              const volatile int32_t* stop, ds_plugin_result* out) {
  return guarded(
      [&] { give({.text = learn_tokenizer(view(text), vocab, copy(folder), stop)}, out); });
}

int32_t chat_open(const ds_plugin_tokenizer* tokenizer, const ds_plugin_chars* name,
                  const ds_plugin_chars* chosen, int32_t loss_on_all, ds_plugin_chat** out) {
  return guarded([&] {
    *out = new ds_plugin_chat{
        ChatEncoder(*tokenizer->tokenizer, copy(name), copy(chosen), loss_on_all != 0)};
  });
}

void chat_close(ds_plugin_chat* chat) { delete chat; }

// `where` begins the message of an error.
int32_t chat_encode(const ds_plugin_chat* chat, const ds_plugin_chars* line,
                    const ds_plugin_chars* where, ds_plugin_result* out) {
  return guarded([&] {
    Document made = chat->encoder.encode(copy(line), copy(where));
    give({.tokens = std::move(made.tokens), .targets = std::move(made.targets)}, out);
  });
}

// core/base/plugin compares size and build before it calls anything here.
constexpr ds_plugin_text_table kTable = {.struct_size = sizeof(ds_plugin_text_table),
                                         .name = "text",
                                         .build = DS_PLUGIN_BUILD,
                                         .message = message,
                                         .key = key,
                                         .release = release,
                                         .open = open,
                                         .close = close,
                                         .info = info,
                                         .token_bits = token_bits,
                                         .encode = encode,
                                         .decode = decode,
                                         .files = files,
                                         .hash = hash,
                                         .learn = learn,
                                         .least_learned = kLeastLearned,
                                         .chat_open = chat_open,
                                         .chat_close = chat_close,
                                         .chat_encode = chat_encode};

}  // namespace
}  // namespace ds::text

extern "C" __attribute__((visibility("default"))) const ds_plugin_text_table* ds_plugin_text(void) {
  return &ds::text::kTable;
}
