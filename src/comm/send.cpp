#include "comm/blocks.h"

namespace ds {

void Communicator::send(const void* data, size_t bytes, int to, std::string_view label) {
  meet("to", rank_, to, part(data, bytes), {}, label);
  count("send", 0);
}

void Communicator::receive(void* data, size_t bytes, int from, std::string_view label) {
  meet("from", from, rank_, {}, {data, bytes}, label);
  count("receive", bytes);
}

// Meetings are numbered by pair of ranks: they are no part of the order of the group's collectives.
void Communicator::meet(std::string_view argument, int from, int to, Part give, Part take,
                        std::string_view label) {
  int peer = argument == "to" ? to : from;
  require(peer >= 0 && peer < size_ && peer != rank_,
          "{} must be a rank of the group of {} other than {}, got {}", argument, size_, rank_, peer);
  Intent intent;
  intent.set(pairs_[static_cast<size_t>(peer)]++, "send", fmt::format("{} to {}", from, to),
             give.size + take.size, label);
  exchange_->pair(intent, peer, give, take);
}

}  // namespace ds
