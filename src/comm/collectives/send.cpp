#include <fmt/core.h>

#include <string>
#include <string_view>

#include "comm/collectives/collective.h"

namespace ds {

void Communicator::send(const void* data, size_t bytes, int to, std::string_view label) {
  meet("send", "to", to, to_send(data, bytes), {}, label);
}

void Communicator::receive(void* data, size_t bytes, int from, std::string_view label) {
  meet("receive", "from", from, {}, {data, bytes}, label);
}

// Both ranks announce the same intent, for example "send 0 to 1", because the exchange compares
// their intents.
void Communicator::meet(std::string_view operation, std::string_view argument, int peer, Part give,
                        Part take, std::string_view label) {
  require(peer >= 0 && peer < size_ && peer != rank_,
          "{} must be one of the group's {} ranks other than {}, got {}", argument, size_, rank_,
          peer);
  need_pairs(*exchange_, label);
  bool gives = operation == "send";
  std::string direction = fmt::format("{} to {}", exchange_->world(gives ? rank_ : peer),
                                      exchange_->world(gives ? peer : rank_));
  Call call{operation, direction, give.size + take.size, label};
  call.peer = peer;
  perform(call, [&] {
    exchange_->pair(intent_, peer, give, take);
    return take.size;
  });
}

}  // namespace ds
