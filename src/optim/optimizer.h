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
#include "core/program/state.h"
#include "optim/optimizer_types.h"

namespace ds {

// The way in which a step uses its gradients. Most optimizers have one form, `reduced`: gradients
// are summed over all ranks, and each rank updates its part with the sum. In all other forms
// gradients stay on their rank (docs/adr/0039, docs/adr/0033):
//     gradients: ranks exchange signs of their own mean gradients.
//     freezing: the first step after the freeze, otherwise like `compressed`.
//     compressed: ranks exchange signs of the tensors that Compression::of names.
//     local: ranks exchange nothing, and each rank updates its parameters alone.
enum class StepForm : int8_t { reduced = 0, gradients, freezing, compressed, local };
// Returns the name of a form, which is also the name of its step program.
const char* form_name(StepForm form);

// How an optimizer compresses: the tensors that ranks exchange after its freeze, and the forms of
// its steps.
struct Compression {
  // The tensors that ranks exchange as signs.
  enum class Of {
    // Momenta, tensor by tensor. Every rank updates the whole momentum with its own mean gradient.
    momentum,
    // As `momentum`, but joined to one tensor, after each momentum was scaled to the same size.
    momenta,
    // The sum of a rank's own steps since the last synchronisation.
    steps
  };
  Of of;
  // The forms that steps can have other than `reduced`.
  std::vector<StepForm> forms;
  // Returns the form of the next step after `updates` updates.
  StepForm (*form)(const OptimizerConfig& config, int64_t updates);
};

// The instructions of an update whose step depends on norms of whole parameters, as LAMB's does.
struct NormRatios {
  // The instruction that runs before the update on each part. It updates the states and writes two
  // sums of squares for each granule. in: grad f32, scalars, master f32; out: the states (read and
  // written), norms f64[2 * granules].
  std::string norms;
  // The instruction that runs once, on the norms of all ranks. in: norms; out: the means of the
  // ratios (read and written; only if momenta are joined), a ratio f32 for each granule. Each of
  // its element ranges covers granules of one parameter.
  std::string ratios;
  // Returns the attributes of `ratios`.
  Attrs (*attrs)(const OptimizerConfig& config);
};

// The update of parameters whose step needs whole matrices, as Muon's does: two instructions on
// parts, between which the elements of the step are gathered and made orthogonal by Newton-Schulz
// iterations (update/matrix_update.cpp, docs/adr/0042).
struct MatrixUpdate {
  // The instruction that runs on each part before the iterations. in: grad f32, scalars; out: the
  // first state (read and written), the elements f32 that are made orthogonal.
  std::string momentum;
  // The instruction that runs on each part after the iterations. in: the orthogonal step f32,
  // scalars; out: master, param.
  std::string step;
  // The matrix is divided by its norm plus this before the first iteration.
  double scale_eps;
  // The coefficients of an iteration, X -> a X + (b X X' + c (X X')^2) X, and the number of
  // iterations.
  double a, b, c;
  int iterations;
};

// One row of the table of optimizers, with everything that the compile side and checkpoints need.
// The update is one instruction, in: grad f32 or bf16, scalars; out: master and the states in this
// order (all read and written, f32 or bf16), param in the compute type. With `by_norms` the
// instructions of NormRatios come first, and the update is, in: the states, the ratios, scalars;
// out: master, param.
struct Optimizer {
  // The values of optimizer.type that choose the row.
  std::vector<std::string> types;
  // The update instruction (docs/reference/ops.md).
  std::string op;
  // The states other than the master. All start at zero. Canonical states come first, under torch's
  // names.
  std::vector<StateRow> states;
  // Returns the attributes of `op`.
  Attrs (*attrs)(const OptimizerConfig& config);
  std::optional<NormRatios> by_norms = std::nullopt;
  // The instruction that updates states in codes (core/program/state_codes.h). Among its operands,
  // the scales of each state follow the state. Without it, states in codes are refused.
  std::optional<std::string> codes = std::nullopt;
  // The update of the parameters that set_matrix() marks as matrices. All other parameters are
  // updated by `op`.
  std::optional<MatrixUpdate> matrices = std::nullopt;
  // Without compression, every step is `reduced`.
  std::optional<Compression> compression = std::nullopt;
  // The states that all parameters have as one tensor, for an optimizer that joins their momenta.
  std::vector<StateRow> joint = {};
  // Whether a function of the host is the update (EngineOptions::update). The states are those that
  // the configuration names, and each launch covers elements of one parameter, without its padding.
  bool by_callback = false;

  bool compresses() const { return compression.has_value(); }
  // Returns the names of the canonical states.
  std::vector<std::string> state_names() const;
  // Returns whether every rank keeps the whole first state, the momentum.
  bool whole_momentum() const {
    return !states.empty() && states.front().extent == StateRow::Extent::whole;
  }
  // Returns whether the parameters of ranks differ between synchronisations. Each rank then keeps
  // the sum of its own steps in addition to the masters, which are equal on all ranks.
  bool steps_locally() const { return compresses() && compression->of == Compression::Of::steps; }
  // Returns whether the momenta of all parameters are exchanged as one tensor, for which each
  // parameter has coefficients.
  bool joins_momenta() const { return compresses() && compression->of == Compression::Of::momenta; }
  // Returns the form of the next step after `updates` updates.
  StepForm form(const OptimizerConfig& config, int64_t updates) const {
    return compresses() ? compression->form(config, updates) : StepForm::reduced;
  }
};

// Registers an optimizer of a plugin or a test. Call it before the first configuration that names
// the optimizer is read. `type` lists the names that optimizer.params may have. The row's
// instruction must be registered by add_instruction(), and the engine's registry must have a kernel
// for it. Throws DS_ERROR_INVALID_ARGUMENT if the name is taken or the states break a rule of
// state rows. Not thread-safe.
void add_optimizer(Optimizer row, OptimizerType type);

// Sets param.rows and param.cols if the optimizer updates this parameter matrix by matrix. By
// DeepSpeed's rule it does so for parameters of two or more dimensions whose names do not contain
// "embed" or "lm_head", in upper or lower case. Throws DS_ERROR_UNSUPPORTED if such a parameter has
// more than three dimensions.
void set_matrix(const OptimizerConfig& config, ParamSpec& param, const Shape& shape);

// Returns the row of config.type. Throws DS_ERROR_CONFIG naming the type if it has no row.
const Optimizer& optimizer_of(const OptimizerConfig& config);

}  // namespace ds
