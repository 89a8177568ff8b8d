#include "comm/collective.h"

namespace ds {

void Communicator::send(const void* data, size_t bytes, int to, std::string_view label) {
  meet("send", "to", to, fmt::format("{} to {}", rank_, to), part(data, bytes), {}, label);
}

void Communicator::receive(void* data, size_t bytes, int from, std::string_view label) {
  meet("receive", "from", from, fmt::format("{} to {}", from, rank_), {}, {data, bytes}, label);
}

// Both sides say that they "send 0 to 1": that is what they compare.
void Communicator::meet(std::string_view operation, std::string_view argument, int peer,
                        std::string_view direction, Part give, Part take, std::string_view label) {
  require(peer >= 0 && peer < size_ && peer != rank_,
          "{} must be a rank of the group of {} other than {}, got {}", argument, size_, rank_, peer);
  Call call{operation, direction, give.size + take.size, label};
  call.peer = peer;
  perform(call, [&] {
    exchange_->pair(intent_, peer, give, take);
    return take.size;
  });
}

}  // namespace ds
