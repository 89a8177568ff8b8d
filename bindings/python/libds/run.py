"""Whole runs: training, generation and the checks of `libds verify`, `profile` and `audit`; reports; the log."""
from __future__ import annotations

import array
import atexit
import enum
import json
import logging
import os
from typing import Any, Callable, NamedTuple, Sequence, Union

from . import lowlevel
from ._handle import Config, config_text, options_text, raw_handle
from .comm import Comm, format_code, report
from .monitors import Monitors
from .progress import Display

__all__ = ["train", "generate", "verify", "profile", "audit", "merge_config", "describe_config", "communicator", "env_report", "checkpoint_info", "convert_checkpoint",
           "version", "set_log", "LogLevel", "Progress", "StopFlag", "Verdict"]

Path = Union[str, "os.PathLike[str]"]


class NextLr(float):
    """A learning rate that the `progress` callable of `train` returns; a plain number means nothing there."""


class Progress(NamedTuple):
    """State of a run after a step."""

    step: int
    steps: int
    samples: int  #: taken from the data by the whole run, over every resume
    loss: float
    heldout_loss: float  #: NaN when this step was not evaluated
    grad_norm: float
    lr: float
    tokens_per_second: float
    loss_scale: float  #: 1 unless fp16 is enabled
    next_lr: float  #: of the next step


class Verdict(NamedTuple):
    """What `verify` and `audit` have found."""

    failed: int  #: comparisons beyond their tolerance
    report: Any  #: a text, or with form="data" a dictionary


class StopFlag:
    """Ends a run that another thread or a signal handler wants to end: the run saves and `train` raises `Stopped`."""

    def __init__(self) -> None:
        self._flag = array.array("i", [0])

    def set(self) -> None:
        """Asks the run to stop, at any time and from any thread or signal handler."""
        self._flag[0] = 1

    def is_set(self) -> bool:
        """Whether it was asked to stop."""
        return self._flag[0] != 0

    def __repr__(self) -> str:
        return f"StopFlag({'set' if self.is_set() else 'not set'})"


def _locked(comm: Comm | None, call: Callable[..., Any], *arguments: Any) -> Any:
    if comm is None:
        return call(None, *arguments)
    raw_handle(comm, Comm, "comm")
    return comm._call(call, *arguments)


def train(config: Config | None = None, *, comm: Comm | None = None, resume: Path | None = None,
          progress: bool | Callable[[Progress], Any] = True,
          batch: Callable[[int, int, memoryview, memoryview], None] | None = None,
          stop: StopFlag | None = None) -> Progress | None:
    """Trains as `libds train` does: data, model, run folder, checkpoints, report. Collective.

    Args:
        config: the configuration; may be None with `resume`, and is else laid over that of the run.
        comm: the group that trains together; None: one rank.
        resume: run folder to go on with, or one of its checkpoints.
        progress: True shows a bar in a terminal or a notebook and plain lines elsewhere; False shows nothing; a callable gets a
            `Progress` after each step of rank 0, and stops the run by returning False. A `NextLr` that it returns is the learning
            rate from the next step on, on all ranks, until it returns another; NaN gives the rate back to the schedule.
        batch: fills (step, micro_step, tokens, targets), two memoryviews of int32, in place of the configured data.
        stop: a flag that ends the run, from another thread or a signal handler.

    Returns:
        The last `Progress`; None on other ranks than 0.

    The sections `wandb` and `comet` of `config` send the numbers of rank 0 there, if the module can be imported (`Monitors`).
    They are not kept in the run folder: a call with `resume` gives them again.

    An exception of a callback ends the run behind a checkpoint and goes on as it is, and so does Control-C.

    Raises:
        Stopped: a callback or the flag ended the run; it is saved, and a call with `resume` goes on.
        NumericError: too many steps in a row were not finite; it is saved likewise.
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

    callbacks = (batch, after_step, stop._flag if stop else None)
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


def generate(model: Path, prompt: str | None = None, *, comm: Comm | None = None, ids: Sequence[int] | None = None,
             tokens: int | None = None, temperature: float | None = None, top_k: int | None = None, seed: int | None = None,
             dtype: str | None = None, threads: int | None = None, stage: int | None = None, device: str | None = None,
             ignore_eos: bool | None = None, on_text: Callable[[str], Any] | None = None) -> Any:
    """Continues a text, or with `ids` a list of token numbers, as `libds generate` does. Collective.

    Args:
        model: run folder, checkpoint, or folder of a Hugging Face model.
        prompt: the text to continue.
        tokens: how many to make, 256 without.
        temperature: 0.8 without; 0: the most probable token.
        top_k: choose among so many tokens; 0 and without: all.
        seed, dtype, threads, stage, device, ignore_eos: as of `libds generate`.
        on_text: is called with each new part of the text.

    Returns:
        The text, or with `ids` a list of token numbers.
    """
    options = options_text(ids=None if ids is None else [int(token) for token in ids], tokens=tokens, temperature=temperature,
                           top_k=top_k, seed=seed, dtype=dtype, threads=threads, stage=stage, device=device,
                           ignore_eos=ignore_eos)
    text = _locked(comm, lowlevel.run_generate, os.fspath(model), prompt, options, on_text)
    return text if ids is None else [int(token) for token in text.replace(",", " ").split()]


def verify(model: Path, *, comm: Comm | None = None, form: str = "text", **options: Any) -> Verdict:
    """Compares a model folder with the numbers that are recorded beside it, as `libds verify` does. Collective.

    Options: stage, tier, dtype, kinds, nvme_path, threads (docs/reference/verify.md).
    """
    failed, text = _locked(comm, lowlevel.run_verify, os.fspath(model), options_text(**options), format_code(form))
    return Verdict(failed, report(form, text))


def profile(config: Config | None = None, *, model: Path | None = None, comm: Comm | None = None, form: str = "text",
            **options: Any) -> Any:
    """Trains a few steps on random tokens and says where their time goes, as `libds profile` does. Collective.

    Options: micro_batch, sequence, dtype, threads, steps, by (docs/reference/profile.md).
    """
    text = _locked(comm, lowlevel.run_profile, None if config is None else config_text(config),
                   None if model is None else os.fspath(model), options_text(**options), format_code(form))
    return report(form, text)


def audit(config: Config, *, comm: Comm | None = None, form: str = "text", **options: Any) -> Verdict:
    """Trains a few steps and checks each instruction of the last one, as `libds audit` does. Collective.

    Options: steps, top, threads (docs/reference/audit.md).
    """
    failed, text = _locked(comm, lowlevel.run_audit, config_text(config), options_text(**options), format_code(form))
    return Verdict(failed, report(form, text))


def merge_config(config: Config, patch: Config) -> dict[str, Any]:
    """Lays `patch` over `config`: objects are merged, None removes (JSON merge patch)."""
    return json.loads(lowlevel.config_merge(config_text(config), config_text(patch)))


def describe_config(config: Config, ranks: int = 1) -> dict[str, Any]:
    """What a configuration, also one of DeepSpeed, means for so many ranks, as `libds config --json` prints it.

    The dict has config, origins, without_effect, warnings and refusals; libds takes the configuration if `refusals` is empty.
    """
    return json.loads(lowlevel.config_describe(config_text(config), ranks, format_code("data"))[1])


def communicator(config: Config | None = None, resume: Path | None = None) -> str:
    """The url for `Comm` of the group that a run joins."""
    return lowlevel.run_communicator(None if config is None else config_text(config),
                                     None if resume is None else os.fspath(resume))


def env_report(form: str = "text") -> Any:
    """Facts of this machine and build: instruction sets, kernels, libraries, cores, memory."""
    return report(form, lowlevel.env_report(format_code(form)))


def checkpoint_info(path: Path) -> dict[str, Any]:
    """Facts of a checkpoint, or the newest one of a folder; all of its content is compared with its hashes."""
    return json.loads(lowlevel.checkpoint_info(os.fspath(path)))


def convert_checkpoint(source: Path, target: Path, to: str = "libds", **options: Any) -> dict[str, Any]:
    """Converts a checkpoint of DeepSpeed or libds; `to`: "libds", "universal" or "fp32"; options as in ds.h."""
    text = lowlevel.checkpoint_convert(os.fspath(source), os.fspath(target), json.dumps({"to": to, **options}))
    return json.loads(text)


def version() -> str:
    """Version of the library, "major.minor.patch"."""
    return lowlevel.version()


class LogLevel(enum.IntEnum):
    """Severity of a line of the log."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


def set_log(target: logging.Logger | Callable[[LogLevel, str], Any] | None) -> None:
    """Sends the log lines of the process to a logger or a callable; None: warnings and errors to stderr, as in the beginning.

    The callable runs on the thread that is inside a call of libds. Its exceptions are reported by `sys.unraisablehook`.
    """
    if isinstance(target, logging.Logger):
        logger = target

        def target(level: LogLevel, line: str) -> None:
            logger.log(10 * (level + 1), "%s", line)

    elif target is not None and not callable(target):
        raise TypeError(f"a logger, a callable or None is needed, got {type(target).__name__}")
    lowlevel.log_set_fn(None if target is None else lambda level, line: target(LogLevel(level), line))


atexit.register(lowlevel.log_set_fn, None)  # no call into an interpreter that has ended
