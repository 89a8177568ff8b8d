#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ds {

// One plan, which is drawn as a column of the picture.
struct PlanColumn {
  struct Block {
    // Seconds since the beginning of the step.
    double begin = 0, end = 0;
    // "forward", "backward" or "update"; it determines the color.
    std::string phase;
    // Name of the block's first instruction, shown when the pointer is over the block.
    std::string name;
  };
  struct Lane {
    std::string queue;
    // In ascending order of time.
    std::vector<Block> blocks;
  };
  struct Area {
    std::string tier;
    // Pairs of a time and the bytes held from that time on.
    std::vector<std::pair<double, int64_t>> bytes;
    // Bytes that are held all the time, and total bytes that the plan needs.
    int64_t persistent = 0, arena = 0;
  };
  std::string title;
  double seconds = 0;
  std::vector<Lane> lanes;
  // The tiers of memory. Each tier has a row of the picture, unless it is much smaller than the
  // largest one.
  std::vector<Area> areas;
};

// Returns an SVG document with the columns side by side at the same scales; in each, queues over
// time are drawn above bytes over time. It includes its colors and background, for light and for
// dark pages, and needs no style sheet.
std::string plan_picture(const std::vector<PlanColumn>& columns, const std::string& note);

}  // namespace ds
