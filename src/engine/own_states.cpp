// Problem: some states cannot be redistributed over another number of ranks, because they differ
// from rank to rank. Checkpoints save them separately (checkpoint/state_access.h), and states that
// fit no other layout are set to zero, which is called forgetting them.
//
// states() lists them in the order of own_pieces() (zero/state_rows.h); read() and write() identify
// them by their index in the last such list.
#include "engine/own_states.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/element_run.h"
#include "optim/optimizer.h"
#include "zero/state_rows.h"

namespace ds {

void OwnStates::forget_all(StateRow::Forgotten least) {
  auto forget_some = [&](const std::vector<HeldState>& states) {
    for (const HeldState& held : states) {
      if (held.row.forgotten >= least) values_.zero(held);
    }
  };
  for (const BucketState& s : zero_.buckets) forget_some(s.states);
  forget_some(zero_.joint);
  control_.forget_rate_sums();
}

void OwnStates::forget_rearranged() { forget_all(StateRow::Forgotten::rearranged); }

void OwnStates::forget() { forget_all(StateRow::Forgotten::resized); }

void OwnStates::forget_errors(ParamId param) {
  const BucketId b = zero_.layout.bucket_of[param];
  const ParamPlace& place = zero_.layout.place(param);
  for (const HeldState& held : zero_.buckets[b].states) {
    // States marked `resized` also forget the elements of a frozen parameter.
    if (held.row.forgotten != StateRow::Forgotten::resized) continue;
    const ElementRun here = elements_of(zero_, b, held);
    const int64_t begin = std::max(here.begin, place.begin),
                  end = std::min(here.end, place.begin + place.numel);
    constexpr int64_t kUnit = sizeof(float);
    if (begin < end)
      runtime_.memory().fill(runtime_.buffer(held.ref.buffer), (begin - here.begin) * kUnit, 0,
                             (end - begin) * kUnit);
  }
}

std::vector<OwnStates::Own> OwnStates::find() const {
  std::vector<Own> out;
  for (OwnPiece& piece : own_pieces(zero_)) {
    std::string name =
        piece.param.exists() ? names_[piece.param] + "." + piece.name : std::move(piece.name);
    out.push_back({{std::move(name), piece.ref.numel, piece.common}, piece.ref});
  }
  // The sums of rates since ranks last agreed are not in a buffer, but in StepControl.
  if (optimizer_of(runtime_.config().optimizer).steps_locally())
    out.push_back({{"rate_sums", std::ssize(control_.rate_sums())}, {}});
  return out;
}

std::vector<OwnState> OwnStates::states() {
  found_ = find();
  std::vector<OwnState> out;
  for (const Own& o : found_) out.push_back(o.state);
  return out;
}

void OwnStates::read(size_t index, int64_t begin, int64_t count, float* out) {
  const StateRef& ref = found_.at(index).ref;
  if (!ref.buffer.exists()) {
    std::copy_n(control_.rate_sums().begin() + begin, count, out);
  } else {
    values_.read(ref.buffer, ref.first + begin, count, out);
  }
}

void OwnStates::write(size_t index, int64_t begin, int64_t count, const float* in) {
  const StateRef& ref = found_.at(index).ref;
  if (!ref.buffer.exists()) {
    control_.take_rate_sums(begin, {in, static_cast<size_t>(count)});
  } else {
    values_.write(ref.buffer, ref.first + begin, count, in);
  }
}

}  // namespace ds
