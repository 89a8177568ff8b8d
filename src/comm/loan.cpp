#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "comm/collectives/blocks.h"
#include "comm/collectives/collective.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/reduction.h"
#include "core/base/error.h"
#include "core/device/group.h"

namespace ds {

const char* operation_of(Group::Op op) {
  switch (op) {
    case Group::Op::all_gather:
      return "all_gather";
    case Group::Op::reduce_scatter:
      return "reduce_scatter";
    case Group::Op::all_reduce:
      return "all_reduce";
    case Group::Op::all_to_all:
      break;
  }
  return "all_to_all";
}

// One round exchanges the data of all ranks (addresses, for example), and an empty round separates
// two steps. The counted bytes are those that the collective of the same name receives on the host.
void Communicator::make(const Loan& loan, std::string_view label) {
  ensure(loan.bytes == 0 || exchange_->one_process() || size_ == 1,
         "ranks of several processes cannot borrow from each other");
  const bool sums = loan.op == Group::Op::reduce_scatter || loan.op == Group::Op::all_reduce;
  if (sums) check_reduction(loan.dtype, ReduceOp::sum);
  const size_t ranks = static_cast<size_t>(size_), bytes = loan.count * unit_of(loan.dtype);
  const std::string detail = sums ? reduction_detail(loan.dtype, ReduceOp::sum) : "";
  perform({operation_of(loan.op), detail, bytes, label}, [&] {
    Rounds rounds(*exchange_);
    rounds.gather_blocks(loan.mine, loan.all, Blocks(size_, loan.bytes));
    // After an error in a step, submitted work may still use memory of other ranks. This rank
    // finishes that work before it gives the memory back, and the owners wait for that.
    const bool lends = loan.bytes > 0;
    if (lends) exchange_->borrow();
    try {
      for (int step = 0; step < loan.steps; ++step) {
        if (step > 0) rounds.barrier();
        loan.step(step);
      }
    } catch (const std::exception&) {
      if (lends) loan.drain();
      if (lends) exchange_->give_back();
      throw;
    }
    if (lends) exchange_->give_back();
    if (loan.op != Group::Op::all_reduce) return bytes * (ranks - 1);
    return (bytes + loan.count * sum_size(loan.dtype)) * (ranks - 1) / ranks;
  });
}

}  // namespace ds
