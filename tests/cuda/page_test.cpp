// docs/reference/ops.md must say of each op and instruction whether the device supports it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/accuracy.h"
#include "kernels/cuda/kernel.h"

namespace ds::test {
namespace {

constexpr const char* kBegin = "<!-- devices: written by DS_RENEW_PAGE=1 test_cuda -->\n";
constexpr const char* kEnd = "<!-- end of devices -->\n";

std::string table() {
  std::vector<std::string_view> ours = cuda::kernel_operations();
  std::string text = "\n| operation or instruction | CPU | CUDA |\n| --- | --- | --- |\n";
  for (const Accuracy& row : accuracy_table()) {
    bool there = std::find(ours.begin(), ours.end(), row.op) != ours.end();
    const char* cuda = !there ? "refused" : row.one_result ? "the same bits" : "yes";
    text += "| `" + std::string(row.op) + "` | yes | " + cuda + " |\n";
  }
  return text + "\n";
}

TEST(Page, ListsTheOperationsOfTheDevice) {
  const std::string path = std::string(DS_SOURCE_DIR) + "/docs/reference/ops.md";
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  std::string page = read.str();
  size_t begin = page.find(kBegin), end = page.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << path;
  begin += std::string_view(kBegin).size();
  if (std::getenv("DS_RENEW_PAGE"))
    std::ofstream(path) << page.replace(begin, end - begin, table());
  else
    EXPECT_EQ(page.substr(begin, end - begin), table())
        << "run DS_RENEW_PAGE=1 bin/test_cuda --gtest_filter=Page.*";
}

}  // namespace
}  // namespace ds::test
