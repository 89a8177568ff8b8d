"""Checks of arguments: each argument of a public call must be of the kind that its annotation names."""
from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import os
import types
import typing
from typing import Any, Callable, TypeVar

from . import errors

__all__ = ["checked", "shown", "milliseconds", "ranged"]

_Any = TypeVar("_Any", bound=Callable[..., Any])
_LIMIT = 1 << 63  #: the first integer that does not fit 64 bits
_SPECIAL = ("__init__", "__getitem__", "__setitem__", "__delitem__")


def shown(value: Any) -> str:
    """Returns a value for a message: a plain value itself, a text cut to 50 characters, a short list item by item, otherwise the type."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple)) and len(value) <= 4 and not any(isinstance(item, (list, tuple)) for item in value):
        return f"[{', '.join(map(shown, value))}]"
    if value is None or type(value) in (bool, int, float, str, bytes):
        text = repr(value[:50] if isinstance(value, (str, bytes)) else value)
        return f"{text}..." if isinstance(value, (str, bytes)) and len(value) > 50 else text
    return type(value).__name__


class _Kind(typing.NamedTuple):
    """A kind of argument: its names, and a test whether a value is of the kind."""

    words: tuple[str, ...]
    holds: Callable[[Any], bool]


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool") or (isinstance(value, int) and value in (0, 1))


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_class(kind: type) -> _Kind:
    words = {str: "a str", collections.abc.Mapping: "a mapping", os.PathLike: "a path", type(None): "None"}.get(kind)
    if words is None:
        words = f"a {kind.__module__.split('.')[0]}.{kind.__name__}"
    return _Kind((words,), lambda value: isinstance(value, kind))


def _items(inner: _Kind | None) -> _Kind:
    """Returns the kind of sequences and other iterables. Only the items of a sequence are checked, because a check would use up an
    iterator."""

    def holds(value: Any) -> bool:
        if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, collections.abc.Iterable):
            return False
        if inner is None or not isinstance(value, collections.abc.Sequence):
            return True
        try:
            return all(map(inner.holds, value))
        except NotImplementedError:  # a memoryview of several dimensions
            return False

    words = "a sequence" if inner is None else f"a sequence of {_text(tuple(map(_several, inner.words)))}"
    return _Kind((words,), holds)


def _several(words: str) -> str:
    """Returns the plural of a kind: "an integer" becomes "integers"."""
    article, _, noun = words.partition(" ")
    return f"{noun}s" if article in ("a", "an") and " " not in noun else words


def _pair(parts: list[_Kind | None]) -> _Kind:
    def holds(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and len(value) == len(parts) and all(
            part is None or part.holds(item) for part, item in zip(parts, value))

    return _Kind((f"a tuple of {len(parts)}",), holds)


def _any_of(kinds: list[_Kind | None]) -> _Kind | None:
    if None in kinds:
        return None
    known = [kind for kind in kinds if kind is not None]
    known.sort(key=lambda kind: kind.words == ("None",))  # named last
    return _Kind(tuple(word for kind in known for word in kind.words), lambda value: any(kind.holds(value) for kind in known))


_PLAIN = {
    bool: _Kind(("True or False",), _is_flag),
    int: _Kind(("an integer",), _is_integer),
    float: _Kind(("a number",), _is_number),
}


def _kind(hint: Any) -> _Kind | None:
    """Returns the kind that an annotation names, or None if it accepts anything."""
    if hint is Any or isinstance(hint, TypeVar):
        return None
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _any_of([_kind(one) for one in inner])
    if origin is typing.Literal:
        return _is_class(str)  # the library itself checks the name
    if origin is collections.abc.Callable or hint is Callable:
        return _Kind(("callable",), callable)
    if origin is collections.abc.Mapping:
        return _is_class(origin)
    if origin is tuple and inner[-1] is not Ellipsis:
        return _pair([_kind(one) for one in inner])
    if hint is collections.abc.Sequence or hint is typing.Sequence:
        return _items(None)
    if origin in (tuple, collections.abc.Sequence, collections.abc.Iterable):
        return _items(_kind(inner[0]))
    return _is_class(origin or hint)


def _text(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _check(name: str, value: Any, kind: _Kind | None) -> None:
    if kind is None:
        return
    if not kind.holds(value):
        raise TypeError(f"{name} must be {_text(kind.words)}, got {shown(value)}")
    if "a number" in kind.words:  # converted to a double, so its size does not matter
        return
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    for number in numbers:
        if isinstance(number, int) and not -_LIMIT <= number < _LIMIT:
            raise errors.refuse(f"{name} must be of at most 64 bits, got {shown(number)}")


def _checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    plain = inspect.unwrap(function)
    parameters = list(inspect.signature(plain).parameters.values())
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    several = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
    kinds: dict[str, _Kind | None] = {}

    # Runs at the first call, because annotations may name classes that are defined further below.
    def learn() -> None:
        hints = typing.get_type_hints(plain)
        kinds.update({one.name: _kind(hints.get(one.name, Any)) for one in parameters if one.kind is not one.VAR_KEYWORD})

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kinds:
            learn()
        for name, value in zip(names, args):
            _check(name, value, kinds[name])
        for number, value in enumerate(args[len(names):]):
            _check(f"{several}[{number}]", value, kinds.get(several))
        for name, value in kwargs.items():
            _check(name, value, kinds.get(name))
        return function(*args, **kwargs)

    return call


def checked(one: _Any) -> _Any:
    """Wraps a function, or the public methods, __init__ and indexing of a class, so that arguments of a kind that the annotations
    do not name are refused."""
    if not inspect.isclass(one):
        return typing.cast(_Any, _checked_function(one))
    for name, member in list(vars(one).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(member, classmethod):
            setattr(one, name, classmethod(_checked_function(member.__func__)))
        elif inspect.isfunction(member):
            setattr(one, name, _checked_function(member))
    return typing.cast(_Any, one)


def milliseconds(name: str, seconds: float) -> int:
    """Converts seconds to the milliseconds of ds.h; refuses times outside 1 ms to 1e9 s."""
    if not 0.001 <= seconds <= 1e9:
        raise errors.refuse(f"{name} must be from 0.001 to 1e9 seconds, got {shown(seconds)}")
    return round(seconds * 1000)


def ranged(name: str, value: Any, first: int, last: int) -> int:
    """Returns the integer `value`; refuses one outside `first` to `last`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {shown(value)}") from None
    if not first <= number <= last:
        raise errors.refuse(f"{name} must be from {first} to {last}, got {shown(number)}")
    return number
