#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace ds {

// Runs `body` on every rank and exchanges how it ended: if it threw on any rank, all ranks throw
// the error of the lowest such rank, so that no rank waits for one that gave up. Collective; body
// itself must not communicate.
void agree(Communicator& comm, std::string_view label, const std::function<void()>& body);

// Calls make() on rank 0 and gives its result to every rank; if it threw there, all ranks throw its
// error. Collective; make itself must not communicate.
std::string on_root(Communicator& comm, std::string_view label,
                    const std::function<std::string()>& make);

// Every rank must give the same text; else all throw DS_ERROR_CONFIG: "{what} is {} on rank 0, {}
// on rank
// {}". Collective.
void agree_equal(Communicator& comm, std::string_view subject, const std::string& mine);

// The first rank whose text is not rank 0's; 0: there is none.
size_t first_different(const std::vector<std::string>& of_ranks);

// Largest value of any rank, 0 to 255. Collective.
int agree_max(Communicator& comm, int value, const char* label);

// Texts of different lengths of all ranks, on every rank, in rank order. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine,
                                      const char* label);

}  // namespace ds
