#!/usr/bin/env python3
"""Parses random JSON texts, most of them damaged, with libds and with Python's json module. Both must return the same values,
or both must refuse the text.

usage: json_like_python.py LIBDS_SO [TEXTS]

These differences are intended: libds refuses strings with NUL or half of a surrogate pair, NaN, numbers beyond the range of
doubles, and duplicate keys; Python refuses comments; and integers of more than 64 bits are doubles in libds.
"""
import ctypes
import json
import random
import sys

SCALARS = ["null", "true", "false", "Infinity", "-Infinity", "0", "-0", "1", "-12", "1.5", "1e5", "1E+3", "2e-7",
           "9007199254740993", "18446744073709551616", "-9223372036854775808", "0.1", "1e-400",
           "123456789012345678901234567890"]
LETTERS = ["a", "\\n", "\\u00e9", "\u00e9", '\\"', "\\\\", "/", "\\/", "\\ud83d\\ude00", "\U0001f600", " ", "{", "[",
           ","]
DAMAGE = b'{}[]",:0123456789.eE+-\\untrfals \n\t/*'


class Refused(ValueError):
    pass


class Library:
    def __init__(self, path):
        self.ds = ctypes.CDLL(path)
        self.ds.ds_last_error_message.restype = ctypes.c_char_p
        self.ds.ds_text_destroy.argtypes = [ctypes.c_void_p]
        self.ds.ds_text_destroy.restype = None

    def read(self, text):
        made = ctypes.c_void_p()
        # The text is merged as a patch, because a patch must be strict JSON, unlike a configuration. It is inside an array,
        # because an array keeps its nulls.
        if self.ds.ds_config_merge(b"{}", b"[" + text + b"]", ctypes.byref(made)) != 0:
            raise Refused(self.ds.ds_last_error_message().decode("utf-8", "replace"))
        out = ctypes.string_at(made)
        self.ds.ds_text_destroy(made)
        return json.loads(out)


def unique(members):
    if len(dict(members)) != len(members):
        raise Refused("equal keys")
    return dict(members)


def constant(name):
    if name == "NaN":
        raise Refused(name)
    return float(name)


def as_python(text):
    return json.loads("[" + text.decode("utf-8") + "]", object_pairs_hook=unique, parse_constant=constant)


def value(dice, depth=0):
    kind = dice.randrange(9 if depth < 4 else 6)
    gap = lambda: dice.choice(["", "", " ", "\n", "\t"])
    if kind < 3:
        return dice.choice(SCALARS)
    if kind < 6:
        return '"' + "".join(dice.choice(LETTERS) for _ in range(dice.randrange(5))) + '"'
    count = range(dice.randrange(5))
    if kind < 8:
        return "[" + ",".join(gap() + value(dice, depth + 1) + gap() for _ in count) + "]"
    return "{" + ",".join(f'{gap()}"k{i}"{gap()}:{gap()}{value(dice, depth + 1)}{gap()}' for i in count) + "}"


def document(dice):
    text = bytearray(('{"a":' + value(dice) + "}").encode())
    for _ in range(dice.randrange(3)):
        at = dice.randrange(len(text))
        byte = dice.choice(DAMAGE) if dice.random() < 0.8 else dice.randrange(1, 256)
        how = dice.randrange(4)
        if how == 0:
            text[at] = byte
        elif how == 1:
            del text[at]
        elif how == 2:
            text.insert(at, byte)
        else:
            text[at:at] = text[max(0, at - 3):at]
    return bytes(text)


def out_of_reach(v):
    if isinstance(v, str):
        return "\0" in v or any(0xD800 <= ord(c) < 0xE000 for c in v)
    if isinstance(v, dict):
        return any(out_of_reach(x) for member in v.items() for x in member)
    return isinstance(v, list) and any(map(out_of_reach, v))


def same(a, b):
    if isinstance(a, int) and not isinstance(a, bool) and not -2**63 <= a < 2**63:
        a = float(a)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def outcome(read, text):
    try:
        return read(text), ""
    except ValueError as refusal:
        return None, str(refusal)


def main():
    library, texts = Library(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    dice, accepted, refused = random.Random(5), 0, 0
    for _ in range(texts):
        text = document(dice)
        theirs, _ = outcome(as_python, text)
        if b"//" in text or b"/*" in text or out_of_reach(theirs) or not isinstance(theirs, (list, type(None))):
            continue
        ours, why_not = outcome(library.read, text)
        if "number overflow" in why_not:
            continue
        if (ours is None) != (theirs is None) or not same(theirs, ours):
            sys.exit(f"{text!r}: Python reads {theirs!r}, libds {ours!r} {why_not}")
        accepted, refused = accepted + (ours is not None), refused + (ours is None)
    print(f"{accepted} texts read alike, {refused} refused by both")
    if min(accepted, refused) < texts / 10:
        sys.exit("too few of either to say anything")


if __name__ == "__main__":
    main()
