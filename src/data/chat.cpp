// The C++ side of the chat functions of libds_text.so.
#include "data/chat.h"

#include "data/text_plugin.h"

namespace ds {

// The plugin created the encoder, so the plugin deletes it.
void ChatEncoder::Close::operator()(ds_plugin_chat* chat) const { text_plugin().chat_close(chat); }

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_name,
                         const std::string& chosen, bool loss_on_all) {
  const ds_plugin_chars name = plugin_chars(tokenizer_name), choice = plugin_chars(chosen);
  ds_plugin_chat* made = nullptr;
  check_text(text_plugin().chat_open(&tokenizer.handle(), &name, &choice, loss_on_all, &made));
  chat_.reset(made);
}

Document ChatEncoder::encode(const std::string& line, const std::string& where) const {
  const ds_plugin_chars chars = plugin_chars(line), place = plugin_chars(where);
  TextResult result;
  check_text(text_plugin().chat_encode(chat_.get(), &chars, &place, result.out()));
  return {{result.tokens().begin(), result.tokens().end()},
          {result.targets().begin(), result.targets().end()}};
}

}  // namespace ds
