#include "compile/certificate.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "../../tools/certificate/check.h"
#include "compile/decode_plan.h"
#include "compile/delegate.h"
#include "compile/pipeline.h"
#include "core/base/error.h"
#include "core/base/trace.h"
#include "io/file.h"
#include "mutate/faults.h"
#include "passes/offsets.h"
#include "passes/sync.h"
#include "support/delegate_calls.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/same_bits.h"
#include "support/tags.h"

namespace ds::test {
namespace {

std::string first_of(const std::vector<std::string>& findings) {
  return findings.empty() ? "" : findings.front();
}

std::string findings_of(const std::string& text) { return first_of(::certificate::check(text)); }

std::vector<Plan> plans_of(const Point& p) {
  std::vector<Plan> plans;
  for (int r = 0; r < p.world; ++r)
    plans.push_back(compile_plan(graph_of(p), config_of(p), r, p.world, Machine{}));
  return plans;
}

std::string certificate_of(const std::vector<Plan>& plans) {
  std::vector<const Plan*> given;
  for (const Plan& plan : plans) given.push_back(&plan);
  return certificate(given);
}

std::string certificate_of(const std::vector<Program>& ranks) {
  std::vector<std::vector<const Program*>> given;
  for (const Program& program : ranks) given.push_back({&program});
  return certificate(given);
}

Point point(int stage, Tier tier, int world) {
  Point p;
  p.stage = stage;
  p.tier = tier;
  p.world = world;
  p.leaves = 2 * world;
  return p;
}

std::vector<Point> cover() {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (int world : {1, 2, 3}) {
        points.push_back(point(stage, tier, world));
        points.back().emulate = (stage + world) % 2 == 0;
      }
    }
  }
  Point groups = point(3, Tier::nvme, 4);
  groups.nodes = 2;
  groups.mics = 2;
  points.push_back(groups);
  Point parameters = point(3, Tier::host, 4);
  parameters.nodes = 2;
  parameters.hpz = 2;
  parameters.quantized_weights = true;
  parameters.gradient_bits = 4;
  points.push_back(parameters);
  // With f32, a parameter is its own master copy.
  for (int stage : {0, 3}) {
    points.push_back(point(stage, Tier::device, 2));
    points.back().compute = DS_DTYPE_F32;
  }
  Point rows = point(2, Tier::host, 3);
  rows.vocab = 400;
  rows.tied = false;
  rows.sparse = true;
  points.push_back(rows);
  // A step consists of several programs.
  for (int stage : {0, 1}) {
    for (Tier tier : {Tier::device, Tier::nvme}) {
      points.push_back(point(stage, tier, 3));
      points.back().optimizer = "OneBitAdam";
      points.push_back(point(stage, tier, 3));
      points.back().optimizer = "OneBitLamb";
      if (stage > 0) continue;
      points.push_back(point(stage, tier, 3));
      points.back().optimizer = "ZeroOneAdam";
    }
  }
  // With this many micro-steps, the program contains a repeated part.
  for (int stage : {0, 2, 3}) {
    for (bool reproducible : {false, true}) {
      Point many = point(stage, Tier::nvme, 2);
      many.leaves = 2 * 40;
      many.reproducible = reproducible;
      points.push_back(many);
    }
  }
  return points;
}

// Returns the random programs of all ranks for a seed.
std::vector<Program> random_ranks(uint64_t seed, int world) {
  std::vector<Program> ranks;
  for (int r = 0; r < world; ++r) {
    ranks.push_back(random_program(seed, r, world, 70));
    assign_offsets(ranks.back(), {});
    insert_waits(ranks.back());
  }
  return ranks;
}

bool verify_refuses(const Program& program) {
  try {
    verify(program, {});
    return false;
  } catch (const Error&) {
    return true;
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < text.size();) {
    size_t end = text.find('\n', i);
    lines.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Certificate, PlansAreAccepted) {
  for (const Point& p : cover())
    EXPECT_EQ(findings_of(certificate_of(plans_of(p))), "") << p.name();
}

TEST(Certificate, RandomProgramsAreAccepted) {
  for (uint64_t seed = 0; seed < 30; ++seed)
    EXPECT_EQ(findings_of(certificate_of(random_ranks(seed, 1 + static_cast<int>(seed % 3)))), "")
        << seed;
}

// One rank's programs and order for a delegated engine; a certificate covers all ranks.
struct DelegateRank {
  // The plan includes its fragments and the recorded step.
  Plan plan;
  RecordedOrder order;
};

std::vector<DelegateRank> delegate_ranks(int stage, Tier tier, int world, int64_t micros) {
  constexpr int kParams = 5;
  Config c = make_config(stage, micros, world);
  c.zero.optimizer_tier = tier;
  if (stage == 3) c.zero.param_tier = tier;
  c.zero.nvme_path = "unused";
  c.zero.param_persistence_threshold = c.zero.max_reuse_distance = 0;
  c.zero.reduce_bucket_size = 3000;
  c.emulate_tiers = world % 2 == 0;
  std::vector<DelegateRank> ranks;
  for (int r = 0; r < world; ++r) {
    Plan plan = delegate_plan(c, kParams, r, world);
    std::optional<RecordedStep> step = compile_recorded(
        plan, c, Machine{}, layer_calls(kParams, micros), std::array<int64_t, 3>{}, 16);
    for (const ProgramKey& key : fragment_keys(plan))
      plan.programs[key] = make_fragment(plan, c, Machine{}, key);
    plan.programs[ProgramKind::step] = std::move(step->program);
    ranks.push_back({std::move(plan), std::move(step->order)});
  }
  return ranks;
}

std::string certificate_of(const std::vector<DelegateRank>& ranks) {
  std::vector<std::vector<const Program*>> given;
  for (const DelegateRank& rank : ranks) given.push_back(programs_of(rank.plan));
  return certificate(given);
}

TEST(Certificate, DelegatePlansAreAccepted) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (int64_t micros : {2, 40}) {
        std::vector<DelegateRank> ranks = delegate_ranks(stage, tier, 1 + (stage + 1) % 3, micros);
        EXPECT_EQ(findings_of(certificate_of(ranks)), "")
            << "stage " << stage << " " << tier_name(tier) << " " << micros;
        EXPECT_GE(fragment_keys(ranks[0].plan).size(), 3u);
      }
    }
  }
}

// The host's calls are instructions like any other: the checker finds a missing wait of one of
// them.
TEST(Certificate, FindsDroppedWaitsInADelegatedStep) {
  for (int64_t micros : {2, 40}) {
    std::vector<DelegateRank> right = delegate_ranks(3, Tier::nvme, 2, micros);
    const Program& step = right[0].plan.step();
    int found = 0, of_host = 0;
    for (std::pair<size_t, size_t> wait : waits_of(step)) {
      bool host = step.instrs[wait.first].event.exists();
      if (!host && wait.first % 3 != 0) continue;
      std::vector<Program> broken{right[0].plan.step(), right[1].plan.step()};
      drop_wait(broken[0], wait);
      EXPECT_NE(findings_of(certificate_of(broken)), "") << wait.first << " " << wait.second;
      ++found;
      of_host += host;
    }
    EXPECT_GT(found, 10);
    EXPECT_GT(of_host, 4);
  }
}

TEST(Certificate, InferencePlansAreAccepted) {
  for (int stage : {0, 3}) {
    Point p = point(stage, Tier::device, 2);
    std::vector<Plan> plans;
    std::vector<std::vector<const Program*>> given;
    for (int r = 0; r < p.world; ++r)
      plans.push_back(compile_generation(graph_of(p), config_of(p), {.positions = 8, .chunk = 4}, r,
                                         p.world, Machine{}));
    for (const Plan& plan : plans) given.push_back(programs_of(plan));
    EXPECT_EQ(findings_of(certificate(given)), "") << p.name();
  }
}

// The checker and the verifier derive the required waits without sharing code, and must agree: the
// checker refuses a program without a wait exactly if the verifier does.
TEST(Certificate, FindsTheSameDroppedWaitsAsTheVerifier) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<Program> ranks = random_ranks(seed, 1);
    for (std::pair<size_t, size_t> wait : waits_of(ranks[0])) {
      std::vector<Program> broken = ranks;
      drop_wait(broken[0], wait);
      bool verifier = verify_refuses(broken[0]),
           found = !findings_of(certificate_of(broken)).empty();
      EXPECT_EQ(verifier, found) << "seed " << seed << " instruction " << wait.first;
      refused += verifier;
    }
  }
  EXPECT_GE(refused, 100);
}

// Applies `change` to the first line that starts with `begin`, and returns the checker's findings.
std::string changed(std::vector<std::string> lines, const std::string& begin,
                    const std::function<void(std::string&)>& change) {
  for (std::string& line : lines) {
    if (!line.starts_with(begin)) continue;
    change(line);
    return findings_of(joined(lines));
  }
  return "no line begins with " + begin;
}

// The checker remembers only the last reader of a queue, so it checks a hostile file of 4,000
// operands, each inside the previous one, quickly.
TEST(Certificate, NestedReadersAreCheckedQuickly) {
  constexpr int64_t kReaders = 4000;
  std::string text = "certificate 1\nprogram step 0\nbuffer b dev persistent master 32000 0\n";
  for (int64_t i = 0; i < kReaders; ++i)
    text +=
        fmt::format("instr {} comp f\nreads b {} {} f32\n", i, 4 * i, 4 * (2 * kReaders - 2 * i));
  int64_t begin = now_ns();
  ::certificate::check(text + "end 1\n");
  EXPECT_LT(static_cast<double>(now_ns() - begin) * 1e-9, 10);
}

// The checker verifies every claim: it finds a claim with a wrong number, and a missing claim.
TEST(Certificate, FalseClaimsAreFound) {
  std::vector<std::string> lines = lines_of(certificate_of(plans_of(point(3, Tier::nvme, 2))));
  for (const char* kind :
       {"arena dev", "life", "moved all_gather", "moved load", "order", "memory", "held"}) {
    std::string finding = changed(lines, kind, [](std::string& line) { line += "1"; });
    EXPECT_NE(finding.find("is so, but is not claimed"), std::string::npos)
        << kind << ": " << finding;
    finding = changed(lines, kind, [](std::string& line) { line = "wait 0"; });
    EXPECT_NE(finding, "") << kind;
  }
}

using Break = std::function<void(std::vector<Program>&)>;

Instr& first_collective(Program& program) {
  for (Instr& in : program.instrs) {
    if (in.def->op == Op::all_gather) return in;
  }
  raise(DS_ERROR_INTERNAL, "the program has no all_gather");
}

Instr& last_collective(Program& program) {
  size_t i = program.instrs.size();
  while (program.instrs.at(i - 1).queue != Queue::comm) --i;
  return program.instrs[i - 1];
}

InstrId update_of(const Program& program) {
  for (InstrId i : program.instrs.ids()) {
    if (program.instrs[i].def->kind == Kind::update) return i;
  }
  raise(DS_ERROR_INTERNAL, "the program has no update");
}

Buffer& gathered(Program& p) { return p.buffers[first_collective(p).operands[1].buffer]; }

size_t persistent_of(const Program& p, size_t skip) {
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    bool taken = p.buffers[b].residency == Residency::persistent && p.buffers[b].tier == Tier::nvme;
    if (taken && skip-- == 0) return b;
  }
  raise(DS_ERROR_INTERNAL, "the program has no such buffer");
}

TEST(Certificate, EachRuleIsChecked) {
  std::vector<Program> right;
  for (Plan& plan : plans_of(point(3, Tier::nvme, 2)))
    right.push_back(std::move(plan.programs.at(ProgramKind::step)));
  ASSERT_EQ(findings_of(certificate_of(right)), "");
  const std::pair<const char*, Break> rules[] = {
      {"in the order of collectives", [](auto& r) { first_collective(r[0]).comm_order = 1 << 20; }},
      {"makes",
       [](auto& r) {
         first_collective(r[0]).operands[0].type = first_collective(r[0]).operands[1].type;
       }},
      {"an integer from 1",
       [](auto& r) {
         first_collective(r[0]).group = {0, 0};
       }},
      {"waits for ever", [](auto& r) { last_collective(r[0]).queue = Queue::copy; }},
      {"meets",
       [](auto& r) {
         for (Operand& o : first_collective(r[0]).operands) o.type.dtype = DS_DTYPE_F16;
       }},
      {"reaches into",
       [](auto& r) {
         r[0].buffers[persistent_of(r[0], 1)].offset = r[0].buffers[persistent_of(r[0], 0)].offset;
       }},
      {"no multiple of", [](auto& r) { gathered(r[0]).offset += 4; }},
      {"not written, or overwritten",
       [](auto& r) { first_collective(r[0]).operands[1].buffer = BufferId(0); }},
      {"the last use of",
       [](auto& r) {
         for (Instr& in : r[0].instrs) {
           for (Operand& o : in.operands) o.last = false;
         }
       }},
      {"waits for instruction",
       [](auto& r) {
         r[0].instrs[2].waits.push_back({InstrId(7), false});
       }},
      {"without waiting for",
       [](auto& r) {
         for (Instr& in : r[0].instrs) in.waits.clear();
       }},
      {"twice",
       // Two results overlap by half.
       [](auto& r) {
         Instr& in = r[0].instrs[update_of(r[0])];
         Operand half = in.operands.back();
         half.begin += half.bytes(1) / 2;
         half.type.shape = Shape{half.type.shape.numel(1) / 4};
         in.operands.push_back(half);
       }},
      {"uses", [](auto& r) { r[0].instrs[3].operands[0].begin += 1 << 30; }},
  };
  for (const auto& [words, change] : rules) {
    std::vector<Program> broken = right;
    change(broken);
    std::string all;
    for (const std::string& finding : ::certificate::check(certificate_of(broken)))
      all += finding + "\n";
    EXPECT_NE(all.find(words), std::string::npos) << words << ": " << all.substr(0, 400);
  }
}

bool reaches(Queue queue, Tier tier) {
  switch (queue) {
    case Queue::host:
      return tier == Tier::host;
    case Queue::copy:
      return tier != Tier::nvme;
    default:
      return tier == Tier::device;
  }
}

// Moves a random operand to another memory. The checker and the verifier refuse an operand in
// memory that the queue of its instruction cannot access, and name the instruction, the operand and
// the memory. Where memories are not separate, only an operand in a file is refused.
TEST(Certificate, OperandsInMemoryTheQueueCannotAccessAreRefused) {
  int refused = 0, shared = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    std::mt19937_64 draw(seed);
    std::vector<Program> ranks = random_ranks(seed % 30, 1 + static_cast<int>(seed % 3));
    if (seed % 4 == 0) {
      ranks.clear();
      for (Plan& plan : plans_of(point(3, Tier::nvme, 2)))
        ranks.push_back(std::move(plan.programs.at(ProgramKind::step)));
    }
    Program& p = ranks[draw() % ranks.size()];
    ASSERT_TRUE(p.separate);
    InstrId i(draw() % p.instrs.size());
    Instr& in = p.instrs[i];
    if (in.queue == Queue::read || in.queue == Queue::write || in.operands.empty()) continue;
    size_t k = draw() % in.operands.size();
    Buffer moved = p.buffers[in.operands[k].buffer];
    moved.name = "moved";
    moved.tier = static_cast<Tier>(draw() % 3);
    in.operands[k].buffer = p.buffers.add(moved);
    std::string found = joined(::certificate::check(certificate_of(ranks))), message;
    try {
      verify(p, {});
    } catch (const Error& e) {
      message = e.what();
    }
    bool right = reaches(in.queue, moved.tier);
    std::string where = fmt::format("operand {}, %moved, in memory '{}'", k, tier_name(moved.tier));
    EXPECT_EQ(message.find(where) == message.npos, right) << seed << ": " << message;
    EXPECT_EQ(
        found.find(fmt::format("does not reach operand {}, moved, in memory", k)) == found.npos,
        right)
        << seed << ": " << found;
    if (!right) expect_names(message, {fmt::format("instruction {} ({})", i, in.def->name)});
    refused += !right;
    p.separate = false;
    bool file = moved.tier == Tier::nvme;
    found = joined(::certificate::check(certificate_of(ranks)));
    EXPECT_EQ(found.find("does not reach") == found.npos, !file) << seed << ": " << found;
    shared += !right && !file;
  }
  EXPECT_GT(refused, 40);
  EXPECT_GT(shared, 15);
}

// In the repeated part of a program, the checker finds a missing wait, like the verifier. It also
// finds a rank with another number of rounds, and strides that lead out of a buffer.
TEST(Certificate, RepeatedStepsAreChecked) {
  Point p = point(3, Tier::nvme, 2);
  p.leaves = 2 * 40;
  std::vector<Program> right;
  for (Plan& plan : plans_of(p)) right.push_back(std::move(plan.programs.at(ProgramKind::step)));
  const Repeat& repeat = right[0].repeat;
  ASSERT_GT(repeat.rounds * repeat.micros, 30);
  int of_round_before = 0, found = 0;
  for (std::pair<size_t, size_t> wait : waits_of(right[0])) {
    if (!repeat.has(InstrId(wait.first))) continue;
    of_round_before += right[0].instrs[wait.first].waits[wait.second].round_before;
    std::vector<Program> broken = right;
    auto& waits = broken[0].instrs[wait.first].waits;
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait.second));
    EXPECT_TRUE(verify_refuses(broken[0]));
    if (++found > 40) continue;
    EXPECT_NE(findings_of(certificate_of(broken)), "") << wait.first << " " << wait.second;
  }
  EXPECT_GT(of_round_before, 2);
  EXPECT_GT(found, 10);
  std::vector<Program> other = right;
  --other[1].repeat.rounds;
  EXPECT_NE(findings_of(certificate_of(other)).find("meets"), std::string::npos);
  other = right;
  for (InstrId i : IdRange(repeat.begin, repeat.end)) {
    for (Operand& o : other[0].instrs[i].operands) o.stride *= 3;
  }
  EXPECT_NE(findings_of(certificate_of(other)).find("uses"), std::string::npos);
  EXPECT_TRUE(verify_refuses(other[0]));
}

TEST(Certificate, TheCheckerHasUnder500LinesAndIncludesNoProjectCode) {
  size_t lines = 0;
  for (const char* name : {"check.h", "main.cpp"}) {
    std::ifstream file(std::string(DS_SOURCE_DIR "/tools/certificate/") + name);
    ASSERT_TRUE(file.good()) << name;
    for (std::string line; std::getline(file, line);) {
      EXPECT_TRUE(!line.starts_with("#include \"") || line == "#include \"check.h\"") << line;
      size_t begin = line.find_first_not_of(' ');
      lines += begin != line.npos && line.compare(begin, 2, "//") != 0;
    }
  }
  EXPECT_LT(lines, 500U);
  EXPECT_GT(lines, 300U);
}

// Whatever a file contains, the checker does not crash, and each of its findings is one line.
TEST(Certificate, HostileFilesAreReportedInOneLine) {
  std::string right = certificate_of(random_ranks(0, 2));
  EXPECT_NE(findings_of(""), "");
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 draw(seed);
    std::string text = right;
    for (int change = 0; change < 3; ++change) {
      size_t at = draw() % text.size();
      const char* kWords[] = {"-1", "99999999999999999999", "4398046511104", "", "\n", "last"};
      if (draw() % 2 == 0)
        text[at] = static_cast<char>(draw() % 256);
      else
        text.replace(at, draw() % 9, kWords[draw() % 6]);
      if (draw() % 8 == 0) text.resize(draw() % text.size() + 1);
    }
    for (const std::string& finding : ::certificate::check(text))
      EXPECT_EQ(finding.find('\n'), std::string::npos) << seed;
  }
}

}  // namespace
}  // namespace ds::test
