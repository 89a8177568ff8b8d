#include "core/program/cost.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/graph/ops.h"
#include "core/program/builder.h"

namespace ds {
namespace {

const Dim n = Dim::n();
constexpr DType f32 = DS_DTYPE_F32, bf16_ = DS_DTYPE_BF16, i32 = DS_DTYPE_I32, f64 = DS_DTYPE_F64;

Cost cost(std::string_view op, const std::vector<TensorType>& in,
          const std::vector<TensorType>& out, const Attrs& attrs = {}, int64_t extent = 10) {
  return launch_cost(instruction(op), in, out, attrs, extent);
}

TEST(Cost, CountsGraphOperations) {
  TensorType x{bf16_, {n, 8}}, w{bf16_, {4, 8}}, b{bf16_, {4}}, y{bf16_, {n, 4}};
  Cost linear = cost("linear", {x, w, b}, {y});
  EXPECT_EQ(linear.flops, 2 * 10 * 8 * 4);
  EXPECT_EQ(linear.bytes, 2 * (80 + 32 + 4 + 40));
  EXPECT_EQ(linear.arithmetic, bf16_);

  TensorType qkv{bf16_, {n, 12}}, lse{f32, {2, n}};
  Cost attention = cost("attention", {qkv}, {y, lse}, {{"heads", int64_t{2}}, {"seq", int64_t{5}}});
  // Two products count, q k^T and p v. On average, a row of a sequence of 5 sees 3 keys.
  EXPECT_EQ(attention.flops, 2 * 2 * 10 * 3 * 4);
  EXPECT_EQ(attention.bytes, 2 * 120 + 2 * 40 + 4 * 20);
  EXPECT_EQ(attention.arithmetic, bf16_);

  Cost gelu = cost("gelu", {y}, {y});
  EXPECT_EQ(gelu.flops, 15 * 40);
  EXPECT_EQ(gelu.bytes, 2 * 2 * 40);
  EXPECT_EQ(gelu.arithmetic, f32);
  EXPECT_EQ(cost("gelu", {{f64, {3}}}, {{f64, {3}}}).arithmetic, f64);

  Cost norm = cost("layer_norm", {x, {bf16_, {8}}, {bf16_, {8}}}, {x, {f32, {n}}, {f32, {n}}},
                   {{"eps", 1e-5}});
  EXPECT_EQ(norm.flops, 8 * 80);
  EXPECT_EQ(norm.bytes, 2 * (80 + 8 + 8 + 80) + 4 * 20);

  Cost entropy = cost("cross_entropy", {x, {i32, {n}}}, {{f32, {}}, {f32, {n, 2}}});
  EXPECT_EQ(entropy.flops, 6 * 80);
  EXPECT_EQ(entropy.bytes, 2 * 80 + 4 * 10 + 4 + 80);
}

TEST(Cost, TablesAreChargedForTheRowsRead) {
  TensorType ids{i32, {n}}, y{bf16_, {n, 8}}, table{bf16_, {1000, 8}};
  EXPECT_EQ(cost("embedding", {table, ids}, {y}).bytes, 2 * 80 + 40 + 2 * 80);
  Attrs seq{{"seq", int64_t{5}}};
  EXPECT_EQ(cost("position", {y, table}, {y}, seq).bytes, 2 * 80 + 2 * 40 + 2 * 80);
  EXPECT_EQ(cost("position", {y, table}, {y}, seq, 3).bytes, 3 * 2 * 3 * 8);
}

TEST(Cost, CountsUpdatesAndMoves) {
  TensorType f{f32, {512}}, h{bf16_, {512}};
  Attrs adamw{{"l2", int64_t{0}}};
  EXPECT_EQ(cost("adamw", {f}, {f, f, f, h}, adamw).bytes, 512 * (4 + 2 * 12 + 2));
  EXPECT_EQ(cost("adamw", {f}, {f, f, f, h}, adamw).flops, 512 * 16);
  EXPECT_EQ(cost("sgd", {f}, {f, f, h}, {{"nesterov", int64_t{1}}}).bytes, 512 * (4 + 2 * 8 + 2));
  EXPECT_EQ(cost("sgd", {f}, {f, f, h}, {{"nesterov", int64_t{1}}}).flops, 512 * 9);
  EXPECT_EQ(cost("lion", {f}, {f, f, h}).bytes, 512 * (4 + 2 * 8 + 2));
  Attrs lamb{{"eps_inside_sqrt", int64_t{0}}};
  EXPECT_EQ(cost("lamb_moments", {f, f}, {f, f, {f64, {4}}}, lamb).bytes,
            512 * (8 + 2 * 8) + 4 * 8);
  EXPECT_EQ(cost("lamb", {f, f, {f32, {2}}}, {f, h}, lamb).bytes, 512 * (8 + 2 * 4 + 2) + 2 * 4);
  EXPECT_EQ(cost("accumulate", {f}, {f}, {{"beta", int64_t{1}}}).bytes, 512 * 12);
  EXPECT_EQ(cost("accumulate", {f}, {f}, {{"beta", int64_t{0}}}).bytes, 512 * 8);
  EXPECT_EQ(cost("accumulate", {h}, {f}, {{"beta", int64_t{1}}}).bytes, 512 * 10);
  EXPECT_EQ(cost("zero", {}, {f, h}).bytes, 512 * 6);
  EXPECT_EQ(cost("granule_norms", {f}, {{f64, {2}}}).flops, 1024);
  EXPECT_EQ(cost("all_gather", {h}, {{bf16_, {1024}}}).bytes, 3 * 1024);
  EXPECT_EQ(cost("all_gather", {h}, {{bf16_, {1024}}}).flops, 0);
}

TEST(Cost, ScalarOperandsAreNotCounted) {
  Program start;
  start.buffers.push_back({"s", f32, 64, Tier::device, Residency::persistent, -1, Holds::scalars});
  ProgramBuilder builder(std::move(start));
  BufferId x = builder.transient("x", f32, 40, Tier::device),
           y = builder.transient("y", f32, 40, Tier::device);
  builder.emit(make_instr(instruction("dropout"),
                          {{x, 0, {f32, {n, 4}}, Access::read},
                           flat(builder.buffer(BufferId(0)), BufferId(0), 0, 64, Access::read),
                           {y, 0, {f32, {n, 4}}, Access::write}},
                          {{"p", 0.1}, {"op", int64_t{0}}}));
  Program program = builder.take();
  EXPECT_EQ(instruction_cost(program, program.instrs[0], 7).bytes, 2 * 4 * 28);
}

// Returns the names in the first column of each table in docs/reference/ops.md, up to the list of
// operations that devices run. There is one table, of instructions.
std::vector<std::set<std::string>> documented() {
  std::ifstream file(DS_SOURCE_DIR "/docs/reference/ops.md");
  std::vector<std::set<std::string>> tables;
  for (std::string line; std::getline(file, line);) {
    // From here on, the page lists operations that devices run.
    if (line.starts_with("<!-- devices:")) break;
    if (line.starts_with("| ---")) tables.emplace_back();
    if (line.starts_with("| `")) tables.back().insert(line.substr(3, line.find('`', 3) - 3));
  }
  return tables;
}

TEST(Cost, EveryDocumentedOperationHasACost) {
  std::vector<std::set<std::string>> tables = documented();
  ASSERT_EQ(tables.size(), 1u);
  std::set<std::string> instructions;
  for (const OpDef& row : op_table()) EXPECT_TRUE(static_cast<bool>(row.flops)) << row.name;
  for (const InstrDef* row : instruction_table()) {
    bool kernel =
        row->kind == Kind::state || row->kind == Kind::update || row->kind == Kind::decision;
    if (kernel) instructions.insert(row->name);
  }
  EXPECT_EQ(instructions, tables[0]);
}

}  // namespace
}  // namespace ds
