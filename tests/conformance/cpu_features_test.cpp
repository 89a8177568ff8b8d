// The instruction sets in use and what `libds env` says of them. CTest runs this again under each DS_MAX_ISA.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "kernels/cpu/features.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

TEST(CpuFeatures, LimitIsKept) {
  const char* limit = std::getenv("DS_MAX_ISA");
  if (!limit) {
    EXPECT_EQ(effective_isa(), machine_isa());
    return;
  }
  for (Isa isa : {Isa::sse4, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (isa_name(isa) != std::string(limit)) continue;
    EXPECT_EQ(effective_isa(), std::min(isa, machine_isa()));
  }
}

TEST(CpuFeatures, ReportNamesWhatRuns) {
  std::vector<std::string> lines = kernel_report();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].find(std::string("instruction sets  machine ") + isa_name(machine_isa()) + ", in use " +
                          isa_name(effective_isa())),
            0u)
      << lines[0];
  const char* target = effective_isa() == Isa::sse4 ? "SSE4" : effective_isa() == Isa::avx2 ? "AVX2" : "AVX3";
  EXPECT_EQ(lines[1], std::string("Highway           ") + target);
  EXPECT_EQ(lines[2].rfind("oneDNN ", 0), 0u);
  if (effective_isa() != Isa::avx2) return;
  EXPECT_NE(lines[2].find(", avx2"), std::string::npos) << lines[2];
}

TEST(CpuFeatures, UnknownLimitIsNamed) {
  const char* before = std::getenv("DS_MAX_ISA");
  std::string kept = before ? before : "";
  limit_isa_from_environment();  // the process keeps the limit of its first use
  setenv("DS_MAX_ISA", "avx1024", 1);
  try {
    effective_isa();
    FAIL() << "no exception";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "DS_MAX_ISA must be one of sse4 avx2 avx512 avx512_bf16 amx, got 'avx1024'");
  }
  if (before) {
    setenv("DS_MAX_ISA", kept.c_str(), 1);
  } else {
    unsetenv("DS_MAX_ISA");
  }
}

}  // namespace
}  // namespace ds
