"""Makes `import deepspeed` import libds.torch in this process. libds.pth imports this file at the start of Python if the variable
LIBDS_AS_DEEPSPEED is 1. Neither libds nor torch is imported before a program looks for DeepSpeed."""
import sys

_NAMES = ("deepspeed", "accelerate.state")


class Finder:
    """Takes the place of the finder of libds.torch until a program imports a module that the latter provides or changes."""

    def find_spec(self, fullname, path=None, target=None):
        return self._begun().find_spec(fullname, path, target) if fullname in _NAMES else None

    def find_distributions(self, context):
        return self._begun().find_distributions(context) if (context.name or "").lower() == "deepspeed" else iter(())

    def _begun(self):
        from libds.torch import shim

        shim.install()  # removes this finder
        return next(finder for finder in sys.meta_path if isinstance(finder, shim.Finder))


sys.meta_path.insert(0, Finder())
