"""The engine that `initialize` returns: a module whose forward and backward torch runs, and whose update libds makes."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

import libds

from . import checkpoints, slices
from .gradients import Gradients, graph_task
from .leases import Leases, tensors_in
from .optimizers import EngineOptimizer, Scheduler
from .parameters import Held, Parameters, parameters_of
from .settings import Settings
from .throughput import Throughput

__all__ = ["Engine"]


class Engine(torch.nn.Module):
    """A module with optimizer, ZeRO and offload. Attributes that it does not have itself are looked up in `module`.

    A step is `loss = engine(...)`, `engine.backward(loss)` or `loss.backward()`, and `engine.step()`, once for each micro-batch.
    """

    def __init__(self, module: torch.nn.Module, settings: Settings, comm: libds.Comm, groups: list[dict[str, Any]],
                 client: torch.optim.Optimizer | None) -> None:
        super().__init__()
        self.module = module
        self._settings, self._comm = settings, comm
        slices.cast(module, settings.dtype)
        {torch.float32: module.float, torch.bfloat16: module.bfloat16, torch.float16: module.half}[settings.dtype]()
        self._parameters_held = Parameters(parameters_of(module), settings.dtype)
        optimizer = EngineOptimizer(groups, settings, client, self.step)
        held = self._parameters_held
        held.choose([param for group in groups for param in group["params"]], settings.get("frozen_parameters", None) or [])
        in_groups = {id(param) for group in groups for param in group["params"]}
        held.broadcast(comm, module)
        config = settings.for_engine([one.name for one in held.all if not one.trained], groups[0])
        self._engine = held.start(config, comm, settings.update)
        if settings.update is not None:
            settings.update.begin({id(one.param): one.number for one in held.all}, settings.scheduled)
        held.selected = frozenset(one.number for one in held.all if id(one.param) in in_groups)
        self._leases = held.leases = Leases(held, module) if settings.get("zero_optimization.stage", 0) == 3 else None
        configured = int(settings.get("gradient_accumulation_steps", 1))
        came = self._came if self._leases is not None or settings.get("fp16.enabled") else None
        self._gradients = Gradients(held, comm, configured, self.is_gradient_accumulation_boundary, came, self._backward_ended, self._dropped,
                                    () if self._leases is None else self._leases.units, settings.get("missing_gradients") == "skip")
        optimizer.begin(held)
        self._engine["mean_micro_steps"] = configured
        self.optimizer = optimizer
        self.lr_scheduler: Any = Scheduler(optimizer, self._engine) if settings.scheduled else None
        self.training_dataloader: Any = None
        self._accumulation = configured
        self._boundary: bool | None = None
        self._scaled = False
        self._forwards = 0
        self.global_steps = self.skipped_steps = self.micro_steps = 0
        self._applied = False
        self.tput_timer = Throughput(self)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            module = super().__getattr__("module")
            try:
                return getattr(module, name)
            except AttributeError as error:
                if hasattr(type(module), name):  # a property of the module that failed
                    raise
                raise AttributeError(f"neither the engine nor its {type(module).__name__} has {name!r}; docs/guides/moving-from-deepspeed.md lists "
                                     "the engine's members", name=name, obj=self) from error

    # ------------------------------------------------------------ forward and backward

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs the module."""
        inside = graph_task() >= 0
        if not inside:
            if self.training:
                self.tput_timer.start()
            self._gradients.check()
            if self._gradients.done == 0:
                self._take_changes()
        output = self.module(*inputs, **named)
        if torch.is_grad_enabled() and not inside:
            for tensor in tensors_in(output):
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(self._output_gradient)
        return output

    def _take_changes(self) -> None:
        self._parameters_held.take_edits()
        self._parameters_held.train(self._parameters_held.require_gradient)
        for held in self._parameters_held.all:
            if held.trained:
                self._gradients.watch(held)

    def _output_gradient(self, gradient: torch.Tensor) -> None:
        if not self._engine.closed:
            self._gradients.expect_end()

    def _came(self, held: Held) -> None:
        if not self._scaled and self.fp16_enabled():
            raise libds.StateError(libds.Status.STATE, "with fp16 the loss must be scaled: use engine.backward(loss) or engine.scale(loss).backward()")
        if self._leases is not None:
            self._leases.came(held)

    def _backward_ended(self) -> None:
        self._scaled = False
        if self._leases is not None:
            self._leases.end_backward()

    def _dropped(self, micro_steps: int) -> None:
        """Takes back the micro-steps of a step that was dropped, so that it begins anew."""
        self.micro_steps -= micro_steps

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Returns the loss for a plain `backward()`, multiplied by the loss scale of fp16."""
        self._scaled = True
        factor = self._engine["loss_scale"]
        return loss if factor == 1 else loss * factor

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True, **options: Any) -> torch.Tensor:
        """Runs backward from the loss of a micro-batch and ends the micro-step. Collective.

        Without `scale_wrt_gas` the gradients of micro-steps are added up instead of averaged. The result is the loss divided by the
        number of micro-steps, as in DeepSpeed.
        """
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise libds.errors.refuse(f"loss must be a tensor that requires a gradient, got {'one that does not' if isinstance(loss, torch.Tensor) else type(loss).__name__}")
        self._gradients.begin()
        scaled = self.scale(loss)
        if not scale_wrt_gas:
            scaled = scaled * self._accumulation
        hook = scaled.register_hook(self._output_gradient) if not scaled.is_leaf else None
        try:
            scaled.backward(retain_graph=retain_graph, **options)
        except BaseException:
            self._backward_ended()
            self._gradients.fail()
            raise
        finally:
            if hook is not None:
                hook.remove()
        self._backward_ended()
        self._gradients.finish()
        return loss.detach() / self._accumulation if scale_wrt_gas and self._accumulation > 1 else loss.detach()

    # ------------------------------------------------------------ steps

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the current micro-step is the last one of its step."""
        return (self.micro_steps + 1) % self._accumulation == 0 if self._boundary is None else self._boundary

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Says whether the next backward ends a step, regardless of the configured number of micro-steps. All ranks must say the same."""
        self._boundary = bool(is_boundary)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Makes the micro-steps of the `with` block part of a step that goes on after it."""
        before, self._boundary = self._boundary, False
        try:
            yield
        finally:
            self._boundary = before

    def step(self, lr_kwargs: Mapping[str, Any] | None = None) -> None:
        """Ends a micro-step; at the last one of a step, updates the parameters and lets the scheduler step. Collective."""
        self._gradients.check()
        last = self.is_gradient_accumulation_boundary()
        self.micro_steps += 1
        self._applied = False
        if not last:
            self.tput_timer.stop()
            return
        if self._gradients.done == 0:
            raise libds.StateError(libds.Status.STATE, "step comes before any backward: this engine has no gradients")
        if self._leases is not None:
            self._leases.end_backward()
        self._parameters_held.require_unchanged()
        self._gradients.end_step()
        self.optimizer.send()
        result = self._engine.step()
        self._gradients.begin_step()
        self.global_steps += 1
        self._applied = not result.skipped
        self.optimizer.stepped()
        if result.skipped:
            self.skipped_steps += 1
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step(**(lr_kwargs or {}))
        self.tput_timer.stop(global_step=True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: gradients go to the engine when they are complete."""

    def was_step_applied(self) -> bool:
        """Whether the last `step` has updated the parameters."""
        return self._applied

    def get_global_grad_norm(self) -> float:
        """Returns the norm of the last step's mean gradient, before clipping."""
        return self._engine.last_step.grad_norm

    # ------------------------------------------------------------ numbers

    def get_lr(self) -> list[float]:
        """Returns the rate of each group for the next update."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def set_lr(self, lr: float) -> None:
        """Sets the rate of all groups."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def get_mom(self) -> list[Any]:
        """Returns the momentum, or the betas, of each group."""
        return [group.get("betas", group.get("momentum")) for group in self.optimizer.param_groups]

    def get_type(self) -> list[str]:
        """Returns the type of the optimizer for each group."""
        return [self._settings.kind] * len(self.optimizer.param_groups)

    def train_batch_size(self) -> int:
        """Returns the number of samples of a step, over all ranks."""
        return self.train_micro_batch_size_per_gpu() * self._accumulation * self._comm.size

    def train_micro_batch_size_per_gpu(self) -> int:
        """Returns the number of samples of a micro-batch."""
        return int(self._settings.get("train_micro_batch_size_per_gpu", 1))

    def gradient_accumulation_steps(self) -> int:
        """Returns the number of micro-steps of a step."""
        return self._accumulation

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the number of micro-steps of a step, so that it has this many samples."""
        samples = self.train_micro_batch_size_per_gpu() * self._comm.size
        if train_batch_size < samples or train_batch_size % samples != 0:
            raise libds.errors.refuse(f"train_batch_size must be a multiple of {samples}, micro-batch times ranks, got {train_batch_size}")
        if self._gradients.done:
            raise libds.StateError(libds.Status.STATE, f"set_train_batch_size comes after {self._gradients.done} micro-steps of a step: call it between steps")
        self._accumulation = train_batch_size // samples
        self._engine["mean_micro_steps"] = self._accumulation

    @property
    def global_samples(self) -> int:
        """The number of samples of all steps so far."""
        return self.global_steps * self.train_batch_size()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it was given, not that of the module."""
        return self._settings.given

    @property
    def device(self) -> torch.device:
        """The device of the module."""
        return torch.device("cpu")

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._comm.size

    dp_world_size = world_size

    @property
    def global_rank(self) -> int:
        """This rank."""
        return self._comm.rank

    @property
    def local_rank(self) -> int:
        """This rank's number on its host."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    def zero_optimization(self) -> bool:
        """Whether the ZeRO stage is above 0."""
        return self.zero_optimization_stage() > 0

    def zero_optimization_stage(self) -> int:
        """Returns the ZeRO stage."""
        return int(self._settings.get("zero_optimization.stage", 0))

    def zero_optimization_partition_weights(self) -> bool:
        """Whether ranks keep parts of parameters (stage 3)."""
        return self.zero_optimization_stage() == 3

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        """Returns True, because saving weights always gathers them."""
        return True

    def fp16_enabled(self) -> bool:
        """Whether parameters are float16."""
        return self._settings.dtype is torch.float16

    def bfloat16_enabled(self) -> bool:
        """Whether parameters are bfloat16."""
        return self._settings.dtype is torch.bfloat16

    def optimizer_name(self) -> str:
        """Returns the type of the optimizer in small letters."""
        return self._settings.kind.lower()

    def steps_per_print(self) -> int | None:
        """Returns the number of steps between two reports of the configuration."""
        return self._settings.get("steps_per_print")

    def wall_clock_breakdown(self) -> bool:
        """Whether the configuration asks for the times of phases."""
        return bool(self._settings.get("wall_clock_breakdown", False))

    def gradient_clipping(self) -> float:
        """Returns the norm to which gradients are clipped, or 0 without clipping."""
        return float(self._settings.get("gradient_clipping", 0))

    @property
    def cur_scale(self) -> float:
        """The loss scale of the next step; 1 unless fp16 is enabled."""
        return self._engine["loss_scale"]

    loss_scale = cur_scale

    # ------------------------------------------------------------ whole parameters

    @contextlib.contextmanager
    def gathered(self) -> Iterator[torch.nn.Module]:
        """Keeps all parameters whole for the `with` block, for example to generate or to copy the module. Collective."""
        if self._leases is None:
            yield self.module
            return
        self._leases.acquire(self._leases.held)
        try:
            yield self.module
        finally:
            self._leases.release(self._leases.held)

    def module_state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Returns the state of the module, whole on every rank. Collective."""
        return self.module.state_dict(*arguments, **options)

    def load_module_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, **_: Any) -> None:
        """Loads the state of the module; the engine takes it over before the next step. Collective."""
        self.module.load_state_dict(state_dict, strict=strict)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict[str, Any] | None:
        state = self.module.state_dict()
        if self._comm.rank != 0:
            return None
        frozen = {held.name for held in self._parameters_held.all if not held.trained} if exclude_frozen_parameters else set()
        return {name: value for name, value in state.items() if name not in frozen}

    # ------------------------------------------------------------ files

    def save_checkpoint(self, save_dir: str | os.PathLike[str], tag: str | None = None, client_state: Mapping[str, Any] | None = None,
                        save_latest: bool = True, exclude_frozen_parameters: bool = False) -> bool:
        """Saves a checkpoint of libds as `save_dir/tag` and writes the tag into `save_dir/latest`. Collective.

        `client_state` may have numbers, strings, lists, tuples, dictionaries and tensors; that of rank 0 is saved. The checkpoint also
        has the buffers of the module, the scheduler, the counters and the random states of each rank. It has frozen parameters even with
        `exclude_frozen_parameters`.
        """
        tag = f"global_step{self.global_steps}" if tag is None else str(tag)
        self._between_steps("save_checkpoint")
        self._take_changes()
        state = {
            "client": dict(client_state or {}),
            "buffers": dict(self.module.named_buffers()),
            "scheduler": self.lr_scheduler.state_dict() if hasattr(self.lr_scheduler, "state_dict") else None,
            "groups": self.optimizer.state_dict()["param_groups"],
            "counters": [self.global_steps, self.skipped_steps, self.micro_steps],
        }
        checkpoints.save(self._engine, self._comm, os.path.join(save_dir, tag), state)
        if save_latest and self._comm.rank == 0:
            with open(os.path.join(save_dir, "latest"), "w", encoding="utf-8") as file:
                file.write(tag)
        self._comm.barrier()
        return True

    def load_checkpoint(self, load_dir: str | os.PathLike[str], tag: str | None = None, load_module_strict: bool = True,
                        load_optimizer_states: bool = True, load_lr_scheduler_states: bool = True, load_module_only: bool = False,
                        custom_load_fn: Callable[..., Any] | None = None) -> tuple[str | None, dict[str, Any]]:
        """Loads the checkpoint `load_dir/tag`, by default the one that `load_dir/latest` names; returns its path and client state,
        or (None, {}) if no checkpoint is there. It may come from any number of ranks, any stage and tier, and from DeepSpeed.

        Without `load_optimizer_states` the optimizer states stay as they are; with `load_module_only` so do counters and schedulers.
        Without `load_module_strict` parameters that the checkpoint does not have stay as they are. Collective."""
        if custom_load_fn is not None:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"custom_load_fn must be None, got {custom_load_fn!r}")
        if tag is None:
            latest = os.path.join(load_dir, "latest")
            if not os.path.exists(latest):
                return None, {}
            with open(latest, encoding="utf-8") as file:
                tag = file.read().strip()
        folder = os.path.join(load_dir, str(tag))
        if not os.path.isdir(folder):
            return None, {}
        self._between_steps("load_checkpoint")
        buffers = dict(self.module.named_buffers())
        with checkpoints.opened(self._comm, folder, bool(buffers)) as (opened, others):
            if load_module_only or not load_optimizer_states:
                self._parameters_held.take_edits()
                state = checkpoints.load_module(self._parameters_held, self._comm, opened, load_module_strict)
            else:
                state = checkpoints.load(self._engine, self._comm, opened)
                self._parameters_held.loaded()
            if not load_module_only:
                self._take_state(state, load_optimizer_states, load_lr_scheduler_states)
            for name, value in {**others, **state["buffers"]}.items():
                if name in buffers:
                    buffers[name].copy_(value)
        return folder, state["client"]

    def _take_state(self, state: Mapping[str, Any], optimizer: bool, scheduler: bool) -> None:
        if "counters" in state:
            self.global_steps, self.skipped_steps, micro_steps = state["counters"]
            self.micro_steps = self.global_steps * self._accumulation if micro_steps is None else micro_steps
        if optimizer:
            self.optimizer.loaded(state["groups"])
        if scheduler:
            if self.lr_scheduler is not None and hasattr(self.lr_scheduler, "load_state_dict") and state["scheduler"] is not None:
                self.lr_scheduler.load_state_dict(state["scheduler"])

    def _between_steps(self, call: str) -> None:
        self._gradients.check()
        if self._gradients.done or self._gradients.running:
            raise libds.StateError(libds.Status.STATE, f"{call} comes after {self._gradients.done} micro-steps of a step: call it between steps")

    def save_16bit_model(self, save_dir: str | os.PathLike[str], save_filename: str = "pytorch_model.bin",
                         exclude_frozen_parameters: bool = False) -> bool:
        """Writes the state of the module to a file, on rank 0. Collective."""
        state = self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)
        if state is not None:
            os.makedirs(save_dir, exist_ok=True)
            torch.save({name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()},
                       os.path.join(save_dir, save_filename))
        self._comm.barrier()
        return True

    save_fp16_model = save_16bit_model

    def deepspeed_io(self, dataset: Any, batch_size: int | None = None, collate_fn: Callable[..., Any] | None = None,
                     num_local_io_workers: int | None = None, data_sampler: Iterable[int] | None = None) -> torch.utils.data.DataLoader:
        """Returns a loader of this rank's micro-batches of a dataset."""
        if data_sampler is None and not isinstance(dataset, torch.utils.data.IterableDataset):
            data_sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=self._comm.size, rank=self._comm.rank)
        return torch.utils.data.DataLoader(
            dataset, batch_size=batch_size or self.train_micro_batch_size_per_gpu(), sampler=data_sampler, collate_fn=collate_fn,
            num_workers=num_local_io_workers or 0, drop_last=bool(self._settings.get("dataloader_drop_last", False)))

    def compile(self, backend: Any = "inductor", compile_kwargs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Compiles the module with torch.compile. At ZeRO stage 3 each module is compiled separately."""
        self.module.compile(backend=backend, **(compile_kwargs or {}))

    def destroy(self) -> None:
        """Frees the engine's memory. At stages 0 to 2 the module keeps its values. It may be called repeatedly."""
        if self._engine.closed:
            return
        self._gradients.close()
        if self._leases is not None:
            self._leases.close()
        self._parameters_held.end()
        self._engine.close()
