"""The common part of all objects that own a handle of ds.h: closing, the lock, and the forms of configurations."""
from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Mapping, Union

from . import errors
from ._arguments import shown

Config = Union[Mapping[str, Any], str, "os.PathLike[str]"]


def config_text(config: Config, name: str = "config") -> str:
    """Returns a configuration as JSON text. `config` is a mapping, JSON text (recognized by a brace), or the path of a
    file."""
    if isinstance(config, Mapping):
        return json_text(name, config)
    if isinstance(config, str) and "{" in config:
        return config
    if isinstance(config, (str, os.PathLike)):
        try:
            with open(config, encoding="utf-8") as file:
                return file.read()
        except ValueError as error:
            raise errors.refuse(f"{name} must be a mapping, JSON text or the path of a text file, got {config!r}: {error}") from None
    raise TypeError(f"{name} must be a mapping, JSON text or a path, got {shown(config)}")


def options_text(**options: Any) -> str | None:
    """Returns those options of a call that are not None, as JSON, or None if all are None."""
    given = [f"{json.dumps(name)}: {json_text(name, value)}" for name, value in options.items() if value is not None]
    return f"{{{', '.join(given)}}}" if given else None


def json_text(name: str, value: Any) -> str:
    """Returns the argument `name` as JSON."""
    try:
        text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
        text.encode()
        if "\\u0000" in text.replace("\\\\", ""):
            raise ValueError("a text has a NUL character")
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.refuse(f"{name} must be what JSON can say, got {shown(value)}: {error}") from None


def _plain(value: Any) -> Any:
    """Converts values that json cannot write by itself: scalars and arrays of NumPy or torch, paths, mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


class Handle:
    """An object with state in libds. It is a context manager, and `close()` ends it.

    Otherwise it is closed when it is garbage-collected, in any order relative to other objects. A call on a closed object raises
    `StateError`. Calls of several threads on one object wait for each other.
    """

    _raw: Any = None
    # A comm and its engines share one lock. The lock of the class serves objects whose __init__ has not run.
    _lock = threading.RLock()

    def _open(self, raw: Any, lock: threading.RLock | None = None) -> None:
        self._raw = raw
        self._lock = lock or threading.RLock()

    def _need(self) -> Any:
        raw = self._raw
        if raw is None:
            raise self._error()
        return raw

    def _error(self) -> errors.StateError:
        kind = next(one.__name__ for one in type(self).__mro__ if one.__module__.startswith("libds."))
        return errors.closed(kind) if "_raw" in self.__dict__ else errors.unmade(kind)

    def _call(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Calls fn(handle, ...). The handle lives until the call has returned, even if another thread closes this
        object."""
        with self._lock:
            return fn(self._need(), *arguments)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._raw is None

    def close(self) -> None:
        """Frees the state in libds. May be called repeatedly."""
        self._raw = None

    def __enter__(self):
        self._need()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
