#include "comm/blocks.h"

namespace ds {

void Communicator::send(const void* data, size_t bytes, int to, std::string_view label) {
  meet(rank_, to, part(data, bytes), {}, label);
  count("send", 0);
}

void Communicator::receive(void* data, size_t bytes, int from, std::string_view label) {
  meet(from, rank_, {}, {data, bytes}, label);
  count("receive", bytes);
}

// Meetings are numbered by pair of ranks: they are no part of the order of the group's collectives.
void Communicator::meet(int from, int to, Part give, Part take, std::string_view label) {
  int peer = from == rank_ ? to : from;
  require(peer >= 0 && peer < size_ && peer != rank_, "the other rank must be one of 0 to {} but {}, got {}",
          size_ - 1, rank_, peer);
  Intent intent;
  intent.set(pairs_[static_cast<size_t>(peer)]++, "send", fmt::format("{} to {}", from, to),
             give.size + take.size, label);
  exchange_->pair(intent, peer, give, take);
}

}  // namespace ds
