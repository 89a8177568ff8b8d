#include "support/tags.h"

#include <cstring>

#include "core/base/hash.h"
#include "core/base/random.h"

namespace ds::test {
namespace {

uint64_t joined(uint64_t a, uint64_t b) {
  uint64_t words[] = {a, b};
  return hash64({reinterpret_cast<const char*>(words), sizeof words});
}

void fill_tag(std::byte* data, DType dtype, int64_t numel, uint64_t tag) {
  RandomStream stream{tag, 0, 0, 0};
  size_t size = static_cast<size_t>(size_of(dtype));
  for (size_t e = 0; e < static_cast<size_t>(numel); e += 4) {
    std::array<uint32_t, 4> words = stream.block(e / 4);
    for (size_t k = 0; k < 4 && e + k < static_cast<size_t>(numel); ++k) {
      float value = static_cast<float>(words[k] & 0xFFFFF);
      const void* from = dtype == DS_DTYPE_F32 ? static_cast<const void*>(&value) : &words[k];
      std::memcpy(data + (e + k) * size, from, size);
    }
  }
}

struct Piece {
  std::byte* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
  size_t bytes() const { return static_cast<size_t>(numel * size_of(dtype)); }
};

void run_tag(const Attrs& attrs, const std::vector<Piece>& in, const std::vector<Piece>& out) {
  uint64_t tag = hash64(attrs.print()), updates = static_cast<uint64_t>(attrs.integer("updates"));
  auto absorb = [&](const Piece& p) {
    tag = joined(tag, hash64({reinterpret_cast<const char*>(p.data), p.bytes()}));
  };
  for (const Piece& p : in) absorb(p);
  for (size_t k = 0; k < out.size(); ++k) {
    if (updates >> k & 1) absorb(out[k]);
  }
  for (size_t k = 0; k < out.size(); ++k)
    fill_tag(out[k].data, out[k].dtype, out[k].numel, joined(tag, k));
}

std::vector<Piece> pieces(std::span<const TensorView> views) {
  std::vector<Piece> out;
  for (const TensorView& v : views) out.push_back({v.as<std::byte>(), v.dtype, v.numel()});
  return out;
}

void tag_kernel(const KernelContext& c) { run_tag(c.attrs, pieces(c.in), pieces(c.out)); }

// The state of one rank in interpret().
struct RankCopy {
  const Program* program;
  IdVector<BufferId, Bytes> memory;

  std::vector<Piece> operands(const Instr& in, bool reads) {
    std::vector<Piece> out;
    for (const Operand& o : in.operands) {
      if ((o.access == Access::read) != reads) continue;
      out.push_back(
          {memory[o.buffer].data() + o.begin, o.type.dtype, o.type.shape.numel(program->bound)});
    }
    return out;
  }
};

// Joins the inputs of all ranks in rank order.
Bytes concatenate(const std::vector<Piece>& in) {
  Bytes all;
  for (const Piece& p : in) all.insert(all.end(), p.data, p.data + p.bytes());
  return all;
}

// Returns the sum of element e over all ranks' inputs.
float sum_at(const std::vector<Piece>& in, int64_t e) {
  float sum = 0;
  for (const Piece& p : in) {
    float x;
    std::memcpy(&x, p.data + e * 4, 4);
    sum += x;
  }
  return sum;
}

void run_collective(Op op, const std::vector<Piece>& in, const std::vector<Piece>& out) {
  Bytes all = concatenate(in);
  for (size_t r = 0; r < out.size(); ++r) {
    if (op == Op::all_gather) {
      std::memcpy(out[r].data, all.data(), all.size());
      continue;
    }
    int64_t first = op == Op::reduce_scatter ? static_cast<int64_t>(r) * out[r].numel : 0;
    for (int64_t e = 0; e < out[r].numel; ++e) {
      float sum = sum_at(in, first + e);
      std::memcpy(out[r].data + e * 4, &sum, 4);
    }
  }
}

void run_instr(std::vector<RankCopy>& ranks, size_t index) {
  const Instr& first = ranks[0].program->instrs[index];
  std::vector<Piece> all_in, all_out;
  for (RankCopy& m : ranks) {
    const Instr& in = m.program->instrs[index];
    std::vector<Piece> reads = m.operands(in, true), writes = m.operands(in, false);
    if (in.def == &tag_instruction()) {
      run_tag(in.attrs, reads, writes);
    } else if (in.queue != Queue::comm) {
      std::memcpy(writes[0].data, reads[0].data, reads[0].bytes());
    } else {
      all_in.push_back(reads[0]);
      all_out.push_back(writes[0]);
    }
  }
  if (first.queue == Queue::comm) run_collective(first.def->op, all_in, all_out);
}

}  // namespace

const InstrDef& tag_instruction() {
  static const InstrDef& row = add_instruction({.name = "tag"});
  return row;
}

KernelRegistry tag_kernels() {
  KernelRegistry registry;
  registry.add({"tag", "test", tag_kernel, nullptr});
  return registry;
}

std::vector<Bytes> first_contents(const Program& program) {
  std::vector<Bytes> out(program.buffers.size());
  for (size_t b = 0; b < out.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::persistent) continue;
    out[b].resize(static_cast<size_t>(buffer.bytes()));
    fill_tag(out[b].data(), buffer.dtype, buffer.numel,
             joined(b, static_cast<uint64_t>(program.rank)));
  }
  return out;
}

std::vector<std::vector<Bytes>> interpret(const std::vector<Program>& ranks, int runs) {
  std::vector<RankCopy> copies;
  for (const Program& p : ranks) {
    copies.push_back({&p, first_contents(p)});
    for (size_t b = 0; b < p.buffers.size(); ++b)
      copies.back().memory[b].resize(static_cast<size_t>(p.buffers[b].bytes()));
  }
  for (int run = 0; run < runs; ++run) {
    for (size_t i = 0; i < ranks[0].instrs.size(); ++i) run_instr(copies, i);
  }
  std::vector<std::vector<Bytes>> out;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t b = 0; b < ranks[r].buffers.size(); ++b) {
      if (ranks[r].buffers[b].residency != Residency::persistent) copies[r].memory[b].clear();
    }
    out.push_back(std::move(copies[r].memory));
  }
  return out;
}

}  // namespace ds::test
