#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "core/base/error.h"
#include "kernels/kernel.h"

namespace ds::test {
namespace {

// Restores the value of DS_KERNELS after each test.
class KernelFamilies : public testing::Test {
 protected:
  void SetUp() override {
    const char* value = std::getenv("DS_KERNELS");
    had_ = value != nullptr;
    if (had_) before_ = value;
  }
  void TearDown() override {
    if (had_) {
      setenv("DS_KERNELS", before_.c_str(), 1);
    } else {
      unsetenv("DS_KERNELS");
    }
  }
  std::set<std::string> families(const char* list) {
    setenv("DS_KERNELS", list, 1);
    KernelRegistry registry = built_in_kernels();
    std::set<std::string> names;
    for (const KernelImpl& impl : registry.all()) names.insert(impl.name);
    return names;
  }

 private:
  bool had_ = false;
  std::string before_;
};

std::string refuse_always(const KernelQuery&) { return "never"; }
std::string accept_always(const KernelQuery&) { return ""; }

TEST_F(KernelFamilies, TheVariableSelectsFamilies) {
  EXPECT_EQ(families("ref"), std::set<std::string>{"ref"});
  EXPECT_TRUE(families("").count("ref"));
  try {
    families("ref,gpu");
    FAIL() << "gpu is no family";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("'gpu'"), std::string::npos);
  }
}

TEST(KernelRegistry, FirstAcceptingImplementationWins) {
  KernelRegistry registry;
  registry.add({"gelu", "a", nullptr, refuse_always});
  registry.add({"relu", "b", nullptr, accept_always});
  registry.add({"gelu", "c", nullptr, accept_always});
  registry.add({"gelu", "d", nullptr, nullptr});
  Attrs none;
  EXPECT_EQ(registry.find({"gelu", {}, {}, none}).name, "c");
  EXPECT_EQ(registry.explain({"gelu", {}, {}, none}),
            (std::vector<std::string>{"a: never", "c: accepts it", "d: accepts it"}));
}

TEST(KernelRegistry, AKernelRunsOnlyOnItsDevice) {
  KernelRegistry registry;
  registry.add({.op = "gelu", .name = "a", .device = "sm_90"});
  registry.add({.op = "gelu", .name = "b"});
  Attrs none;
  EXPECT_EQ(registry.find({"gelu", {}, {}, none}).name, "b");
  EXPECT_EQ(registry.find({"gelu", {}, {}, none, "sm_90"}).name, "a");
  EXPECT_EQ(registry.explain({"gelu", {}, {}, none, "sm_90"}),
            (std::vector<std::string>{"a: accepts it", "b: runs on cpu, not sm_90"}));
  EXPECT_THROW(registry.find({"gelu", {}, {}, none, "sm_80"}), Error);
}

TEST(KernelRegistry, ErrorsNameTheOperationAndEveryReason) {
  KernelRegistry registry;
  registry.add({"gelu", "a", nullptr, refuse_always});
  Attrs none;
  try {
    registry.find({"gelu", {}, {}, none});
    FAIL() << "nothing accepts gelu";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_UNSUPPORTED);
    EXPECT_STREQ(error.what(), "no kernel runs 'gelu' (a: never)");
  }
  EXPECT_THROW(registry.find({"relu", {}, {}, none}), Error);
}

}  // namespace
}  // namespace ds::test
