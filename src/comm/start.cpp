#include <memory>
#include <string>
#include <string_view>

#include "comm/collective.h"
#include "comm/comm_thread.h"
#include "comm/reduction.h"

namespace ds {

// What would be refused is refused here: nothing is queued.
std::shared_ptr<Work> Communicator::start(const CommRequest& request, std::string_view label) {
  using Op = CommRequest::Op;
  bool reduces = request.op == Op::all_reduce || request.op == Op::reduce_scatter;
  if (reduces) check_reduction(request.dtype, request.reduce);
  if (request.op == Op::broadcast) check_root(request.root);
  return thread_->start(this, [this, request, text = std::string(label)] { make(request, text); });
}

void Communicator::make(const CommRequest& r, std::string_view label) {
  using Op = CommRequest::Op;
  size_t bytes = r.op == Op::barrier ? 0 : r.count * unit_of(r.dtype);
  switch (r.op) {
    case Op::all_reduce:
      return all_reduce(r.in, r.out, r.count, r.dtype, label, r.reduce);
    case Op::all_gather:
      return all_gather(r.in, r.out, bytes, label);
    case Op::reduce_scatter:
      return reduce_scatter(r.in, r.out, r.count, r.dtype, label, r.reduce);
    case Op::all_to_all:
      return all_to_all(r.in, r.out, bytes, label);
    case Op::broadcast:
      return broadcast(r.out, bytes, r.root, label);
    case Op::barrier:
      return barrier(label);
  }
}

}  // namespace ds
