#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ds {

// Calls make() on rank 0 and gives its result to every rank. An Error of rank 0 is thrown on all of them.
// Collective.
std::string on_root(Communicator& comm, const char* label, const std::function<std::string()>& make);

// Throws DS_ERROR_CONFIG naming both values when `value` differs between ranks. Collective.
void require_equal(Communicator& comm, const char* what, const std::string& value);

// Largest value of any rank. Collective.
int agree_max(Communicator& comm, int value, const char* label);

// Concatenates texts of different lengths on every rank in rank order. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine, const char* label);

}  // namespace ds
