// Losses that compare two texts of the same prompt, a chosen and a rejected one.
//
// The n rows are texts of `rows` rows each: the chosen text of the first pair, the rejected one,
// then those of the next pair. Rows without a target belong to a prompt or are padding. With L the
// sum of the losses of a text's rows, R the same sum of a reference model, and N the number of its
// targets, the score of a text is s = R - L, and its mean log-probability a = -L / N.
//
// Sources: DPO (arXiv:2305.18290), hinge (SLiC, arXiv:2305.10425), IPO (arXiv:2310.12036, per token
// as its authors compute it), the odds ratio of ORPO (arXiv:2403.07691), SimPO (arXiv:2405.14734).
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Returns whether the loss compares the model with a reference.
bool has_reference(std::string_view loss) {
  return loss == "sigmoid" || loss == "hinge" || loss == "ipo";
}

// Checks losses, targets and reference, which begin at operand `first`, and the attributes.
void check_pairs(std::string_view op, const OperandCheck& check, In in, size_t first,
                 const Attrs& attrs) {
  const TensorType& losses = in[first];
  require(losses.shape.rank() == 1 && is_floating(losses.dtype) &&
              losses.dtype == wide_type(losses.dtype),
          "{}: operand 'losses' must be an f32 or f64 vector, got {}", op, losses.text());
  check.equal(first + 1, {DS_DTYPE_I32, losses.shape});
  check.positive(attrs, "rows");
  const std::string_view loss = attrs.text_or("loss", "sigmoid");
  require(has_reference(loss) == (in.size() == first + 3),
          "{}: loss \"{}\" takes {} reference, got {} operands", op, loss,
          has_reference(loss) ? "a" : "no", in.size());
  if (in.size() == first + 3) check.equal(first + 2, losses);
  const double beta = attrs.real_or("beta", 0.1), smoothing = attrs.real_or("label_smoothing", 0);
  require(std::isfinite(beta) && beta > 0, "{}: attribute 'beta' must be above 0, got {}", op,
          beta);
  require(smoothing >= 0 && smoothing <= 1,
          "{}: attribute 'label_smoothing' must be in [0, 1], got {}", op, smoothing);
  const bool smooths = loss == "sigmoid" || loss == "simpo";
  require(smooths || smoothing == 0,
          "{}: attribute 'label_smoothing' must be 0 with loss \"{}\", got {}", op, loss,
          smoothing);
  const double margin = attrs.real_or("margin", 0);
  require(std::isfinite(margin) && (loss == "simpo" || margin == 0),
          "{}: attribute 'margin' must be {} with loss \"{}\", got {}", op,
          loss == "simpo" ? "finite" : "0", loss, margin);
}

Types infer_preference_loss(In in, const Attrs& attrs) {
  OperandCheck check("preference_loss", in);
  check_pairs("preference_loss", check, in, 0, attrs);
  return {{in[0].dtype, {}}, {in[0].dtype, {4}}};
}

Types infer_preference_loss_dx(In in, const Attrs& attrs) {
  OperandCheck check("preference_loss_dx", in);
  check_pairs("preference_loss_dx", check, in, 1, attrs);
  check.equal(0, {in[1].dtype, {}});
  return Types(in.size() == 4 ? 2 : 1, in[1]);
}

// Appends the gradients of the losses and the reference. The rewards have none.
std::vector<ValueId> preference_loss_backward(BackwardContext& c) {
  std::vector<ValueId> in{c.first_grad()};
  in.insert(in.end(), c.node.in.begin(), c.node.in.end());
  const bool referred = c.node.in.size() == 3;
  const std::vector<size_t> of = referred ? std::vector<size_t>{0, 2} : std::vector<size_t>{0};
  const ValueId first = c.emit("preference_loss_dx", std::move(in), c.node.attrs, of);
  std::vector<ValueId> grads(c.node.in.size());
  grads[0] = first;
  if (referred && first.exists()) grads[2] = first + 1;
  return grads;
}

double preference_loss_flops(In in, const Attrs&, int64_t n) {
  return 2.0 * static_cast<double>(in[0].shape.numel(n));
}
double preference_loss_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return preference_loss_flops(in.subspan(1), attrs, n);
}

}  // namespace

void add_preference_ops(std::vector<OpDef>& table) {
  const OperandDef losses{"losses", "A[n]",
                          "the loss -log p of each row: a cross_entropy with reduction \"none\""},
      targets{"targets", "i32[n]", "the right word of each row; -100: the row has none"},
      reference{"reference", "A[n]", "the losses of the same rows in the reference model"},
      dloss{"dloss", "A[]", "gradient of the loss"},
      dlosses{"dlosses", "A[n]", "gradient of losses"},
      dreference{"dreference", "A[n]", "gradient of reference"};
  const std::vector<OperandDef> results{
      {"loss", "A[]", "the loss"},
      {"rewards", "A[4]",
       "means over pairs: the reward of the chosen and of the rejected text, the share of pairs "
       "whose chosen text has the larger one, and the difference of both"}};
  const std::vector<AttrDef> attrs{
      {"rows", AttrKind::integer, "rows of a text; chosen and rejected texts take turns"},
      optional({"loss",
                AttrKind::one_of,
                "how a pair is judged",
                {"sigmoid", "hinge", "ipo", "odds", "simpo"}},
               "sigmoid"),
      optional({"beta", AttrKind::number, "b > 0, the strength of the preference"}, 0.1),
      optional({"label_smoothing", AttrKind::number,
                "e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid "
                "and simpo"},
               0.0),
      optional({"margin", AttrKind::number, "the margin g of simpo"}, 0.0)};
  table.push_back(
      {.name = "preference_loss",
       .doc = "The mean over pairs of a loss of the chosen text c and the rejected text r. With L "
              "and R the sums of losses and reference over the N targets of a text, s = R - L and "
              "a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log sigmoid(-z) of z = b (s_c - "
              "s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds "
              "is -b log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is "
              "like sigmoid for z = b (a_c - a_r) - g. The reward of a text is b s, or b a without "
              "a reference. A pair without any target is padding and does not count.",
       .forms = {{"", {losses, targets}, results},
                 {"reference", {losses, targets, reference}, results}},
       .attrs = attrs,
       .infer = infer_preference_loss,
       .backward = preference_loss_backward,
       .flops = preference_loss_flops});
  table.push_back(
      {.name = "preference_loss_dx",
       .doc = "The gradients of the losses and the reference of a preference_loss.",
       .forms = {{"", {dloss, losses, targets}, {dlosses}},
                 {"reference", {dloss, losses, targets, reference}, {dlosses, dreference}}},
       .attrs = attrs,
       .infer = infer_preference_loss_dx,
       .flops = preference_loss_dx_flops});
}

}  // namespace ds
