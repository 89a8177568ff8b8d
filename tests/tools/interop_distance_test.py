#!/usr/bin/env python3
"""Tests the rule by which ./run interop compares: NaN and a comparison of nothing fail every bar."""
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from distance import largest  # noqa: E402

assert largest({"a": 0.0, "b": 2.0, "c": 1.0}) == (2.0, "b")
for distances, name in [({}, "nothing was compared"), ({"a": 1.0, "b": math.nan}, "b"), ({"a": math.nan, "b": 9.0}, "a")]:
    worst, where = largest(distances)
    assert not worst <= 1e9 and where == name, (distances, worst, where)
assert largest({"a": 1.0, "b": math.inf}) == (math.inf, "b")
