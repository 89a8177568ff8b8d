// Joins a group and calls one barrier. Prints the error and exits with 1 if there is one.
// usage: join_rank URL [RANK SIZE JOIN_MS]
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "comm/communicator.h"

int main(int argc, char** argv) {
  try {
    ds::CommOptions options;
    if (argc > 4) {
      options.rank = std::atoi(argv[2]);
      options.size = std::atoi(argv[3]);
      options.join_ms = std::atoi(argv[4]);
    }
    ds::create_communicator(argv[1], options)->barrier("met");
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
