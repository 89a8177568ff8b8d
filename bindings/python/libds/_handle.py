"""What every object over a handle of ds.h has in common: its end, its lock and the forms in which configurations come."""
from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Mapping, Union

from . import errors

Config = Union[Mapping[str, Any], str, "os.PathLike[str]"]


def config_text(config: Config) -> str:
    """A configuration as JSON text: a dictionary, JSON text itself (it has a brace), or the path of a file."""
    if isinstance(config, Mapping):
        return json.dumps(config, default=_plain)
    if isinstance(config, str) and "{" in config:
        return config
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            return file.read()
    raise TypeError(f"a configuration is a dictionary, JSON text or a path, got {type(config).__name__}")


def options_text(**options: Any) -> str | None:
    """Options of a call as JSON: those that are not None."""
    given = {name: value for name, value in options.items() if value is not None}
    return json.dumps(given, default=_plain) if given else None


def _plain(value: Any) -> Any:
    """What json cannot write by itself: scalars and arrays of NumPy or torch, paths, mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def raw_handle(one: Any, kind: type[Handle], name: str) -> Any:
    """The low-level handle of the argument `name`, which must be a `kind`."""
    if not isinstance(one, kind):
        raise TypeError(f"{name} must be a libds.{kind.__name__}, got {type(one).__name__}")
    return one._need()


class Handle:
    """An object that libds keeps something for. It is a context manager, and `close()` ends it.

    Without either it ends when it is collected, in any order with other objects. A call on a closed object raises
    `StateError`. Calls of several threads on one object wait for each other.
    """

    _raw: Any = None
    _lock: threading.RLock  # shared by a comm and its engines

    def _open(self, raw: Any, lock: threading.RLock | None = None) -> None:
        self._raw = raw
        self._lock = lock or threading.RLock()

    def _need(self) -> Any:
        raw = self._raw
        if raw is None:
            raise errors.closed(type(self).__name__)
        return raw

    def _call(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Calls fn(handle, ...). The handle lives until the call has returned, even if another thread closes this object."""
        with self._lock:
            return fn(self._need(), *arguments)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._raw is None

    def close(self) -> None:
        """Gives back what libds keeps for this object. May be called again."""
        self._raw = None

    def __enter__(self):
        self._need()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
