// send() and answer() work alike. First the tensors are added to the stored error, in the error's
// buffer, and the sums of squares for the scales are computed. Then `pack_signs` writes signs and
// scales and subtracts the values that they represent, which leaves the new error. The order of the
// chunks in the buffers is that of core/program/signs.h.
#include "update/onebit/signs.h"

#include <utility>

#include "core/program/signs.h"
#include "zero/step_buffers.h"

namespace ds {

SignExchange::SignExchange(ProgramBuilder& builder, const ZeroPlan& plan, std::string name,
                           const RankLevels& levels, std::vector<ElementRun> tensors,
                           BufferId worker_error, BufferId server_error)
    : builder_(builder),
      plan_(plan),
      name_(std::move(name)),
      ranks_(levels.ranks()),
      stride_(levels.stride()),
      tensors_(std::move(tensors)),
      worker_error_(worker_error),
      server_error_(server_error) {}

void SignExchange::send(const StateRef& from) {
  SignSizes sizes = sign_sizes(tensors_, ranks_, ranks_);
  StateRef codes = transient(".signs", DS_DTYPE_U8, ranks_ * sizes.block);
  blocks_ = transient(".their_signs", DS_DTYPE_U8, ranks_ * sizes.block);
  StateRef sums = transient(".squares", DS_DTYPE_F64, sizes.sums);
  StateRef error{worker_error_, 0, ranks_ * sizes.chunks};
  push(Op::add_error, {read(from), scalars(), update(error), write(sums)}, {{"ranks", ranks_}});
  push(Op::pack_signs, {read(sums), scalars(), update(error), write(codes)},
       {{"ranks", ranks_}, {"ways", ranks_}});
  collect(Op::all_to_all, codes, blocks_);
}

void SignExchange::answer() {
  SignSizes sizes = sign_sizes(tensors_, ranks_, 1);
  StateRef codes = transient(".mean_signs", DS_DTYPE_U8, sizes.block);
  StateRef all = transient(".all_signs", DS_DTYPE_U8, ranks_ * sizes.block);
  StateRef sums = transient(".mean_squares", DS_DTYPE_F64, sizes.sums);
  StateRef error{server_error_, 0, sizes.chunks};
  push(Op::mean_signs, {read(blocks_), scalars(), update(error), write(sums)}, {{"ranks", ranks_}});
  push(Op::pack_signs, {read(sums), scalars(), update(error), write(codes)},
       {{"ranks", ranks_}, {"ways", int64_t{1}}});
  collect(Op::all_gather, codes, all);
  blocks_ = all;
}

// By now `blocks_` has the answers of all ranks, one chunk of every tensor from each.
void SignExchange::receive(const StateRef& to) {
  push(Op::unpack_signs, {read(blocks_), scalars(), update(to)}, {{"ranks", ranks_}});
}

StateRef SignExchange::transient(const std::string& name, DType dtype, int64_t numel) {
  return {builder_.transient(name_ + name, dtype, numel, Tier::device), 0, numel};
}

Operand SignExchange::read(const StateRef& of) const {
  return flat_operand(builder_, of, Access::read);
}
Operand SignExchange::write(const StateRef& of) const {
  return flat_operand(builder_, of, Access::write);
}
Operand SignExchange::update(const StateRef& of) const {
  return flat_operand(builder_, of, Access::update);
}
Operand SignExchange::scalars() const { return scalars_operand(builder_, plan_); }

Instr& SignExchange::push(Op op, std::vector<Operand> operands, Attrs attrs) {
  Instr& in = builder_.emit(op, std::move(operands), std::move(attrs));
  in.runs = tensors_;
  return in;
}

void SignExchange::collect(Op op, const StateRef& from, const StateRef& to) {
  builder_.emit(op, {read(from), write(to)}).group = {static_cast<int>(ranks_),
                                                      static_cast<int>(stride_)};
}

}  // namespace ds
