#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/program/granules.h"
#include "core/program/instruction.h"

namespace ds {

// What becomes of a step's gradients. The optimizers of most rows have one form.
//   reduced: they are summed over all ranks, and each rank updates its part with the sum.
// In all others they stay where they are, and what is exchanged goes as signs (docs/adr/0039,
// docs/adr/0033):
//   gradients: each rank's own mean gradient.
//   freezing: as `compressed`, in the first step behind the freeze.
//   compressed: what Compression::of says.
//   local: nothing. Every rank steps by itself.
enum class StepForm : int8_t { reduced = 0, gradients, freezing, compressed, local };
const char* form_name(StepForm form);

// What ranks exchange behind the freeze of an optimizer that compresses.
struct Compression {
  enum class Of {
    momentum,  // every rank updates the whole momentum with its own mean gradient; tensor by tensor
    momenta,   // the same, all tensors as one, each scaled to one size
    steps      // the sum of this rank's own steps since ranks last agreed
  };
  Of of;
  std::vector<StepForm> forms;  // that there are beside `reduced`
  // The form of the step behind so many updates.
  StepForm (*form)(const OptimizerConfig& config, int64_t updates);
};

// What an update needs whose step of a parameter depends on norms of the whole parameter.
struct NormRatios {
  // Before the update, on each part: renews the states and writes two sums of squares for each
  // granule. in: grad f32, scalars, master f32; out: the states (read and written), norms f64[2 *
  // granules].
  Op norms;
  // Once, on the norms of all ranks: in: norms; out: a ratio f32 for each granule. Its runs are the
  // granules of one parameter after the other.
  Op ratios;
  Attrs (*attrs)(const OptimizerConfig& config);  // of `ratios`
};

// How parameters of two and more dimensions are updated whose step needs all of a matrix: by three
// instructions, between which the elements of the step are gathered and made orthogonal
// (zero/matrix_update.cpp, docs/adr/0042).
struct MatrixUpdate {
  // On each part. in: grad f32, scalars; out: the first state (read and written), what the step is
  // made of f32.
  Op momentum;
  // On each part. in: the orthogonal step f32, scalars; out: master, param.
  Op step;
  double scale_eps;  // added to the norm by which a matrix is divided
  // Of p(X) = a X + (b X X' + c (X X')^2) X, and how often it is applied.
  double a, b, c;
  int iterations;
};

// One row of the registry: an optimizer as the compile side and checkpoints see it. Its update is
// one instruction, in: grad f32 or bf16, scalars; out: master, the states in this order (all read
// and written), in f32 or bf16, param in the compute type. With `by_norms` those come first, and
// the update is, in: the states, the ratios, scalars; out: master, param.
struct Optimizer {
  std::vector<std::string> types;  // values of optimizer.type that choose it
  Op op;                           // the update instruction (docs/reference/ops.md)
  std::vector<std::string>
      states;  // per-element states beside master, zero at first; torch's names
  Attrs (*attrs)(const OptimizerConfig& config);
  std::optional<NormRatios> by_norms = std::nullopt;
  // Its update of states in codes (core/program/state_codes.h), of which each has its scales behind
  // it in the list of operands. None: it keeps no codes.
  std::optional<Op> codes = std::nullopt;
  // Of matrices (ParamSpec::rows); the others are updated by `op`. None: all are.
  std::optional<MatrixUpdate> matrices = std::nullopt;
  std::optional<Compression> compression = std::nullopt;  // none: every step is `reduced`

  bool compresses() const { return compression.has_value(); }
  // Every rank keeps the whole of the first state, the momentum.
  bool whole_momentum() const { return compresses() && compression->of != Compression::Of::steps; }
  // Between synchronisations ranks differ: each has a sum of steps of its own beside masters that
  // are those of all ranks.
  bool steps_locally() const { return compresses() && compression->of == Compression::Of::steps; }
  // Momenta of all parameters go as one tensor, and coefficients of each parameter are kept.
  bool joins_momenta() const { return compresses() && compression->of == Compression::Of::momenta; }
  StepForm form(const OptimizerConfig& config, int64_t updates) const {
    return compresses() ? compression->form(config, updates) : StepForm::reduced;
  }
};

const std::vector<Optimizer>& optimizers();

// Gives a parameter its matrices where the optimizer updates it so: by DeepSpeed's rule where it
// has two or more dimensions and its name has no "embed" and no "lm_head", in any case. Throws
// DS_ERROR_UNSUPPORTED for one of more than three.
void set_matrix(const OptimizerConfig& config, ParamSpec& param, const Shape& shape);

// The row of config.type; DS_ERROR_CONFIG naming the type when there is none.
const Optimizer& optimizer_of(const OptimizerConfig& config);

}  // namespace ds
