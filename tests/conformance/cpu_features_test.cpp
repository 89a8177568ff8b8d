// Tests the instruction sets in use, and what `libds env` reports about them. CTest repeats this
// test under each value of DS_MAX_ISA.
#include "core/device/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

TEST(CpuFeatures, LimitIsRespected) {
  const char* limit = std::getenv("DS_MAX_ISA");
  if (!limit) {
    EXPECT_EQ(effective_isa(), machine_isa());
    return;
  }
  for (Isa isa : {Isa::neon, Isa::sse4, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (isa_name(isa) != std::string(limit)) continue;
    EXPECT_EQ(effective_isa(), std::min(isa, machine_isa()));
  }
}

TEST(CpuFeatures, ReportNamesTheSetsInUse) {
  KernelFacts facts = kernel_facts();
  EXPECT_EQ(facts.machine, isa_name(machine_isa()));
  EXPECT_EQ(facts.in_use, isa_name(effective_isa()));
  const char* target = "AVX3";
  if (effective_isa() == Isa::neon) target = "NEON";
  if (effective_isa() == Isa::sse4) target = "SSE4";
  if (effective_isa() == Isa::avx2) target = "AVX2";
  EXPECT_EQ(facts.highway, target);
  EXPECT_FALSE(facts.onednn.empty());
  if (effective_isa() != Isa::avx2) return;
  EXPECT_NE(facts.onednn_isa.find("avx2"), std::string::npos) << facts.onednn_isa;
}

TEST(CpuFeatures, UnknownLimitIsNamed) {
  const char* before = std::getenv("DS_MAX_ISA");
  std::string kept = before ? before : "";
  // The process keeps the limit that it read first.
  limit_isa_from_environment();
  setenv("DS_MAX_ISA", "avx1024", 1);
  try {
    effective_isa();
    FAIL() << "no exception";
  } catch (const Error& e) {
    const char* choices = machine_isa() == Isa::neon ? "neon" : "sse4 avx2 avx512 avx512_bf16 amx";
    EXPECT_EQ(e.what(), std::string("DS_MAX_ISA must be one of ") + choices + ", got 'avx1024'");
  }
  if (before) {
    setenv("DS_MAX_ISA", kept.c_str(), 1);
  } else {
    unsetenv("DS_MAX_ISA");
  }
}

}  // namespace
}  // namespace ds
