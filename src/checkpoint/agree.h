#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace ds {

// Runs `body` on every rank. If it threw on any rank, all ranks throw the error of the lowest such
// rank, so no rank waits in a later collective for one that gave up. Collective; `body` itself must
// not communicate.
void agree(Communicator& comm, std::string_view label, const std::function<void()>& body);

// Calls make() on rank 0 and returns its result on every rank. If make() throws there, all ranks
// throw its error. Collective; make() itself must not communicate.
std::string on_root(Communicator& comm, std::string_view label,
                    const std::function<std::string()>& make);

// Throws DS_ERROR_CONFIG on all ranks unless every rank passes the same text. The message has the
// text of rank 0 and that of the first rank that differs: "{subject} is {text} on rank 0, {text} on
// rank {number}". Collective.
void agree_equal(Communicator& comm, std::string_view subject, const std::string& mine);

// Returns the number of the first rank whose text differs from that of rank 0, or 0 if all are
// equal.
size_t first_different(const std::vector<std::string>& of_ranks);

// Returns the largest `value` that any rank passes. Values are 0 to 255. Collective.
int agree_max(Communicator& comm, int value, const char* label);

// Returns the texts of all ranks, on every rank and in rank order. Their lengths may differ.
// Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine,
                                      const char* label);

}  // namespace ds
