#!/usr/bin/env python3
"""Reads include/ds.h, which is written in a plain subset of C, and fails on anything outside that subset.

usage: api_dump.py HEADER symbols   names of all functions, one a line
       api_dump.py HEADER link     a C program that takes the address of every function
       api_dump.py HEADER layout   a C program that prints sizes, offsets and enum values
       api_dump.py HEADER json     everything, with the comments, for generators of bindings

The subset: the guards below, <stddef.h> and <stdint.h>; named enums with explicit values, among them 0 and a last
NAME_FORCE_INT32; opaque structs; structs that begin with size_t struct_size and contain scalars, callbacks and
pointers to numbers, enums and buffers of the caller; typedefs of function types; functions marked DS_API. No
pointer typedefs, by-value structs, unions, bit-fields, varargs, inline functions, int, long, unsigned or bool.
"""
import json
import re
import sys

SCALARS = {"char", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "float", "double"}
QUALIFIERS = {"const", "volatile"}
PREAMBLE = """#ifndef DS_H
#define DS_H
#include <stddef.h>
#include <stdint.h>
#define DS_VERSION_MAJOR 0
#define DS_VERSION_MINOR 1
#define DS_VERSION_PATCH 0
#ifndef DS_API
#if defined(DS_BUILDING) && defined(__GNUC__)
#define DS_API __attribute__((visibility("default")))
#else
#define DS_API
#endif
#endif
#ifdef __cplusplus
extern "C" {
#endif
#ifdef __cplusplus
}
#endif
#endif""".splitlines()
TOKEN = re.compile(r"0x[0-9A-Fa-f]+|-?\d+|\w+|\.\.\.|[{}()\[\];,=*:]|\S")


class Refused(Exception):
    pass


class Reader:
    """Reads the tokens once; each token keeps its line and the comment before it."""

    def __init__(self, text):
        self.tokens = list(tokens(text))
        self.at = 0
        self.enums, self.structs, self.opaque, self.callbacks, self.functions = {}, {}, [], {}, {}

    def refuse(self, reason):
        line = self.tokens[min(self.at, len(self.tokens) - 1)][1]
        raise Refused(f"line {line}: {reason}")

    def peek(self, ahead=0):
        at = self.at + ahead
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def take(self, wanted=None):
        token = self.peek()
        if wanted is not None and token != wanted:
            self.refuse(f"expected {wanted}, found {token or 'the end'}")
        self.at += 1
        return token

    def name(self):
        token = self.take()
        if not re.fullmatch(r"[A-Za-z_]\w*", token):
            self.refuse(f"expected a name, found {token}")
        return token

    def read(self):
        while self.at < len(self.tokens):
            doc = self.tokens[self.at][2]
            first, second = self.peek(), self.peek(1)
            if first == "DS_API":
                self.function(doc)
            elif first == "typedef" and second == "enum":
                self.enum(doc)
            elif first == "typedef" and second == "struct":
                self.struct(doc)
            elif first == "typedef":
                self.callback(doc)
            elif first == "struct" and self.peek(2) == ";":
                self.opaque.append(self.tokens[self.at + 1][0])
                self.at += 3
            else:
                self.refuse(f"outside the dialect: {first} {second}")
        return self

    def enum(self, doc):
        self.at += 2
        name = self.name()
        self.take("{")
        values = {}
        while self.peek() != "}":
            item = self.name()
            self.take("=")
            values[item] = int(self.take(), 0)
            if self.peek() == ",":
                self.take()
        self.take("}")
        self.take(name)
        self.take(";")
        if list(values)[-1] != f"{name.upper()}_FORCE_INT32" or list(values.values())[-1] != 0x7FFFFFFF:
            self.refuse(f"enum {name} does not end with {name.upper()}_FORCE_INT32 = 0x7FFFFFFF")
        if 0 not in values.values():
            self.refuse(f"enum {name} has no value 0")
        self.enums[name] = {"doc": doc, "values": values}

    def struct(self, doc):
        self.at += 2
        name = self.name()
        if self.peek() == name:
            self.take()
            self.take(";")
            self.opaque.append(name)
            return
        self.take("{")
        fields = []
        while self.peek() != "}":
            kind = self.type(member=True)
            field = self.name()
            if self.peek() == ":":
                self.refuse(f"bit-field {name}.{field}")
            self.take(";")
            fields.append({"name": field, "type": kind})
        self.take("}")
        self.take(name)
        self.take(";")
        if not fields or fields[0] != {"name": "struct_size", "type": "size_t"}:
            self.refuse(f"struct {name} does not begin with size_t struct_size")
        self.structs[name] = {"doc": doc, "fields": fields}

    def callback(self, doc):
        self.take("typedef")
        result = self.type(result=True)
        name = self.name()
        self.callbacks[name] = {"doc": doc, "returns": result, "params": self.params()}
        if self.callbacks[name]["params"][-1:] != [{"name": "user_data", "type": "void *"}]:
            self.refuse(f"callback {name} does not end with void *user_data")

    def function(self, doc):
        self.take("DS_API")
        result = self.type(result=True)
        name = self.name()
        if not name.startswith("ds_"):
            self.refuse(f"function {name} does not begin with ds_")
        self.functions[name] = {"doc": doc, "returns": result, "params": self.params()}

    def params(self):
        self.take("(")
        params = []
        if self.peek() == "void" and self.peek(1) == ")":
            self.take()
        while self.peek() != ")":
            kind = self.type()
            params.append({"name": self.name(), "type": kind})
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        self.take(";")
        return params

    def type(self, member=False, result=False):
        """Returns a type as written: a scalar, an enum, or a pointer to a known type."""
        words = []
        while self.peek() in QUALIFIERS:
            words.append(self.take())
        if self.peek() == "struct":
            words.append(self.take())
        base = self.name()
        words.append(base)
        stars = 0
        while self.peek() in ("*", *QUALIFIERS):
            stars += self.peek() == "*"
            words.append(self.take())
        by_value = base in SCALARS or base in self.enums
        known = by_value or base == "void" or base in self.opaque or base in self.structs or base in self.callbacks
        if not known:
            self.refuse(f"type {base} is outside the dialect")
        if stars and member and base not in SCALARS - {"char"} | {"void"} | set(self.callbacks) | set(self.enums):
            self.refuse(f"pointer to {base} in a struct")
        if not stars and not by_value and not (result and base == "void"):
            self.refuse(f"{base} by value")
        return re.sub(r"\* (?=\*)", "*", " ".join(words))


def tokens(text):
    """Returns (token, line, comment before it) of all tokens except the known preprocessor lines, which must be as
    above."""
    pieces, comment, after, directives, external = [], "", 0, [], False
    for match in re.finditer(r"/\*.*?\*/|[^\n]*?(?=/\*|\n|$)|\n", text, re.S):
        piece = match.group()
        line = text.count("\n", 0, match.start()) + 1
        if piece.startswith("/*"):
            comment, after = piece, line + piece.count("\n")
        elif piece.strip().startswith("#") or piece.strip() in ('extern "C" {', "}") and not external_closed(directives):
            directives.append((" ".join(piece.split()), line))
        elif piece.strip():
            for token in TOKEN.findall(piece):
                pieces.append((token, line, comment if line > after else ""))
                comment = ""
    expected = iter(PREAMBLE)
    for directive, line in directives:
        wanted = next(expected, None)
        if directive != wanted:
            raise Refused(f"line {line}: preprocessor: {directive}: expected {wanted}")
    return pieces


def external_closed(directives):
    """Returns whether the text is outside the two __cplusplus blocks."""
    return not directives or directives[-1][0] != "#ifdef __cplusplus"


def link_program(header):
    rows = "".join(f"    (any_fn){name},\n" for name in header.functions)
    return (f"""#include "ds.h"
typedef void (*any_fn)(void);
static const any_fn functions[] = {{
{rows}}};
int main(void) {{
  size_t missing = 0;
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) missing += functions[i] == 0;
  return missing != 0 || sizeof functions / sizeof functions[0] != {len(header.functions)};
}}
""")


def layout_program(header):
    lines = []
    for name, struct in header.structs.items():
        lines.append(f'  printf("struct {name} %zu\\n", sizeof({name}));')
        for field in struct["fields"]:
            lines.append(f'  printf("  {field["name"]} {field["type"]} %zu\\n", offsetof({name}, {field["name"]}));')
    for name, enum in header.enums.items():
        lines.append(f'  printf("enum {name} %zu\\n", sizeof({name}));')
        lines += [f'  printf("  {item} %d\\n", (int){item});' for item in enum["values"]]
    return '#include <stdio.h>\n#include "ds.h"\nint main(void) {\n' + "\n".join(lines) + "\n  return 0;\n}\n"


def main():
    path, output = sys.argv[1:]
    try:
        with open(path, encoding="utf-8") as file:
            header = Reader(file.read()).read()
    except Refused as refused:
        print(f"{path}: {refused}")
        return 1
    outputs = {
        "symbols": lambda: "".join(f"{name}\n" for name in sorted(header.functions)),
        "link": lambda: link_program(header),
        "layout": lambda: layout_program(header),
        "json": lambda: json.dumps({k: getattr(header, k) for k in
                                    ("enums", "structs", "opaque", "callbacks", "functions")}, indent=1) + "\n",
    }
    sys.stdout.write(outputs[output]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
