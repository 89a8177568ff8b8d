"""Whole runs: training, generation and the checks of `libds verify`, `profile` and `audit`; reports; the log."""
from __future__ import annotations

import array
import atexit
import enum
import json
import logging
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

from . import lowlevel
from ._arguments import checked, ranged, shown
from ._handle import Config, config_text, options_text
from .comm import Comm, format_code, report
from .monitors import Monitors
from .progress import Display

__all__ = ["train", "generate", "verify", "profile", "audit", "merge_config", "describe_config", "communicator", "env_report", "checkpoint_info", "convert_checkpoint",
           "version", "set_log", "LogLevel", "Progress", "StopFlag", "Verdict"]

Path = Union[str, "os.PathLike[str]"]


class NextLr(float):
    """A learning rate that the `progress` callable of `train` returns; a plain number has no effect there."""


class Progress(NamedTuple):
    """State of a run after a step."""

    step: int
    steps: int
    samples: int  #: number of samples that the whole run has consumed, including those before a resume
    loss: float
    heldout_loss: float  #: NaN if this step was not evaluated
    grad_norm: float
    lr: float
    tokens_per_second: float
    loss_scale: float  #: 1 unless fp16 is enabled
    next_lr: float  #: learning rate of the next step


class Verdict(NamedTuple):
    """The result of `verify` or `audit`."""

    failed: int  #: number of comparisons beyond their tolerance
    report: Any  #: a text, or with form="data" a dictionary


class StopFlag:
    """A flag by which another thread or a signal handler ends a run: the run saves, and `train` raises `Stopped`."""

    def __init__(self) -> None:
        """Creates an unset flag. __new__ does the work, so that a subclass need not call this __init__."""

    def __new__(cls, *_arguments: Any, **_options: Any) -> StopFlag:
        self = super().__new__(cls)
        self._flag = array.array("i", [0])
        return self

    def set(self) -> None:
        """Requests a stop. May be called at any time, from any thread or signal handler."""
        self._flag[0] = 1

    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._flag[0] != 0

    def __repr__(self) -> str:
        return f"StopFlag({'set' if self.is_set() else 'not set'})"


def _locked(comm: Comm | None, call: Callable[..., Any], *arguments: Any) -> Any:
    if comm is None:
        return call(None, *arguments)
    return comm._call(call, *arguments)


@checked
def train(config: Config | None = None, *, comm: Comm | None = None, resume: Path | None = None,
          progress: bool | Callable[[Progress], Any] | None = True,
          batch: Callable[[int, int, memoryview, memoryview], None] | None = None,
          stop: StopFlag | None = None) -> Progress | None:
    """Trains as `libds train` does: data, model, run folder, checkpoints, report. Collective.

    Args:
        config: the configuration. With `resume` it is merged over that of the run, and may be None.
        comm: the group that trains together; by default one rank.
        resume: the run folder to continue, or one of its checkpoints.
        progress: True shows a bar in a terminal or a notebook and plain lines elsewhere; False or None shows nothing; a callable of
            rank 0 gets a `Progress` after each step that was not skipped, and stops the run by returning False. If it returns a
            `NextLr`, that is the learning rate of all ranks from the next step on, until it returns another; NaN returns the rate
            to the schedule.
        batch: fills (step, micro_step, tokens, targets), two memoryviews of int32, in place of the configured data.
        stop: a flag that ends the run, from another thread or a signal handler.

    Returns:
        The last `Progress`; None on ranks other than 0.

    The sections `wandb` and `comet` of `config` send the numbers of rank 0 there, if the module can be imported (`Monitors`).
    They are not kept in the run folder, so a call with `resume` must pass them again.

    If a callback raises an exception, the run saves a checkpoint and ends, and this call raises the exception. The same happens
    on Control-C.

    Raises:
        Stopped: a callback or the flag ended the run; it is saved, and a call with `resume` continues it.
        StateError: the flag ended the run before anything was created.
        NumericError: too many steps in a row were not finite, or the loss of the finished model is not; the run is saved, too.
        ConfigError: the configuration is wrong, or the run did not beat run.bars.
    """
    last: list[Progress] = []
    display = Display() if progress is True else None
    show = display or (progress if callable(progress) else None)

    def after_step(*numbers: Any) -> Any:
        last[:] = [Progress(*numbers)]
        if monitors:
            monitors.step(last[0])
        said = show(last[0]) if show else None
        return said if said is False or isinstance(said, NextLr) else None

    callbacks = (batch, after_step, None if stop is None else stop._flag)
    monitors = None if config is None else Monitors(config, comm, resume)
    text = None if monitors is None else config_text(monitors.config)
    try:
        _locked(comm, lowlevel.run_train, text, None if resume is None else os.fspath(resume), 2, callbacks)
    finally:
        if display:
            display.close()
        if monitors:
            monitors.close()
    return last[0] if last else None


@checked
def generate(model: Path, prompt: str | None = None, *, comm: Comm | None = None, ids: Sequence[int] | None = None,
             tokens: int | None = None, temperature: float | None = None, top_k: int | None = None, seed: int | None = None,
             dtype: str | None = None, threads: int | None = None, stage: int | None = None, device: str | None = None,
             ignore_eos: bool | None = None, adapters: Mapping[str, Path] | None = None, adapter: str | None = None,
             base: Path | None = None, on_text: Callable[[str], Any] | None = None) -> Any:
    """Continues a text, or with `ids` a list of token numbers, as `libds generate` does. Collective.

    Args:
        model: run folder, checkpoint, folder of a Hugging Face model, or GGUF file.
        prompt: the text to continue. May be None only if `ids` is given.
        comm: the group that generates together; None: one rank.
        ids: token numbers to continue in place of a prompt.
        tokens: the number of tokens to generate, 256 by default.
        temperature: 0.8 by default. 0 always takes the most probable token.
        top_k: the number of most probable tokens to choose from; 0, the default, means all.
        seed, dtype, threads, stage, device, ignore_eos: as for `libds generate`.
        adapters: folders of adapters on a model folder, by name.
        adapter: the name of the adapter that continues the text, one of `adapters` or of the run; "base" means none.
        base: the model folder of a run with an adapter, if it has moved.
        on_text: called on every rank with each new part of the text, and ends it by returning False.

    Returns:
        The text, or with `ids` a list of token numbers.

    If `on_text` raises an exception, the text ends, and this call raises the exception. The same happens on Control-C.

    Raises:
        Stopped: `on_text` of a rank ended the text.
    """
    options = options_text(ids=None if ids is None else [ranged("ids", token, 0, (1 << 31) - 1) for token in ids], tokens=tokens, temperature=temperature,
                           top_k=top_k, seed=seed, dtype=dtype, threads=threads, stage=stage, device=device,
                           ignore_eos=ignore_eos, adapter=adapter, base=None if base is None else os.fspath(base),
                           adapters=None if adapters is None else [f"{name}={os.fspath(folder)}" for name, folder in adapters.items()])
    text = _locked(comm, lowlevel.run_generate, os.fspath(model), prompt, options, on_text)
    return text if ids is None else [int(token) for token in text.replace(",", " ").split()]


@checked
def verify(model: Path, *, comm: Comm | None = None, form: str = "text", **options: Any) -> Verdict:
    """Compares a model folder with its recorded numbers, as `libds verify` does. Collective.

    Options: stage, tier, dtype, kinds, nvme_path, threads (docs/reference/verify.md).
    """
    failed, text = _locked(comm, lowlevel.run_verify, os.fspath(model), options_text(**options), format_code(form))
    return Verdict(failed, report(form, text))


@checked
def profile(config: Config | None = None, *, model: Path | None = None, comm: Comm | None = None, form: str = "text",
            **options: Any) -> Any:
    """Trains a few steps on random tokens and reports where their time goes, as `libds profile` does. Collective.

    Either `config` or `model` must be given. Options: micro_batch, sequence, dtype, threads, steps, by
    (docs/reference/profile.md).
    """
    text = _locked(comm, lowlevel.run_profile, None if config is None else config_text(config),
                   None if model is None else os.fspath(model), options_text(**options), format_code(form))
    return report(form, text)


@checked
def audit(config: Config, *, comm: Comm | None = None, form: str = "text", **options: Any) -> Verdict:
    """Trains a few steps and checks each instruction of the last one, as `libds audit` does. Collective.

    Options: steps, top, threads (docs/reference/audit.md).
    """
    failed, text = _locked(comm, lowlevel.run_audit, config_text(config), options_text(**options), format_code(form))
    return Verdict(failed, report(form, text))


@checked
def merge_config(config: Config, patch: Config) -> dict[str, Any]:
    """Merges `patch` over `config`: objects are merged, None removes a key (JSON merge patch)."""
    return json.loads(lowlevel.config_merge(config_text(config), config_text(patch, "patch")))


@checked
def describe_config(config: Config, ranks: int = 1) -> dict[str, Any]:
    """Returns what a configuration of libds or DeepSpeed means for this number of ranks, as `libds config --json` prints
    it.

    The dict has config, origins, without_effect, warnings and refusals; libds accepts the configuration if `refusals` is empty.
    """
    return json.loads(lowlevel.config_describe(config_text(config), ranks, format_code("data"))[1])


@checked
def communicator(config: Config | None = None, resume: Path | None = None) -> str:
    """Returns the url for `Comm` of the group that a run joins."""
    return lowlevel.run_communicator(None if config is None else config_text(config),
                                     None if resume is None else os.fspath(resume))


@checked
def env_report(form: str = "text") -> Any:
    """Returns facts about this machine and build: instruction sets, kernels, libraries, cores, memory."""
    return report(form, lowlevel.env_report(format_code(form)))


@checked
def checkpoint_info(path: Path) -> dict[str, Any]:
    """Returns facts about a checkpoint, or the newest one in a folder; compares all of its content with its hashes."""
    return json.loads(lowlevel.checkpoint_info(os.fspath(path)))


@checked
def convert_checkpoint(source: Path, target: Path, to: str | None = None, **options: Any) -> dict[str, Any]:
    """Converts a checkpoint, a model folder, an adapter or a GGUF file to another form; None chooses it by the names. The options are those of ds.h."""
    text = lowlevel.checkpoint_convert(os.fspath(source), os.fspath(target), options_text(to=to, **options))
    return json.loads(text)


def version() -> str:
    """The version of the library, as "major.minor.patch"."""
    return lowlevel.version()


class LogLevel(enum.IntEnum):
    """The severity of a log line."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


@checked
def set_log(target: logging.Logger | Callable[[LogLevel, str], Any] | None) -> None:
    """Sends the log lines of the process to a logger or a callable. With None, warnings and errors go to stderr, as they do
    initially.

    The callable runs on the thread that is inside a call of libds. Its exceptions are reported by `sys.unraisablehook`, except
    KeyboardInterrupt: after Control-C in the callable, the main thread raises it as soon as the call has returned.
    """
    if isinstance(target, logging.Logger):
        logger = target

        def target(level: LogLevel, line: str) -> None:
            logger.log(10 * (level + 1), "%s", line)

    elif target is not None and not callable(target):
        raise TypeError(f"target must be a logger, a callable or None, got {shown(target)}")
    lowlevel.log_set_fn(None if target is None else lambda level, line: target(LogLevel(level), line))


# Prevents calls into an interpreter that has ended.
atexit.register(lowlevel.log_set_fn, None)
