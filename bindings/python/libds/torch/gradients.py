"""Gradients on their way from torch to an engine.

Torch calls a hook when the gradient of a parameter is complete. All ranks must hand gradients over in the same order, but a branch in a
model may change the order in which they come. So the order is fixed: in the first backward it is the reverse of registration, afterwards
the order in which rank 0 got its gradients. A gradient that comes early waits, and if one has not come when backward ends, zeros take its
place.

A backward of torch is a micro-step of the engine. It ends in a callback of autograd, which a hook on the outputs of forward queues, so
`loss.backward()` and `engine.backward(loss)` do the same.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

import libds

from .parameters import Held, Parameters, lent

__all__ = ["Gradients"]

_MANY_BYTES = 1 << 20


#: Returns the number of the backward that runs on this thread, or -1. A reentrant checkpoint runs one inside another.
graph_task: Callable[[], int] = torch._C._current_graph_task_id


def when_backward_ends(call: Callable[[], None]) -> None:
    """Calls `call` when the running backward has ended without an exception."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


class Gradients:
    """The gradients of an engine's micro-steps.

    `is_last()` tells, before the first gradient of a micro-step, whether it is the last one of its step. `came(held)`, if it is given, and
    `ended()` are called when a gradient has come and when a backward has ended, and `dropped(n)` when a step is dropped after n micro-steps. Gradients of the parameters `last`, which some ranks may
    not use, are handed over when backward ends, after all others. With `skips`, the engine gets no
    gradient for a parameter that has none on any rank, and leaves it alone. Several ranks can tell only when backward has ended which parameters these are.
    """

    def __init__(self, parameters: Parameters, comm: libds.Comm, configured: int, is_last: Callable[[], bool],
                 came: Callable[[Held], None] | None, ended: Callable[[], None],
                 dropped: Callable[[int], None], last: Collection[int], skips: bool) -> None:
        self._engine = parameters.engine
        self._all = parameters.all
        self._comm = comm
        self._configured = configured
        self._is_last, self._came, self._ended, self._dropped = is_last, came, ended, dropped
        #: The number of micro-steps of the current step that have ended, and the number that the engine expects.
        self.done, self._count = 0, configured
        #: The backward whose gradients are coming; 0 if it has no number yet.
        self._task: int | None = None
        #: The backward that will call _end_task.
        self._queued = -1
        self._forced = False
        self._last, self._skips = last, skips
        self._order: list[Held] | None = None if comm.size == 1 else self._put_last(reversed(self._all))
        self._learned = comm.size == 1
        self._next = 0
        self._waiting: dict[int, torch.Tensor] = {}
        self._parts: list[Held] = []
        self._arrived: list[Held] = []
        #: The gradients that the next call hands over: numbers of parameters, tensors and their bytes together.
        self._numbers: list[int] = []
        self._tensors: list[Any] = []
        self._bytes = 0
        self._failed = ""
        self._hooks = [held.param.register_post_accumulate_grad_hook(self._hook(held)) for held in self._all if held.param.requires_grad]
        self._hooked = {held.number for held in self._all if held.param.requires_grad}

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def watch(self, held: Held) -> None:
        """Adds the hook of a parameter that is trained from now on."""
        if held.number not in self._hooked:
            self._hooked.add(held.number)
            self._hooks.append(held.param.register_post_accumulate_grad_hook(self._hook(held)))

    # ------------------------------------------------------------ a backward

    @property
    def running(self) -> bool:
        """Whether a micro-step has begun and not ended."""
        return self._task is not None

    def check(self) -> None:
        """Drops the step of a backward that has failed after a gradient was complete. Refuses to go on if that is not possible."""
        if self._task is not None and graph_task() < 0 and not self._forced:
            self._ended()
            self._abandon()
        if graph_task() < 0:
            self._queued = -1
        if self._failed:
            raise libds.StateError(libds.Status.STATE, self._failed)

    def begin(self) -> None:
        """Begins a micro-step, which `finish` ends even if no gradient comes."""
        self.check()
        self._begin(0)
        self._forced = True

    def finish(self) -> None:
        """Ends the micro-step that `begin` has begun."""
        self._forced = False
        if self._task is not None:
            self._end()

    def fail(self) -> None:
        """Ends a micro-step whose backward has raised an exception, as `check` does."""
        self._forced = False
        if self._task is not None:
            self._abandon()

    def expect_end(self) -> None:
        """Called inside a backward: lets the micro-step end with it, if it brings a gradient."""
        task = graph_task()
        if task != self._queued:
            self._queued = task
            when_backward_ends(self._end_task)
        if self._task == 0:
            self._task = task

    def _end_task(self) -> None:
        self._queued = -1
        self._ended()
        if self._task is not None and not self._forced:
            self._end()

    def _begin(self, task: int) -> None:
        last = self._is_last()
        if self.done >= self._count:
            raise libds.StateError(libds.Status.STATE, f"backward comes after {self.done} of {self._count} micro-steps of a step: call step(), or "
                                   f"announce further ones by no_sync() or set_gradient_accumulation_boundary(False)")
        wanted = self.done + 1 if last else max(self._configured, self.done + 2)
        if wanted != self._count:
            self._engine["micro_steps"] = wanted
            self._count = wanted
        self._task = task

    def _hook(self, held: Held) -> Callable[[torch.Tensor], None]:
        came, engine = self._came, self._engine

        def arrived(param: torch.Tensor) -> None:
            if not held.trained or engine._raw is None:
                return
            task = graph_task()
            if self._task is None:
                self.check()
                self._begin(task if self._queued < 0 else self._queued)
                if self._queued < 0:
                    self.expect_end()
            elif self._task == 0:
                self._task = task
            if came is not None:
                came(held)
            if held.given:
                held.late = True
                raise libds.StateError(libds.Status.STATE, f"parameter '{held.name}' has received a second gradient in one backward: it is "
                                       f"used inside and outside of a reentrant checkpoint; use_reentrant=False avoids that")
            if held.late or task != self._task:
                held.late = True
                if held not in self._parts:
                    self._parts.append(held)
                return
            self._take(held)

        return arrived

    def _take(self, held: Held) -> None:
        grad, held.param.grad = held.param.grad, None
        held.given = True
        self._arrived.append(held)
        if self._order is None:
            self._hand(held, grad)
            return
        self._waiting[held.number] = grad
        if self._skips:
            return  # until it is known which parameters have no gradient on any rank
        while self._next < len(self._order):
            held = self._order[self._next]
            if held.trained and (held.number in self._last or held.number not in self._waiting):
                break
            self._next += 1
            if held.trained:
                self._hand(held, self._waiting.pop(held.number))

    def _hand(self, held: Held, grad: torch.Tensor) -> None:
        self._numbers.append(held.number)
        self._tensors.append(lent(grad))
        self._bytes += grad.nbytes
        if self._bytes >= _MANY_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Hands over what has been collected. A call for many small gradients costs little more than a call for one."""
        if self._numbers:
            numbers, tensors = self._numbers, self._tensors
            self._numbers, self._tensors, self._bytes = [], [], 0
            self._engine._call(libds.lowlevel.grads_ready, (numbers, tensors))

    def _end(self) -> None:
        for held in self._parts:
            self._take(held)
        if self._order is not None:
            nobody = self._without_gradient() if self._skips else ()
            for held in self._order[self._next:]:
                if held.trained and held.number not in nobody:
                    grad = self._waiting.pop(held.number, None)
                    self._hand(held, torch.zeros(held.dims, dtype=held.param.dtype) if grad is None else grad)
            if not self._learned:
                self._learn()
        self._flush()
        self._engine.backward()
        self.done += 1
        self._clear()

    def _without_gradient(self) -> set[int]:
        """Returns the parameters for which no rank has a gradient in this micro-step. Collective."""
        given = torch.tensor([held.given for held in self._all], dtype=torch.int32)
        self._comm.all_reduce(given, op="max")
        return {held.number for held, has in zip(self._all, given.tolist()) if not has}

    def _learn(self) -> None:
        """Takes over the order in which gradients have come on rank 0. Collective."""
        self._learned = True
        came = [held.number for held in self._arrived]
        rest = [held.number for held in reversed(self._all) if not held.given]
        numbers = torch.tensor(came + rest, dtype=torch.int64)
        self._comm.broadcast(numbers)
        by_number = {held.number: held for held in self._all}
        self._order = self._put_last(by_number[number] for number in numbers.tolist())

    def _put_last(self, order: Iterable[Held]) -> list[Held]:
        return sorted(order, key=lambda held: held.number in self._last)

    def _clear(self) -> None:
        for held in self._arrived:
            held.given = False
        self._arrived, self._parts, self._waiting = [], [], {}
        self._numbers, self._tensors, self._bytes = [], [], 0
        self._next = 0
        self._task = None

    def _abandon(self) -> None:
        if self._arrived:
            try:
                self._engine.drop_step()
                self._dropped(self.done)
                self.begin_step()
            except libds.Error as error:
                self._failed = f"a backward ended with an exception after a gradient was complete, and this engine cannot go on: {error}"
        for held in self._parts:
            held.param.grad = None
        self._queued = -1
        self._clear()

    # ------------------------------------------------------------ a step

    def end_step(self) -> None:
        """Called before the update: ends the step with the micro-steps that were made, if more were expected."""
        if self.done < self._count:
            self._engine["micro_steps"] = self.done

    def begin_step(self) -> None:
        """Called after the update."""
        self.done, self._count = 0, self._configured
