// The host side of the router. Gates are one launch. The load-balancing loss adds up the rows of
// each layer and then combines the layers; its backward computes the same totals again, because
// only the logits are kept.
#include "kernels/cuda/router.h"

#include <memory>
#include <span>
#include <string>

#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

void start_rows(Launcher& launcher, const char* entry, const RouterArgs& a) {
  start(launcher, entry, {blocks(a.rows, kThreads)}, {kThreads}, a);
}

Made make_top_gates(const Query& query, std::string*) {
  RouterArgs a{};
  a.k = query.attrs.integer("k");
  a.normalize = query.attrs.integer_or("normalize", 1);
  const bool backward = query.op == "top_gates_dx";
  return made([=](Launcher& launcher, const Arguments& c) {
    RouterArgs own = a;
    if (backward) own.dy = operand(c.in[0]);
    own.logits = operand(c.in.back());
    own.to = operand(c.out[0]);
    own.rows = c.in[0].dims[0], own.experts = c.in[0].dims[1];
    start_rows(launcher, backward ? "top_gates_dx" : "top_gates", own);
  });
}

// Returns the logits of each layer, without the mask that may follow them.
std::span<const TensorView> layers_of(std::span<const TensorView> in) {
  return in.back().dtype == DS_DTYPE_I32 ? in.first(in.size() - 1) : in;
}

// Allocates scratch memory for the bases of all rows of each layer, the totals, the shares and the
// number of counted rows.
void take(Scratch& scratch, RouterArgs* a) {
  a->base = scratch.take<double>(a->rows * a->layers);
  a->totals = scratch.take<double>(a->layers * a->experts * 2);
  a->shares = scratch.take<double>(a->experts * 2);
  a->counted = scratch.take<double>(1);
}

// Returns the arguments of a launch for one layer.
RouterArgs at(const RouterArgs& all, std::span<const TensorView> layers, int64_t layer) {
  RouterArgs a = all;
  a.logits = operand(layers[static_cast<size_t>(layer)]);
  a.base = all.base + layer * all.rows;
  a.layer = layer;
  return a;
}

Made make_load_balance(const Query& query, std::string*) {
  const bool backward = query.op == "load_balance_dx";
  const int64_t k = query.attrs.integer("k");
  auto shape = [=](std::span<const TensorView> in) {
    RouterArgs a{};
    std::span<const TensorView> layers = layers_of(in);
    a.rows = layers[0].dims[0], a.experts = layers[0].dims[1];
    a.layers = static_cast<int64_t>(layers.size());
    a.k = k;
    return a;
  };
  RouterArgs most = shape(query.in.subspan(backward ? 1 : 0));
  Scratch room(nullptr);
  take(room, &most);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        std::span<const TensorView> in = c.in.subspan(backward ? 1 : 0), layers = layers_of(in);
        RouterArgs a = shape(in);
        if (layers.size() != in.size()) a.mask = in.back().as<int32_t>();
        Scratch scratch(c.scratch);
        take(scratch, &a);
        for (int64_t layer = 0; layer < a.layers; ++layer) {
          const RouterArgs own = at(a, layers, layer);
          start_rows(launcher, "router_bases", own);
          // Shared memory has room for three sums over the block.
          start(launcher, "router_totals", {static_cast<uint32_t>(a.experts)}, {kRouterThreads},
                own, 3 * 8 * sizeof(double));
        }
        if (!backward) a.loss = c.out[0].as<float>();
        start(launcher, "router_loss", {1}, {32}, a);
        for (int64_t layer = 0; backward && layer < a.layers; ++layer) {
          RouterArgs own = at(a, layers, layer);
          own.dloss = c.in[0].as<float>();
          own.to = operand(c.out[static_cast<size_t>(layer)]);
          start_rows(launcher, "load_balance_dx", own);
        }
      },
      room.used());
}

constexpr KernelRow kRows[] = {{"top_gates", make_top_gates},
                               {"top_gates_dx", make_top_gates},
                               {"load_balance", make_load_balance},
                               {"load_balance_dx", make_load_balance}};

}  // namespace

std::span<const KernelRow> router_rows() { return kRows; }

}  // namespace ds::cuda
