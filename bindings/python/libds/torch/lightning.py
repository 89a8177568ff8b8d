"""A strategy of Lightning that trains with libds.torch: `Trainer(accelerator="cpu", strategy=Strategy(stage=3))`.

Importing this file makes `import deepspeed` import libds.torch, as `libds.torch.as_deepspeed()` does.
"""
from __future__ import annotations

from typing import Any

from . import as_deepspeed

as_deepspeed()

from lightning_fabric.utilities.seed import reset_seed  # noqa: E402  pylint: disable=wrong-import-position
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy  # noqa: E402  pylint: disable=wrong-import-position

__all__ = ["Strategy"]


class Strategy(DeepSpeedStrategy):
    """Lightning's DeepSpeed strategy, with the same arguments, on the CPU."""

    strategy_name = "libds"

    def setup_environment(self) -> None:
        """Starts the ranks. Lightning's own method accepts only CUDA."""
        DDPStrategy.setup_environment(self)

    def setup_distributed(self) -> None:
        """Joins the ranks. Lightning's own method needs a numbered device for each rank, but a CPU has no such devices."""
        reset_seed()
        self.set_world_ranks()
        self._init_deepspeed_distributed()

    def backward(self, closure_loss: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
        """Runs backward. Lightning has already divided the loss by the number of micro-steps, so the engine must not do it again."""
        return super().backward(closure_loss, optimizer, *arguments, scale_wrt_gas=False, **options)
