#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ds {

// One plan of a picture: a column.
struct PlanColumn {
  struct Block {
    double begin = 0, end = 0;  // seconds
    std::string phase;          // "forward", "backward" or "update"
    std::string name;           // of the first instruction, for a pointer that rests on it
  };
  struct Lane {
    std::string queue;
    std::vector<Block> blocks;  // ascending
  };
  struct Area {
    std::string tier;
    std::vector<std::pair<double, int64_t>> bytes;  // from each time on
    int64_t persistent = 0, arena = 0;              // of all bytes; what the plan takes
  };
  std::string title;
  double seconds = 0;
  std::vector<Lane> lanes;
  std::vector<Area> areas;  // a row of the picture each
};

// An SVG document: queues over time above bytes over time, the columns side by side with the same
// scales. It has its own colours and background, for light and for dark pages, and needs no style
// sheet.
std::string plan_picture(const std::vector<PlanColumn>& columns, const std::string& note);

}  // namespace ds
