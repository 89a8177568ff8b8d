"""The number of samples that an engine trains per second."""
from __future__ import annotations

import time
from typing import Any

__all__ = ["Throughput"]


class Throughput:
    """Measures the time from each forward to the end of `step()`, as DeepSpeed's `tput_timer` does. The first two steps do not count."""

    #: The number of steps at the beginning that do not count, because they are slower.
    start_step = 2

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.epoch_count = self.micro_step_count = self.global_step_count = 0
        self.total_elapsed_time = 0.0
        self._began: float | None = None

    def update_epoch_count(self) -> None:
        """Begins an epoch."""
        self.epoch_count += 1
        self.micro_step_count = 0

    def start(self) -> None:
        """Begins a micro-step; the engine calls it."""
        self._began = time.perf_counter()

    def stop(self, global_step: bool = False, report_speed: bool = True) -> None:
        """Ends a micro-step, and with `global_step` a step; the engine calls it."""
        if self._began is None:
            return
        if self.global_step_count >= self.start_step:
            self.total_elapsed_time += time.perf_counter() - self._began
        self._began = None
        self.micro_step_count += 1
        self.global_step_count += global_step

    def avg_samples_per_sec(self) -> float:
        """Returns the samples that all ranks together train per second, or minus infinity before the third step, as DeepSpeed does."""
        counted = self.global_step_count - self.start_step
        return counted * self._engine.train_batch_size() / self.total_elapsed_time if counted > 0 else float("-inf")
