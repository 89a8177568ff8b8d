"""Weights & Biases and Comet: the sections `wandb` and `comet` of a configuration, with DeepSpeed's keys.

The library itself sends nothing: a program in C or the command cannot import `wandb` or `comet_ml`, so it refuses a section
that is enabled. This module imports them if a section is enabled, on rank 0 only.
"""
from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
from typing import Any, Mapping

from . import errors, lowlevel
from ._arguments import checked, shown
from ._handle import Config, config_text
from .comm import Comm, format_code

__all__ = ["Monitors"]

_KEYS: dict[str, dict[str, Any]] = {
    "wandb": {"enabled": False, "group": None, "team": None, "project": "deepspeed"},
    "comet": {"enabled": False, "samples_log_interval": 100, "project": None, "workspace": None, "api_key": None,
              "experiment_name": None, "experiment_key": None, "online": None, "mode": None},
}
_INTEGERS, _BOOLEANS = ("samples_log_interval",), ("enabled", "online")
_YES, _NO = ("true", "yes", "on", "t", "y", "1"), ("false", "no", "off", "f", "n", "0")


def _refusal(key: str, text: str) -> errors.ConfigError:
    return errors.ConfigError(errors.Status.CONFIG, f"{key}: {text}", key)


def _plain(path: str, key: str, value: Any) -> Any:
    """Converts a value to the type of its key, by the rules of all configurations, or refuses it."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in _BOOLEANS:
        if isinstance(value, bool) or (number and value in (0, 1)):
            return bool(value)
        if isinstance(value, str) and value.lower() in _YES + _NO:
            return value.lower() in _YES
        raise _refusal(path, f"expected true or false, got {json.dumps(value)}")
    if key in _INTEGERS:
        if not number or value != value // 1:
            raise _refusal(path, f"expected an integer, got {json.dumps(value)}")
        if value < 1:
            raise _refusal(path, f"must be at least 1, got {value}")
        return int(value)
    if not isinstance(value, str):
        raise _refusal(path, f"expected a text, got {json.dumps(value)}")
    return value


def _section(name: str, given: Any) -> dict[str, Any]:
    """Returns the values of a section; an unknown key or a value of another type is refused. Null and "auto" count as
    missing."""
    if not isinstance(given, Mapping):
        raise _refusal(name, f"expected a section, got {json.dumps(given)}")
    values = dict(_KEYS[name])
    for key, value in given.items():
        path = f"{name}.{key}"
        if key not in values:
            raise _refusal(path, f"unknown key; supported: {', '.join(values)}")
        if value is not None and value != "auto":
            values[key] = _plain(path, key, value)
    return values


def _module(section: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _refusal(f"{section}.enabled", f"true needs the Python module {name}, which cannot be imported ({error}); "
                       f"install it or set it to false") from None


def _document(resume: Any) -> dict[str, Any]:
    """Returns the configuration that was given to the run at `resume`; empty without a run, or if the library will refuse it."""
    if resume is None:
        return {}
    for folder in (os.fspath(resume), os.path.dirname(os.path.dirname(os.path.abspath(resume)))):
        try:
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                return json.load(file).get("document", {})
        except (OSError, ValueError):
            continue
    return {}


def _scales_loss(config: Mapping[str, Any]) -> bool:
    """Returns whether the steps of a described configuration have a loss scale, even if it is 1."""
    fp16, autocast = config.get("fp16", {}), config.get("torch_autocast", {})
    return bool(fp16.get("enabled") or (autocast.get("enabled") and autocast.get("dtype") == "torch.float16"))


class _Wandb:
    def __init__(self, values: dict[str, Any]) -> None:
        module = _module("wandb", "wandb")
        before = module.run
        self._run = module.init(project=values["project"], group=values["group"], entity=values["team"])
        # Whether this object has begun the run. Otherwise the run belongs to the caller, who continues it.
        self._begun = self._run is not before

    def write(self, events: Mapping[str, float], samples: int) -> None:
        for name, value in events.items():
            self._run.log({name: value}, step=samples)

    def close(self) -> None:
        if self._begun:
            self._run.finish()


class _Comet:
    def __init__(self, values: dict[str, Any]) -> None:
        module = _module("comet", "comet_ml")
        given = {name: values[name] for name in ("api_key", "project", "workspace", "experiment_key", "mode", "online")
                 if values[name] is not None}
        before = module.get_running_experiment()
        self._experiment = module.start(**given)
        # Whether this object has begun the experiment. Otherwise it belongs to the caller, who continues it.
        self._begun = self._experiment is not before
        self._interval, self._logged = values["samples_log_interval"], {}
        if values["experiment_name"] is not None:
            try:
                self._experiment.set_name(values["experiment_name"])
            except BaseException:
                self.close()
                raise

    def write(self, events: Mapping[str, float], samples: int) -> None:
        for name, value in events.items():
            if name in self._logged and samples - self._logged[name] < self._interval:
                continue
            self._logged[name] = samples
            self._experiment.log_metric(name, value, step=samples)

    def close(self) -> None:
        if self._begun:
            self._experiment.end()


@checked
class Monitors:
    """A sender of a run's numbers to Weights & Biases and Comet, as the configuration's sections `wandb` and `comet` say.

    `libds.train` creates one by itself. With an engine::

        with libds.Monitors(config, comm=comm) as monitors, libds.Engine(monitors.config, graph, comm=comm) as engine:
            monitors.step(engine.train_batch(inputs))

    If the caller has begun a run of Weights & Biases or an experiment of Comet, this object writes to it and leaves it open. If
    the section names another one, `wandb.init` or `comet_ml.start` decides what happens; Comet ends the caller's experiment.

    Args:
        config: a configuration as elsewhere.
        comm: the ranks that train together; only rank 0 sends events.
        resume: a run, or a checkpoint of it; `config` is merged over its configuration.

    Raises:
        ConfigError: a key of the sections is wrong, or a module that an enabled section needs cannot be imported.
    """

    config: dict[str, Any]  #: the configuration without the two sections, which the library refuses if they are enabled

    def __init__(self, config: Config, comm: Comm | None = None, resume: str | os.PathLike[str] | None = None) -> None:
        self.config = json.loads(lowlevel.config_merge(config_text(config), "{}"))
        rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        given = {name: self.config.pop(name) for name in _KEYS if name in self.config}
        sections = {name: _section(name, value) for name, value in given.items() if value is not None}
        self._senders: list[Any] = []
        self._batch, self._scaled = 0, False
        if rank != 0 or not any(values["enabled"] for values in sections.values()):
            return
        whole = lowlevel.config_merge(json.dumps(_document(resume)), json.dumps(self.config))
        described = json.loads(lowlevel.config_describe(whole, ranks, format_code("data"))[1])
        taken = described.get("config") or {}
        self._batch = int(taken.get("train_batch_size") or 1)
        self._scaled = _scales_loss(taken)
        try:
            for name, kind in (("wandb", _Wandb), ("comet", _Comet)):
                if name in sections and sections[name]["enabled"]:
                    self._senders.append(kind(sections[name]))
        except BaseException:
            self.close()
            raise

    def write(self, step: int, events: Mapping[str, float], samples: int | None = None) -> None:
        """Sends numbers by name, except NaN and None.

        They are placed at the number of samples consumed up to this step: `samples`, or the step times the batch of the
        configuration. A program that continues from a checkpoint with another batch must count the samples itself.
        """
        sent = {name: value for name, value in events.items() if value is not None and not math.isnan(value)}
        for sender in self._senders:
            sender.write(sent, step * self._batch if samples is None else samples)

    def step(self, result: Any, samples: int | None = None) -> None:
        """Sends a `StepResult` or `Progress` under DeepSpeed's names; the norm of a skipped step is left out.

        `samples` as in `write`; a `Progress` has them.
        """
        if not all(hasattr(result, name) for name in ("step", "loss", "lr", "grad_norm")):
            raise TypeError(f"result must be a StepResult or a Progress, got {shown(result)}")
        events = {"Train/Samples/train_loss": result.loss, "Train/Samples/lr": result.lr}
        if not getattr(result, "skipped", False):
            events["Train/Samples/grad_norm"] = result.grad_norm
        scale = getattr(result, "loss_scale", None)
        if scale is not None and (self._scaled or scale != 1):
            events["Train/Samples/loss_scale"] = scale
        events["Eval/Samples/eval_loss"] = getattr(result, "heldout_loss", None)
        events["Train/tokens_per_second"] = getattr(result, "tokens_per_second", None)
        self.write(result.step, events, getattr(result, "samples", samples))

    def close(self) -> None:
        """Ends the runs that this object has begun. May be called repeatedly."""
        senders, self._senders = self._senders, []
        with contextlib.ExitStack() as ends:  # an exception of one must not keep the other open
            for sender in senders:
                ends.callback(sender.close)

    def __enter__(self) -> "Monitors":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(type(sender).__name__[1:].lower() for sender in self._senders)
        return f"Monitors({names or 'none'})"
