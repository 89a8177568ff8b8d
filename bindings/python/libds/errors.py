"""Exceptions of libds: one class for each status of ds.h, all of them a subclass of `Error`."""
from __future__ import annotations

import enum
import os
import sys

__all__ = [
    "Status", "Error", "InvalidArgument", "ConfigError", "NotFound", "StateError", "Unsupported", "OutOfMemory", "FileError",
    "CorruptError", "CommError", "NumericError", "PoisonedError", "Stopped", "InternalError",
]


class Status(enum.IntEnum):
    """The outcome of a call of libds. Each negative value calls for a different reaction of the caller."""

    OK = 0
    INVALID_ARGUMENT = -1
    CONFIG = -2
    NOT_FOUND = -3
    STATE = -4
    UNSUPPORTED = -5
    OUT_OF_MEMORY = -6
    IO = -7
    CORRUPT = -8
    COMM = -9
    NUMERIC = -10
    POISONED = -11
    USER = -12
    INTERNAL = -13


class Error(Exception):
    """The error of a call of libds.

    `status` is a `Status`, and `message` is one line for people. `key`, `tensor` and `rank` are the dotted configuration key,
    the parameter or other tensor, and the rank that the message is about; each is None if the message names none.
    """

    status: Status
    message: str
    key: str | None
    tensor: str | None
    rank: int | None

    def __init__(self, status: int, message: str, key: str | None = None, tensor: str | None = None,
                 rank: int | None = None) -> None:
        super().__init__(message)
        self.status = Status(status)
        self.message = message
        self.key = key
        self.tensor = tensor
        self.rank = rank

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple:
        return type(self), (int(self.status), self.message, self.key, self.tensor, self.rank)


class InvalidArgument(Error, ValueError):
    """The call is wrong: change the argument that the message names."""


class ConfigError(Error, ValueError):
    """The configuration is wrong: change the key that the message names."""


class NotFound(Error, LookupError):
    """A name, file or folder does not exist."""


class StateError(Error, RuntimeError):
    """The call is right, but it comes at the wrong moment, or its object is closed."""


class Unsupported(Error, NotImplementedError):
    """The feature is known, but not available in this build, on this machine or in this version."""


class OutOfMemory(Error, MemoryError):
    """The plan exceeds a budget, or memory is exhausted."""


class FileError(Error, OSError):
    """The file system reported an error; the message has the path and the reason."""


class CorruptError(Error):
    """The content of a file contradicts itself or its hash."""


class CommError(Error):
    """A peer died, diverged or timed out: restart the group."""


class NumericError(Error, ArithmeticError):
    """A value is NaN or infinite where a finite one is needed; the object remains usable."""


class PoisonedError(StateError):
    """An earlier failure left this object unusable: close it."""


class Stopped(Error):
    """A callback or the stop flag requested a stop."""


class InternalError(Error):
    """A defect of libds: please report the message."""


_CLASSES = {
    Status.INVALID_ARGUMENT: InvalidArgument, Status.CONFIG: ConfigError, Status.NOT_FOUND: NotFound,
    Status.STATE: StateError, Status.UNSUPPORTED: Unsupported, Status.OUT_OF_MEMORY: OutOfMemory, Status.IO: FileError,
    Status.CORRUPT: CorruptError, Status.COMM: CommError, Status.NUMERIC: NumericError, Status.POISONED: PoisonedError,
    Status.USER: Stopped, Status.INTERNAL: InternalError,
}


def of_status(status: int, message: str, key: str | None = None, tensor: str | None = None, rank: int = -1) -> Error:
    """Returns the exception of a status; rank -1 means none. The low-level module raises the result."""
    return _CLASSES.get(Status(status), Error)(status, message, key, tensor, rank if rank >= 0 else None)


def end_child(error: BaseException | None, parent: int) -> None:
    """Ends this process, which was forked in a callback of the process `parent` and has returned from the callback or, if
    `error` is given, raised it there."""
    code = 1
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            code = error.code or 0
        else:
            error = error or StateError(Status.STATE, f"process {os.getpid()} was forked in a callback of process {parent} and has "
                                        f"returned from it: the call is the parent's; end the child with os._exit")
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def closed(kind: str) -> StateError:
    """Returns the error of a call on a closed object."""
    return StateError(Status.STATE, f"this {kind} is closed")


def named(name: str, error: Exception) -> Exception:
    """Returns the exception with a message that begins with the argument `name`."""
    text = " ".join(str(error).split())
    if isinstance(error, Error):
        return type(error)(error.status, f"{name}: {text}", error.key, error.tensor, error.rank)
    for kind in (BufferError, TypeError, ValueError, MemoryError):
        if isinstance(error, kind):
            return kind(f"{name}: {text}")
    return BufferError(f"{name}: its memory is not shared: {type(error).__name__}: {text}")


def unmade(kind: str) -> StateError:
    """Returns the error of a call on an object whose class has an __init__ that does not call the one of libds."""
    return StateError(Status.STATE, f"this {kind} was not initialized: the __init__ of its class must call libds.{kind}.__init__")


def refuse(message: str) -> InvalidArgument:
    """Returns the error of an argument that this package itself refuses."""
    return InvalidArgument(Status.INVALID_ARGUMENT, message)
