// Audits the recorded step of a delegated engine, instruction by instruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnostics/audit_report.h"
#include "diagnostics/audit_step.h"
#include "engine/delegate.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::delegate_audit_test {
namespace {

constexpr int kParams = 4, kMicros = 2;
constexpr int64_t kNumel = 300;

void train_step(DelegateEngine& engine, int step) {
  for (int m = 0; m < kMicros; ++m) {
    for (int p = kParams - 1; p >= 0; --p) {
      const ParamId param(p);
      engine.gather({&param, 1});
      const float* seen = engine.view(param).view.as<float>();
      std::vector<float> grad(seen, seen + kNumel);
      for (int64_t i = 0; i < kNumel; ++i) grad[i] += static_cast<float>(i % 7 + step + m);
      engine.grad_ready(param, {grad.data(), DS_DTYPE_F32, kNumel});
      engine.release({&param, 1});
    }
    engine.end_micro_step();
  }
  engine.step();
}

// Returns the audit report of the third step, which replays the recorded order.
AuditReport audited(int stage, Tier tier, const char* device, const EngineOptions& options = {}) {
  AuditReport report;
  test::run_ranks(2, [&](Communicator& comm) {
    Config c = test::make_config(stage, kMicros, 2);
    c.device = device;
    c.zero.optimizer_tier = tier;
    c.zero.nvme_path = std::string(DS_BINARY_DIR) + "/scratch";
    c.zero.param_persistence_threshold = 0;
    c.zero.reduce_bucket_size = 512;
    std::vector<std::vector<float>> halves(kParams, std::vector<float>(kNumel, 0.5f));
    DelegateEngine engine(c, comm, test::with_values(halves, options));
    for (int p = 0; p < kParams; ++p) engine.add_param("h." + std::to_string(p) + ".w", {kNumel});
    engine.start();
    StepAudit audit(1);
    for (int step = 0; step < 3; ++step) {
      engine.observe(step == 2 ? &audit : nullptr);
      train_step(engine, step);
    }
    engine.observe(nullptr);
    std::vector<AuditRow> rows = merge_verdicts(engine.plan().step(), audit.verdicts(), comm);
    if (comm.rank() == 0) report.rows = std::move(rows);
  });
  return report;
}

int64_t rows_of(const AuditReport& report, const std::string& op) {
  return std::count_if(report.rows.begin(), report.rows.end(),
                       [&](const AuditRow& row) { return row.label.starts_with(op + " "); });
}

TEST(DelegateAudit, PassesAtEveryStageAndOnSeparateMemory) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::nvme}) {
      for (const char* device : {"cpu", "separate"}) {
        AuditReport report = audited(stage, tier, device);
        SCOPED_TRACE("stage " + std::to_string(stage) + " " + tier_name(tier) + " " + device);
        EXPECT_EQ(report.failed(), 0) << report.text(5);
        EXPECT_EQ(rows_of(report, "grad"), kParams * kMicros);
        EXPECT_EQ(rows_of(report, "lease"), kParams * kMicros);
        EXPECT_GT(rows_of(report, "adamw"), 0);
        EXPECT_EQ(rows_of(report, "load") > 0, tier == Tier::nvme);
        for (const auto& [what, count] : report.unaudited())
          EXPECT_NE(what.find("the host program runs here"), std::string::npos) << what;
      }
    }
  }
}

void one_bit_off(const KernelContext& c) {
  static const KernelFn exact = [] {
    KernelRegistry reference;
    register_ref(reference);
    KernelFn found = nullptr;
    for (const KernelImpl& impl : reference.all()) found = impl.op == "adamw" ? impl.run : found;
    return found;
  }();
  exact(c);
  c.out[0].as<uint32_t>()[0] ^= 1;
}

TEST(DelegateAudit, DetectsAWrongBitInAnUpdate) {
  for (const char* device : {"cpu", "separate"}) {
    EngineOptions options;
    options.kernel_filter = [](KernelRegistry& kernels) {
      KernelRegistry changed;
      changed.add({"adamw", "broken", one_bit_off});
      for (const KernelImpl& impl : kernels.all()) changed.add(impl);
      kernels = std::move(changed);
    };
    AuditReport report = audited(1, Tier::device, device, options);
    EXPECT_GT(report.failed(), 0);
    EXPECT_TRUE(report.rows[0].label.starts_with("adamw ")) << report.text(3);
  }
}

}  // namespace
}  // namespace ds::delegate_audit_test
