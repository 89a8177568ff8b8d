#!/usr/bin/env python3
"""What the operation schema becomes: reference pages and typed helpers in every language.

usage: op_helpers.py --renew LIBRARY    writes docs/reference/ops.json, as ds_op_schema() of that libds.so has it
       op_helpers.py --check LIBRARY    compares it; exit 1 and a diff where it differs

tools/bindings.py makes the other files of docs/reference/ops.json, which needs no library: files() has them all.
"""
import ctypes
import difflib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = "docs/reference/ops.json"
PAGE = "docs/reference/ops.md"
BEGIN, END = "<!-- operations: written by tools/bindings.py -->", "<!-- end of operations -->"


def schema_of(library):
    """The text of ds_op_schema()."""
    ds = ctypes.CDLL(library)
    text = ctypes.c_char_p()
    ds.ds_text_destroy.argtypes, ds.ds_text_destroy.restype = [ctypes.c_char_p], None
    if ds.ds_op_schema(ctypes.byref(text)) != 0:
        sys.exit("op_helpers: ds_op_schema ended with an error")
    out = text.value.decode()
    ds.ds_text_destroy(text)
    return out + "\n"


def default_text(attr):
    value = attr["default"]
    return f'"{value}"' if isinstance(value, str) else str(value)


# ---- the reference page


def operand_line(operand, role=""):
    note = ", optional" if operand["optional"] else f", up to {operand['most']} of them" if operand["most"] > 1 else ""
    return f"- {role}`{operand['name']}` {operand['type']}{note}: {operand['doc']}"


def attribute_line(attr):
    kind = " or ".join(f'"{word}"' for word in attr["words"]) if "words" in attr else attr["kind"]
    kind = "0 or 1" if kind == "flag" else kind
    if attr["required"]:
        note = ""
    else:
        note = ", optional" if attr["default"] is None else f", {default_text(attr)} by default"
    return f"- attribute `{attr['name']}`, {kind}{note}: {attr['doc']}"


def page(schema, text):
    """The page with its operations as the schema has them."""
    out = [BEGIN, ""]
    for op in schema["operations"]:
        out += [f"### `{op['name']}`", "", op["doc"] + ("" if op["differentiable"] else " Not differentiable."), ""]
        for form in op["forms"]:
            if form["name"]:
                out += ["", f"Form `{form['name']}`:", ""]
            out += [*map(operand_line, form["operands"]), *(operand_line(r, "result ") for r in form["results"])]
        if len(op["forms"]) > 1 and op["attributes"]:
            out += ["", "All forms:", ""]
        out += [*map(attribute_line, op["attributes"]), ""]
    before, rest = text.split(BEGIN)
    return before + "\n".join([*out, END]) + rest.split(END)[1]


def files():
    """{path: text} of all that is written from the schema."""
    schema = json.loads((ROOT / SCHEMA).read_text())
    return {PAGE: page(schema, (ROOT / PAGE).read_text())}


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("--renew", "--check"):
        sys.exit(__doc__)
    now, path = schema_of(arguments[1]), ROOT / SCHEMA
    if arguments[0] == "--renew":
        path.write_text(now)
        return
    committed = path.read_text()
    if committed != now:
        sys.stdout.writelines(difflib.unified_diff(committed.splitlines(True), now.splitlines(True), f"{SCHEMA}, committed",
                                                   "ds_op_schema()"))
        sys.exit("op_helpers: the operations differ; if that is meant, run: ./run abi")


if __name__ == "__main__":
    main(sys.argv[1:])
