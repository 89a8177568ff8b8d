#!/usr/bin/env python3
"""Writes the parts of the bindings of other languages that follow from include/ds.h, as read by SWIG.

usage: bindings.py            writes the files below
       bindings.py --check    compares them with what it would write; if they differ, prints a diff and exits with 1
       bindings.py --swig PROGRAM [--check]    with another SWIG than the one in PATH
       bindings.py --castxml PROGRAM           compares SWIG's tree with that of a C compiler, by castxml

  bindings/rust/ds-sys/src/lib.rs     externs, structs, constants
  bindings/julia/src/lowlevel.jl      @ccall stubs, structs, constants
  tests/abi/believed.c                the constants, sizes and offsets of both, as assertions in C
and the files that tools/op_helpers.py makes of the operations

SWIG reads the header once (-xmlout -doxygen), comments included. tools/api_dump.py, which knows nothing of SWIG, reads
it too, and both must find the same functions, parameters, structs and values; a declaration that one of them does not
understand is refused by name. Comments become documentation: it keeps marks such as [nullable], and leaves out tags of
tests such as {comm.send}.
"""
import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import op_helpers

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "ds.h"
INTERFACE = '%module ds\n#define DS_API\n%include <stdint.i>\n%include "ds.h"\n'
SIZES = {"char": 1, "uint8_t": 1, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8,
         "float": 4, "double": 8}
RUST = {"char": "c_char", "uint8_t": "u8", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64",
        "uint64_t": "u64", "size_t": "usize", "float": "f32", "double": "f64", "void": "c_void"}
JULIA = {"char": "Cchar", "uint8_t": "UInt8", "uint16_t": "UInt16", "int32_t": "Int32", "uint32_t": "UInt32",
         "int64_t": "Int64", "uint64_t": "UInt64", "size_t": "Csize_t", "float": "Cfloat", "double": "Cdouble",
         "void": "Cvoid"}
RUST_WORDS = {"as", "const", "fn", "in", "loop", "match", "mod", "move", "ref", "self", "type", "use", "where"}
JULIA_WORDS = {"begin", "const", "do", "end", "function", "global", "in", "let", "local", "module", "struct", "type"}


class Refused(Exception):
    pass


class Type:
    """A base name and its pointers, the outermost first; each pointer knows whether its target is const."""

    def __init__(self, text):
        # A function: the return type.
        if text.startswith("f("):
            depth = 0
            for at, letter in enumerate(text):
                depth += (letter == "(") - (letter == ")")
                if letter == ")" and depth == 0:
                    text = text[at + 2:]
                    break
        self.pointers = []
        while match := re.match(r"p\.|q\(([\w ]+)\)\.", text):
            text = text[match.end():]
            if match.group() == "p.":
                self.pointers.append(False)
            # A qualifier belongs to the target of the pointer before it.
            elif self.pointers:
                self.pointers[-1] = "const" in match.group(1).split()
        self.base = re.sub(r"^(struct|enum) ", "", text)
        if not re.fullmatch(r"\w+", self.base):
            raise Refused(f"type {text}")


class Header:
    """What SWIG has read: functions, callbacks, structs, enums, opaque handles and constants, in the order of
    ds.h."""

    def __init__(self, swig):
        with tempfile.TemporaryDirectory() as folder:
            interface = pathlib.Path(folder) / "ds.i"
            interface.write_text(INTERFACE)
            tree = pathlib.Path(folder) / "tree.xml"
            subprocess.run([swig, "-python", "-doxygen", "-w451", "-xmlout", tree, f"-I{HEADER.parent}", "-outdir", folder,
                            "-o", f"{folder}/wrap.c", interface], check=True)
            root = ElementTree.parse(tree).getroot()
        self.functions, self.callbacks, self.structs, self.enums = {}, {}, {}, {}
        self.opaque, self.constants = {}, {}
        for node in self.of_header(root):
            self.read(node)
        self.opaque = {name: doc for name, doc in self.opaque.items() if name not in self.structs}
        self.check_against_dump()

    @staticmethod
    def of_header(root):
        """Returns the declarations of ds.h, without those of SWIG's own library."""
        for include in root.iter("include"):
            name = attributes(include).get("name", "")
            if pathlib.Path(name).name == "ds.h":
                return list(include)
        raise Refused("the tree has no ds.h")

    def read(self, node):
        a = attributes(node)
        doc = words(a.get("doxygen", ""))
        name = a.get("name", "")
        if node.tag == "constant":
            self.constants[name] = (int(a["rawvalue"] if "rawvalue" in a else a["value"], 0), doc)
        elif node.tag == "enum":
            items = [(attributes(i)["name"], int(attributes(i)["enumvalue"], 0), words(attributes(i).get("doxygen", "")))
                     for i in node.findall("enumitem")]
            self.enums[name] = (doc, items)
        elif node.tag == "class":
            fields = []
            for field in node.findall("cdecl"):
                f = attributes(field)
                fields.append((f["name"], Type(f.get("decl", "") + f["type"]), words(f.get("doxygen", ""))))
            self.structs[name] = (doc, fields)
        elif node.tag == "classforward":
            self.opaque[name] = doc
        elif node.tag == "cdecl" and a.get("kind") == "function":
            to = self.callbacks if a.get("storage") == "typedef" else self.functions
            to[name] = (doc, Type(a["decl"] + a["type"]), parameters(node))
        elif node.tag == "cdecl" and a.get("storage") == "typedef":
            if a["type"] == f"struct {name}" and name not in self.structs:
                self.opaque[name] = doc
            elif a["type"] not in (f"struct {name}", f"enum {name}"):
                raise Refused(f"typedef {name} of {a['type']}")
        elif node.tag not in ("attributelist", "insert", "include"):
            raise Refused(f"{node.tag} {name}")

    def check_against_dump(self):
        text = subprocess.run([sys.executable, ROOT / "tools" / "api_dump.py", HEADER, "json"], check=True,
                              capture_output=True, text=True).stdout
        dump = json.loads(text)
        same("functions", {n: [p[0] for p in f[2]] for n, f in self.functions.items()},
             {n: [p["name"] for p in f["params"]] for n, f in dump["functions"].items()})
        same("callbacks", {n: [p[0] for p in f[2]] for n, f in self.callbacks.items()},
             {n: [p["name"] for p in f["params"]] for n, f in dump["callbacks"].items()})
        same("structs", {n: [f[0] for f in s[1]] for n, s in self.structs.items()},
             {n: [f["name"] for f in s["fields"]] for n, s in dump["structs"].items()})
        same("enums", {n: {i[0]: i[1] for i in e[1]} for n, e in self.enums.items()},
             {n: e["values"] for n, e in dump["enums"].items()})
        same("opaque structs", sorted(self.opaque), sorted(set(dump["opaque"]) - set(dump["structs"])))

    def size(self, kind):
        if kind.pointers:
            return 8
        if kind.base in self.enums:
            return 4
        if kind.base not in SIZES:
            raise Refused(f"a member of type {kind.base}")
        return SIZES[kind.base]

    def layout(self, name):
        """Returns (member, offset) of a struct, and its size: each member lies at the next multiple of its size."""
        at, largest, out = 0, 1, []
        for field, kind, _ in self.structs[name][1]:
            size = self.size(kind)
            at = (at + size - 1) // size * size
            out.append((field, at))
            at += size
            largest = max(largest, size)
        return out, (at + largest - 1) // largest * largest


def compare_with_compiler(header, castxml):
    """Compares parameters of functions, enumerators, and offsets of struct members with those of clang."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "ds.xml"
        subprocess.run([castxml, "--castxml-output=1", "-x", "c", "-std=c99", "-o", out, HEADER], check=True)
        root = ElementTree.parse(out).getroot()
    functions = {f.get("name"): [a.get("name") for a in f.findall("Argument")] for f in root.findall("Function")
                 if f.get("name").startswith("ds_")}
    same("functions", {n: [p[0] for p in f[2]] for n, f in header.functions.items()}, functions, "castxml")
    enums = {e.get("name"): {v.get("name"): int(v.get("init")) for v in e.findall("EnumValue")}
             for e in root.findall("Enumeration") if e.get("name").startswith("ds_")}
    same("enums", {n: {i[0]: i[1] for i in e[1]} for n, e in header.enums.items()}, enums, "castxml")
    found = {s.get("id"): s for s in root.findall("Struct") if s.get("name").startswith("ds_") and s.get("members")}
    structs = {s.get("name"): ([], int(s.get("size")) // 8) for s in found.values()}
    for field in root.findall("Field"):
        if field.get("context") in found:
            structs[found[field.get("context")].get("name")][0].append((field.get("name"), int(field.get("offset")) // 8))
    same("structs", {n: header.layout(n) for n in header.structs}, structs, "castxml")


def attributes(node):
    items = node.find("attributelist")
    return {a.get("name"): a.get("value") for a in items.findall("attribute")} if items is not None else {}


def parameters(node):
    items = node.find("attributelist/parmlist")
    out = []
    for parm in items.findall("parm") if items is not None else []:
        a = attributes(parm)
        if a.get("type") == "void" and not a.get("name"):
            continue
        out.append((a["name"], Type(a["type"])))
    return out


TAG = re.compile(r"\s*\{[a-z][\w-]*(?:\.[\w-]+)+\}")  # for tests; see tools/check_claims.py


def words(comment):
    return TAG.sub("", " ".join(line.strip().removeprefix("*").strip() for line in comment.splitlines())).strip()


def same(kind, mine, theirs, reader="api_dump.py"):
    if mine == theirs:
        return
    for name in sorted(set(mine) | set(theirs)):
        if name not in mine or name not in theirs or (isinstance(mine, dict) and mine[name] != theirs[name]):
            raise Refused(f"{kind}: SWIG and {reader} differ in {name}")
    raise Refused(f"{kind}: SWIG and {reader} differ in their order")


def wrapped(text, prefix, width=110):
    """Returns the lines of a comment; each @param and @return begins one."""
    lines = []
    for part in re.split(r"\s+(?=@(?:param|return)\b)", text):
        line = ""
        for word in part.split():
            if line and len(prefix) + len(line) + 1 + len(word) > width:
                lines.append(line)
                line = " " if part.startswith("- ") else ""  # a list item continues indented
            line += (" " if line else "") + word
        lines.append(line)
    return [(prefix + line).rstrip() for line in lines if line]


# ---- Rust


def rust_type(header, kind):
    pointers, base = list(kind.pointers), kind.base
    if base in header.callbacks:
        pointers = pointers[:-1]  # a function pointer is a pointer already
    out = RUST.get(base, base)
    if base not in RUST and base not in {**header.enums, **header.structs, **header.opaque, **header.callbacks}:
        raise Refused(f"type {base}")
    for const in reversed(pointers):
        out = f"*{'const' if const else 'mut'} {out}"
    return out


def rust_doc(text, indent=""):
    if not text:
        return []
    text = re.sub(r"([\[\]<])", r"\\\1", text)
    text = re.sub(r"\s*@param (\w+)", r"\n\n- `\1`:", text)
    text = re.sub(r"\s*@return", "\n\nReturns", text)
    out = []
    for part in text.split("\n"):
        out += wrapped(part, indent + "/// ") if part else [indent + "///"]
    return out


def rust_name(name):
    return f"r#{name}" if name in RUST_WORDS else name


def rust_params(header, params):
    return ", ".join(f"{rust_name(name)}: {rust_type(header, kind)}" for name, kind in params)


def rust_result(header, kind):
    return "" if kind.base == "void" and not kind.pointers else f" -> {rust_type(header, kind)}"


def rust(header):
    out = ["// Written by tools/bindings.py from include/ds.h; do not edit.",
           "//! What include/ds.h declares, as it stands there. The crate `ds` is the one to use.",
           "#![allow(non_camel_case_types)]", "", "use std::ffi::c_void;",
           "use std::marker::{PhantomData, PhantomPinned};", "use std::os::raw::c_char;", ""]
    for name, (value, doc) in header.constants.items():
        out += rust_doc(doc) + [f"pub const {name}: i32 = {value};"]
    for name, (doc, items) in header.enums.items():
        out += ["", *rust_doc(doc), f"pub type {name} = i32;"]
        for item, value, item_doc in items:
            if not item.endswith("_FORCE_INT32"):
                out += rust_doc(item_doc) + [f"pub const {item}: {name} = {value};"]
    for name, doc in header.opaque.items():
        out += ["", *rust_doc(doc), "#[repr(C)]", f"pub struct {name} {{", "    _data: [u8; 0],",
                "    _marker: PhantomData<(*mut u8, PhantomPinned)>,", "}"]
    for name, (doc, result, params) in header.callbacks.items():
        out += ["", *rust_doc(doc), f"pub type {name} =",
                f"    Option<unsafe extern \"C\" fn({rust_params(header, params)}){rust_result(header, result)}>;"]
    for name, (doc, fields) in header.structs.items():
        out += ["", *rust_doc(doc), "#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {name} {{"]
        for field, kind, field_doc in fields:
            out += rust_doc(field_doc, "    ") + [f"    pub {rust_name(field)}: {rust_type(header, kind)},"]
        out.append("}")
    out += ["", 'extern "C" {']
    for name, (doc, result, params) in header.functions.items():
        out += rust_doc(doc, "    ")
        out.append(f"    pub fn {name}({rust_params(header, params)}){rust_result(header, result)};")
    return "\n".join([*out, "}", ""])


# ---- Julia


def julia_type(header, kind):
    pointers, base = list(kind.pointers), kind.base
    if base in header.callbacks:
        return "Ptr{Cvoid}"
    if base == "char" and pointers == [True]:
        return "Cstring"
    out = JULIA.get(base, "Int32" if base in header.enums else base)
    for _ in pointers:
        out = f"Ptr{{{out}}}"
    return out


def julia_doc(text):
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    text = re.sub(r"\s*@param (\w+)", r"\n- `\1`:", text)
    text = re.sub(r"\s*@return", "\nReturns", text)
    lines = [line for part in text.split("\n") for line in wrapped(part, "")]
    return ['"""', *lines, '"""'] if lines else []


def julia_name(name):
    return f"{name}_" if name in JULIA_WORDS else name


def julia(header):
    out = ["# Written by tools/bindings.py from include/ds.h; do not edit.", "# What it declares, as it stands there.", ""]
    for name, (value, doc) in header.constants.items():
        out.append(f"const {name} = {value}")
    for name, (doc, items) in header.enums.items():
        out += ["", f"# {name}"]
        out += [f"const {item} = Int32({value})" for item, value, _ in items if not item.endswith("_FORCE_INT32")]
    out.append("")
    for name, doc in header.opaque.items():
        out.append(f"mutable struct {name} end")
    for name, (doc, fields) in header.structs.items():
        out += ["", *julia_doc(doc), f"struct {name}"]
        out += [f"    {julia_name(field)}::{julia_type(header, kind)}" for field, kind, _ in fields]
        out.append("end")
    for name, (doc, result, params) in header.functions.items():
        names = ", ".join(julia_name(n) for n, _ in params)
        typed = ", ".join(f"{julia_name(n)}::{julia_type(header, k)}" for n, k in params)
        out += ["", *julia_doc(doc), f"function {name}({names})",
                f"    @ccall libds.{name}({typed})::{julia_type(header, result)}", "end"]
    return "\n".join([*out, ""])


# ---- C


def assertions(header):
    out = ["/* Written by tools/bindings.py from include/ds.h; do not edit. What bindings believe. */",
           "/* clang-format off */", "#include <ds.h>", "", "#define BELIEVE(name, holds) typedef char believed_##name[(holds) ? 1 : -1]", ""]
    for name, (value, _) in header.constants.items():
        out.append(f"BELIEVE({name}, {name} == {value});")
    for name, (_, items) in header.enums.items():
        out.append(f"BELIEVE({name}, sizeof({name}) == 4);")
        out += [f"BELIEVE({item}, {item} == {value});" for item, value, _ in items]
    for name in header.structs:
        fields, size = header.layout(name)
        out.append(f"BELIEVE({name}, sizeof({name}) == {size});")
        out += [f"BELIEVE({name}_{field}, offsetof({name}, {field}) == {at});" for field, at in fields]
    return "\n".join([*out, ""])


def main(arguments):
    options = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    options.add_argument("--check", action="store_true")
    options.add_argument("--swig", default="swig")
    options.add_argument("--castxml")
    options = options.parse_args(arguments)
    check = options.check
    try:
        header = Header(options.swig)
        if options.castxml:
            return compare_with_compiler(header, options.castxml)
        files = {"bindings/rust/ds-sys/src/lib.rs": rust(header), "bindings/julia/src/lowlevel.jl": julia(header),
                 "tests/abi/believed.c": assertions(header), **op_helpers.files()}
    except Refused as refused:
        sys.exit(f"bindings: refused: {refused}")
    different = False
    for name, text in files.items():
        path = ROOT / name
        if not check:
            path.write_text(text)
            continue
        now = path.read_text() if path.exists() else ""
        if now != text:
            different = True
            sys.stdout.writelines(difflib.unified_diff(now.splitlines(True), text.splitlines(True), f"{name}, committed",
                                                       f"{name}, as it would be"))
    if different:
        sys.exit("bindings: the generated files differ; if ds.h or the operations were meant to change, run: python3 tools/bindings.py")


if __name__ == "__main__":
    main(sys.argv[1:])
