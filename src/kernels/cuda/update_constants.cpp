// Launches the kernel that computes an optimizer's constants in one thread.
#include "kernels/cuda/update_constants.h"

#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

const UpdateConstants* start_constants(Launcher& launcher, const Arguments& c, ConstantsArgs a) {
  a.scalars = c.scalars;
  a.to = static_cast<UpdateConstants*>(c.scratch);
  a.own_group = c.group.has_value();
  if (c.group) a.group = *c.group;
  a.missed = c.run.missed;
  a.param = c.run.param;
  a.element = c.run.element;
  start(launcher, "update_constants", {1}, {32}, a);
  return a.to;
}

}  // namespace ds::cuda
