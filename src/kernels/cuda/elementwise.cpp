// The host side of elementwise operations. An operation is one launch (`zero` is one for each
// output), in most cases of an entry with the operation's name.
#include "kernels/cuda/elementwise.h"

#include <cstddef>
#include <span>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/host.h"

namespace ds::cuda {

ElementArgs element_args(const Arguments& c) {
  ElementArgs a{};
  bool wide = true;
  // Vector accesses are used only if every operand begins at a multiple of 16 bytes.
  auto put = [&](std::span<const TensorView> from, std::span<Operand> to) {
    ensure(from.size() <= to.size(),
           "an elementwise kernel supports at most {} operands here, got {}", to.size(),
           from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      to[i] = operand(from[i]);
      wide = wide && aligned(from[i].data);
    }
  };
  put(c.in, a.in);
  put(c.out, a.out);
  a.wide = wide;
  a.count = c.in.empty() ? c.out[0].numel() : c.in[0].numel();
  a.scalars = c.scalars;
  a.leaf = c.leaf;
  return a;
}

void start_elements(Launcher& launcher, const char* entry, const ElementArgs& a) {
  start(launcher, entry, {blocks(a.count, kShare * kThreads)}, {kThreads}, a);
}

void copy_bytes(Launcher& launcher, const void* from, void* to, int64_t bytes) {
  ElementArgs a{};
  a.in[0].data = const_cast<void*>(from);
  a.out[0].data = to;
  a.wide = aligned(from) && aligned(to);
  const int64_t unit = a.wide ? 16 : 2;
  // Codes may begin at odd addresses, where only single bytes can be copied.
  const bool odd = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 2 != 0;
  a.count = odd ? 0 : bytes / unit;
  a.width = bytes - a.count * unit;
  start(launcher, "copy_bytes", {blocks(a.count + a.width, kThreads)}, {kThreads}, a);
}

std::unique_ptr<Kernel> make_elements(const Query& query, SetElements set) {
  return made([set, entry = std::string(query.op), attrs = query.attrs](Launcher& launcher,
                                                                        const Arguments& c) {
    ElementArgs a = element_args(c);
    if (set) set(a, attrs, c);
    start_elements(launcher, entry.c_str(), a);
  });
}

namespace {

using Made = std::unique_ptr<Kernel>;

void set_scale(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.a = static_cast<float>(attrs.real("factor"));
}
void set_dropout(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  const double p = attrs.real("p");
  a.a = static_cast<float>(1 / (1 - p));
  a.b = static_cast<float>(p);
  a.op = static_cast<uint32_t>(attrs.integer("op"));
}
// Layerdrop compares p with a random number and does not scale the layer's output.
void set_layerdrop(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.a = static_cast<float>(attrs.real("p"));
  a.op = static_cast<uint32_t>(attrs.integer("op"));
}
void set_accumulate(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.flag = attrs.real("beta") != 0;
}
void set_scale_rows(ElementArgs& a, const Attrs& attrs, const Arguments& c) {
  a.width = c.in[0].dims[1];
  a.stride = c.in[1].dims[1];
  a.flag = static_cast<int32_t>(attrs.integer("column"));
}
void set_position(ElementArgs& a, const Attrs& attrs, const Arguments& c) {
  a.width = c.in[0].dims[1];
  a.stride = attrs.integer("seq");
}
void set_fill(ElementArgs& a, const Attrs& attrs, const Arguments&) {
  a.real = attrs.real("value");
  a.flag = attrs.integer_or("loss_scale", 0) != 0;
}
void set_blend(ElementArgs& a, const Attrs& attrs, const Arguments& c) {
  a.a = static_cast<float>(attrs.real("a"));
  a.b = static_cast<float>(attrs.real_or("b", 0));
  a.c = static_cast<float>(attrs.real_or("diagonal", 0));
  a.flag = (c.in.size() == 2 ? 1 : 0) | (a.c != 0 ? 2 : 0);
  a.width = c.in[0].dims[1];
}
// zero and last_row only clear or copy bytes, whatever the element type: in every type, a zero
// consists of zero bytes.
Made make_zero(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    for (const TensorView& out : c.out) copy_bytes(launcher, nullptr, out.data, out.bytes());
  });
}
Made make_last_row(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    const int64_t bytes = c.in[0].dims[1] * size_of(c.in[0].dtype);
    copy_bytes(launcher, c.in[0].as<std::byte>() + (c.in[0].dims[0] - 1) * bytes, c.out[0].data,
               bytes);
  });
}

constexpr KernelRow kRows[] = {
    {"add", make_elements<>},
    {"mul", make_elements<>},
    {"cast", make_elements<>},
    {"relu", make_elements<>},
    {"relu_dx", make_elements<>},
    {"scale", make_elements<set_scale>},
    {"dropout", make_elements<set_dropout>},
    {"layerdrop", make_elements<set_layerdrop>},
    {"layerdrop_dx", make_elements<set_layerdrop>},
    {"accumulate", make_elements<set_accumulate>},
    {"scale_rows", make_elements<set_scale_rows>},
    {"position", make_elements<set_position>},
    {"fill", make_elements<set_fill>},
    {"blend", make_elements<set_blend>},
    {"zero", make_zero, Takes::own},
    {"last_row", make_last_row, Takes::own},
};

}  // namespace

std::span<const KernelRow> elementwise_rows() { return kRows; }

}  // namespace ds::cuda
