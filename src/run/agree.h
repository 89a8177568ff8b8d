#pragma once
#include <string>
#include <vector>

#include "checkpoint/agree.h"

namespace ds {

// Largest value of any rank, 0 to 255. Collective.
int agree_max(Communicator& comm, int value, const char* label);

// Texts of different lengths of all ranks, on every rank, in rank order. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine, const char* label);

}  // namespace ds
