// Encodes a text with a tokenizer and prints seconds, tokens and a hash of their ids: one side of
// bench/tokenizer.py. The second of two passes is timed.
//
//   bench_tokenizer TOKENIZER TEXT CHUNK_BYTES
#include "data/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/error.h"

int main(int argc, char** argv) {
  if (argc != 4)
    return fmt::print(stderr, "usage: bench_tokenizer TOKENIZER TEXT CHUNK_BYTES\n"), 2;
  try {
    auto tokenizer = ds::open_tokenizer(argv[1]);
    std::ostringstream stream;
    stream << std::ifstream(argv[2], std::ios::binary).rdbuf();
    std::string text = stream.str();
    size_t chunk = std::max(1, std::atoi(argv[3])), tokens = 0;
    uint32_t hash = 0;
    double seconds = 0;
    for (int pass = 0; pass < 2; ++pass) {
      tokens = hash = 0;
      auto begin = std::chrono::steady_clock::now();
      for (size_t at = 0; at < text.size(); at += chunk) {
        std::vector<int32_t> ids =
            tokenizer->encode(std::string_view(text).substr(at, chunk), false);
        tokens += ids.size();
        for (int32_t id : ids) hash = hash * 31 + static_cast<uint32_t>(id);
      }
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    fmt::print("{} {} {}\n", seconds, tokens, hash);
  } catch (const ds::Error& error) {
    return fmt::print(stderr, "{}\n", error.what()), 1;
  }
}
