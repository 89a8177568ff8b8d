#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// The functions below read facts about a process of this user from /proc. If the process or /proc
// does not exist, the result is empty.

// Returns the name of the process's program, cut to 15 characters.
std::string name_of(pid_t process);

// Returns the living processes that the process's threads have started.
std::vector<pid_t> children_of(pid_t process);

// Returns the inodes of the process's sockets as decimal text.
std::set<std::string> sockets_of(pid_t process);

// Parses a number from a file of /proc; returns -1 if the word is not a number.
int proc_number(std::string_view word, int base = 10);

}  // namespace ds
