#!/usr/bin/env python3
"""Makes reference pages and typed helpers in every language from the operation schema.

usage: op_helpers.py --renew LIBRARY    writes docs/reference/ops.json, from ds_op_schema() of that libds.so
       op_helpers.py --check LIBRARY    compares it; if it differs, prints a diff and exits with 1

tools/bindings.py makes the other files from docs/reference/ops.json, without a library: files() returns them all.
"""
import ctypes
import difflib
import itertools
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = "docs/reference/ops.json"
PAGE = "docs/reference/ops.md"
BEGIN, END = "<!-- operations: written by tools/bindings.py -->", "<!-- end of operations -->"


def schema_of(library):
    """Returns the text of ds_op_schema()."""
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
    """Returns the page with its operations as in the schema."""
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


# ---- what helpers of all languages share


class Helper:
    """One form of an operation as a function: its operands, then its attributes; required parameters come first."""

    def __init__(self, op, form):
        self.op, self.form = op["name"], form["name"]
        self.name = f"{self.op}_{self.form}" if self.form else self.op
        self.doc = op["doc"] + ("" if op["differentiable"] else " Not differentiable.")
        self.operands = form["operands"]
        # The order of parameters in languages where optional ones come last.
        self.in_order = sorted(form["operands"], key=lambda operand: operand["optional"])
        self.results = form["results"]
        self.required = [a for a in op["attributes"] if a["required"]]
        self.optional = [a for a in op["attributes"] if not a["required"]]
        self.attributes = self.required + self.optional

    def one_result(self):
        return len(self.results) == 1 and not repeats(self.results[0])

    def list(self):
        """Returns the name of the operand that is a list, or None."""
        return next((operand["name"] for operand in self.operands if repeats(operand)), None)


def repeats(operand):
    return operand["most"] > 1


def described(parameter):
    """Returns the meaning of a parameter in one line."""
    if "type" in parameter:
        return f"{parameter['type']}, {parameter['doc']}"
    if "words" in parameter:
        return f"{parameter['doc']} ({', '.join(parameter['words'])})"
    return parameter["doc"]


def returned(helper):
    return "; ".join(f"`{result['name']}` {described(result)}" for result in helper.results)


def fold(text, first="", rest=None, width=120):
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=first if rest is None else rest,
                         break_long_words=False, break_on_hyphens=False)


def options_name(op):
    return "".join(part.capitalize() for part in op.split("_"))


# ---- C

C_TYPES = {"integer": "int64_t", "flag": "int32_t", "number": "double", "text": "const char*", "one_of": "const char*"}
SETTERS = {"integer": "integer", "flag": "integer", "number": "number", "text": "text", "one_of": "text"}


def c_default(attr):
    """Returns the value of an attribute that is not given."""
    if attr["default"] is None:
        return {"number": "NAN", "text": "NULL"}.get(attr["kind"], "DS_OPS_NOT_GIVEN")
    return default_text(attr)


def c_given(attr):
    """Returns the condition under which an attribute is given."""
    name = f"options->{attr['name']}"
    if isinstance(attr["default"], str):
        return f"{name} && strcmp({name}, {default_text(attr)}) != 0"
    if attr["default"] is None and attr["kind"] == "number":
        return f"{name} == {name}"
    return name if c_default(attr) == "NULL" else f"{name} != {c_default(attr)}"


def c_set(attr, value):
    return f'ds_ops_{SETTERS[attr["kind"]]}(&node, "{attr["name"]}", {value});'


def c_options(op):
    optional = [a for a in op["attributes"] if not a["required"]]
    if not optional:
        return []
    kind = f"ds_{op['name']}_options"
    out = ["", f"/** Attributes of {op['name']} that may be left out. */", f"typedef struct {kind} {{"]
    for attr in optional:
        note = "not given by default" if attr["default"] is None else f"{default_text(attr)} by default"
        out += [fold(f"{described(attr)}; {note} */", "  /** ", "   * "), f"  {C_TYPES[attr['kind']]} {attr['name']};"]
    out += [f"}} {kind};", "", f"static inline {kind} {kind}_init(void) {{", f"  {kind} options;"]
    out += [f"  options.{attr['name']} = {c_default(attr)};" for attr in optional]
    return [*out, "  return options;", "}"]


def c_doc(helper):
    parts = [helper.doc]
    for operand in helper.operands:
        absent = "[nullable: -1] " if operand["optional"] else ""
        parts.append(f"@param {operand['name']} {absent}{described(operand)}")
    parts += [f"@param {attr['name']} {described(attr)}" for attr in helper.required]
    parts += ["@param options [nullable]"] if helper.optional else []
    parts.append("@param out [out] " + "; then ".join(f"{r['name']}: {described(r)}" for r in helper.results) + " */")
    return [fold(part, "/** " if i == 0 else " * ", " * ") for i, part in enumerate(parts)]


def c_helper(helper):
    parameters, lines = ["ds_graph* graph"], []
    for operand in helper.operands:
        name = operand["name"]
        if repeats(operand):
            parameters += [f"const int32_t* {name}", f"size_t {name}_count"]
            lines.append(f"  for (i = 0; i < {name}_count; ++i) ds_ops_operand(&node, {name}[i]);")
        else:
            parameters.append(f"int32_t {name}")
            condition = f"if ({name} >= 0) " if operand["optional"] else ""
            lines.append(f"  {condition}ds_ops_operand(&node, {name});")
    for attr in helper.required:
        parameters.append(f"{C_TYPES[attr['kind']]} {attr['name']}")
        lines.append("  " + c_set(attr, attr["name"]))
    if helper.optional:
        parameters.append(f"const ds_{helper.op}_options* options")
        lines.append("  if (options) {")
        lines += [f"    if ({c_given(attr)}) {c_set(attr, 'options->' + attr['name'])}" for attr in helper.optional]
        lines.append("  }")
    head = fold(f"static inline ds_status ds_op_{helper.name}({', '.join([*parameters, 'int32_t* out'])}) {{", "", "    ")
    declared = ["  size_t i;"] if helper.list() else []
    return ["", *c_doc(helper), head, *declared, "  ds_ops_node node;", "  ds_ops_begin(&node);", *lines,
            f'  return ds_ops_end(&node, graph, "{helper.op}", out);', "}"]


def c(schema, template):
    out = []
    for op in schema["operations"]:
        out += c_options(op)
        for form in op["forms"]:
            out += c_helper(Helper(op, form))
    return template.replace("/* OPERATIONS */\n", "\n".join([*out, ""]))


# ---- Python

PYTHON_TYPES = {"integer": "int", "flag": "bool", "number": "float", "text": "str"}


def python_attribute(attr):
    kind = "Literal[" + ", ".join(f'"{w}"' for w in attr["words"]) + "]" if "words" in attr else PYTHON_TYPES[attr["kind"]]
    if attr["required"]:
        return f"{attr['name']}: {kind}"
    if attr["default"] is None:
        return f"{attr['name']}: Optional[{kind}] = None"
    return f"{attr['name']}: {kind} = {bool(attr['default']) if attr['kind'] == 'flag' else default_text(attr)}"


def python_helper(helper):
    parameters = ["graph"]
    for operand in helper.in_order:
        parameters.append(operand["name"] + (": Sequence" if repeats(operand) else " = None" if operand["optional"] else ""))
    if helper.attributes:
        parameters += ["*", *map(python_attribute, helper.attributes)]
    operands = ", ".join(f'"{o["name"]}": {o["name"]}' for o in helper.operands)
    results = "None" if repeats(helper.results[0]) else str(len(helper.results))
    optional = [o["name"] for o in helper.operands if o["optional"]]
    several = [f'several="{helper.list()}"'] if helper.list() else []
    call = ", ".join(["graph", f'"{helper.op}"', f"{{{operands}}}", results,
                      *([f"optional={json.dumps(optional)}"] if optional else []), *several,
                      *(f"{a['name']}={a['name']}" for a in helper.attributes)])
    out = ["", "", "@checked", fold(f"def {helper.name}({', '.join(parameters)}):", "", "        "),
           fold(f'"""{helper.doc}', "    "), "", "    Args:", "        graph: the graph that the operation is added to"]
    out += [fold(f"{p['name']}: {described(p)}", "        ", "            ") for p in helper.in_order + helper.attributes]
    out += ["", "    Returns:"]
    out += [fold(f"{r['name']}: {described(r)}", "        ", "            ") for r in helper.results]
    return [*out, '    """', fold(f"return _add({call})", "    ", "                ")]


def python(schema, template):
    names, defaults, out = [], [], []
    for op in schema["operations"]:
        given = {a["name"]: a["default"] for a in op["attributes"] if not a["required"] and a["default"] is not None}
        if given:
            defaults.append(fold(f'"{op["name"]}": {json.dumps(given)},', "    ", "        "))
        for form in op["forms"]:
            helper = Helper(op, form)
            names.append(f'"{helper.name}"')
            out += python_helper(helper)
    template = template.replace("# NAMES\n", fold("__all__ = [" + ", ".join(names) + "]", "", "           ") + "\n")
    template = template.replace("# DEFAULTS\n", "\n".join([*defaults, ""]))
    return template + "\n".join([*out, ""])[1:]


# ---- Rust

RUST_TYPES = {"integer": "i64", "flag": "bool", "number": "f64", "text": "&str", "one_of": "&str"}


def rust_doc(text, indent=""):
    first = indent + "/// "
    return fold(re.sub(r"([\[\]<])", r"\\\1", text), first, first + ("  " if text.startswith("- ") else ""))


def rust_default(attr):
    if attr["default"] is None:
        return "None"
    return str(bool(attr["default"])).lower() if attr["kind"] == "flag" else default_text(attr)


def rust_set(attr, value):
    value = {"integer": value, "flag": f"i64::from({value})"}.get(attr["kind"], value)
    return f'attrs.{SETTERS[attr["kind"]]}("{attr["name"]}", {value});'


def rust_member_type(attr):
    kind = RUST_TYPES[attr["kind"]].replace("&str", "&'a str")
    return kind if attr["default"] is not None else f"Option<{kind}>"


def rust_options(op):
    optional = [a for a in op["attributes"] if not a["required"]]
    if not optional:
        return []
    name, lent = options_name(op["name"]), any(RUST_TYPES[a["kind"]] == "&str" for a in optional)
    lifetime, generic = ("<'a>", "<'_>") if lent else ("", "")
    plain = all(rust_default(a) in ("None", "false", "0", "0.0") for a in optional)  # the derived default
    out = ["", rust_doc(f"Attributes of [`{op['name']}()`] that may be left out.").replace("\\", ""),
           f"#[derive(Clone, Copy, Debug{', Default' if plain else ''})]", f"pub struct {name}{lifetime} {{"]
    for attr in optional:
        out += [rust_doc(described(attr), "    "), f"    pub {attr['name']}: {rust_member_type(attr)},"]
    out.append("}")
    if not plain:
        out += ["", f"impl Default for {name}{generic} {{", "    fn default() -> Self {", f"        {name} {{"]
        out += [f"            {attr['name']}: {rust_default(attr)}," for attr in optional]
        out += ["        }", "    }", "}"]
    out += ["", f"impl {name}{generic} {{", "    fn put(&self, attrs: &mut Attrs) {"]
    for attr in optional:
        member = f"self.{attr['name']}"
        value = "value" if attr["default"] is None else member
        condition = f"let Some(value) = {member}" if attr["default"] is None else f"{member} != {rust_default(attr)}"
        if attr["kind"] == "flag":
            condition = f"!{member}" if attr["default"] else member
        out += [f"        if {condition} {{", f"            {rust_set(attr, value)}", "        }"]
    return [*out, "    }", "}"]


def rust_operands(helper):
    """Returns (lines before the call, the operands in it)."""
    if not any(repeats(o) or o["optional"] for o in helper.operands):
        return [], "&[" + ", ".join(o["name"] for o in helper.operands) + "]"
    plain = list(itertools.takewhile(lambda o: not repeats(o) and not o["optional"], helper.operands))
    rest = helper.operands[len(plain):]
    lines = [f"let mut operands = vec![{', '.join(o['name'] for o in plain)}];"]
    if not plain:
        lines = [f"let mut operands = {rest.pop(0)['name']}.to_vec();"]
    for operand in rest:
        verb = "extend_from_slice" if repeats(operand) else "extend" if operand["optional"] else "push"
        lines.append(f"operands.{verb}({operand['name']});")
    return lines, "&operands"


def rust_helper(helper):
    kinds = {True: "&[Value]", False: "Value"}
    parameters = ["graph: &mut Graph"]
    parameters += [f"{o['name']}: " + ("Option<Value>" if o["optional"] else kinds[repeats(o)]) for o in helper.operands]
    parameters += [f"{a['name']}: {RUST_TYPES[a['kind']]}" for a in helper.required]
    lines, operands = rust_operands(helper)
    lines.append(f"let {'mut ' if helper.attributes else ''}attrs = Attrs::default();")
    lines += [rust_set(a, a["name"]) for a in helper.required]
    if helper.optional:
        parameters.append(f"options: &{options_name(helper.op)}")
        lines.append("options.put(&mut attrs);")
    call = f'attrs.add(graph, "{helper.op}", {operands})'
    if helper.one_result():
        kind = "Value"
        lines.append(call)
    elif repeats(helper.results[0]):
        kind = "Vec<Value>"
        lines += [f"let first = {call}?;", f"Ok((0..{helper.list()}.len()).map(|place| result(first, place)).collect())"]
    else:
        kind = "(" + ", ".join("Value" for _ in helper.results) + ")"
        lines += [f"let first = {call}?;", f"Ok(({', '.join(f'result(first, {i})' for i in range(len(helper.results)))}))"]
    out = ["", rust_doc(helper.doc), "///"]
    out += [rust_doc(f"- `{p['name']}`: {described(p)}") for p in helper.operands + helper.required]
    head = fold(f"pub fn {helper.name}({', '.join(parameters)}) -> Result<{kind}> {{", "", "    ")
    return [*out, "///", rust_doc("Returns " + returned(helper)), head, *("    " + line for line in lines), "}"]


def rust(schema, template):
    out = []
    for op in schema["operations"]:
        out += rust_options(op)
        for form in op["forms"]:
            out += rust_helper(Helper(op, form))
    return template + "\n".join([*out, ""])


# ---- Julia

JULIA_TYPES = {"integer": "Integer", "flag": "Bool", "number": "Real", "text": "AbstractString", "one_of": "AbstractString"}


def julia_default(attr):
    if attr["default"] is None:
        return "nothing"
    return str(bool(attr["default"])).lower() if attr["kind"] == "flag" else default_text(attr)


def julia_text(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")


def julia_keyword(attr):
    kind = JULIA_TYPES[attr["kind"]]
    if attr["required"]:
        return f"{attr['name']}::{kind}"
    return f"{attr['name']}::" + (kind if attr["default"] is not None else f"Union{{{kind},Nothing}}") + f" = {julia_default(attr)}"


def julia_helper(helper):
    parameters = ["g::Graph", *(o["name"] + (" = nothing" if o["optional"] else "") for o in helper.in_order)]
    keywords = "; " + ", ".join(map(julia_keyword, helper.attributes)) if helper.attributes else ""
    operands = ", ".join(o["name"] + ("..." if repeats(o) else "") for o in helper.operands)
    pairs = ", ".join(f'("{a["name"]}", {a["name"]}, {"missing" if a["required"] else julia_default(a)})' for a in helper.attributes)
    call = f'add(g, "{helper.op}", Any[{operands}], Any[{pairs}])'
    if not helper.one_result():
        call = f"results({f'length({helper.list()})' if repeats(helper.results[0]) else len(helper.results)}, {call})"
    shown = ", ".join(["g", *(o["name"] for o in helper.in_order)]) + ("; ..." if helper.attributes else "")
    out = ["", '"""', f"    {helper.name}({shown})", "", fold(julia_text(helper.doc)), ""]
    out += [fold(julia_text(f"- `{p['name']}`: {described(p)}"), "", "  ") for p in helper.in_order + helper.attributes]
    return [*out, "", fold(julia_text("Returns " + returned(helper))), '"""',
            fold(f"{helper.name}({', '.join(parameters)}{keywords}) =", "", "    "), fold(call, "    ", "        ")]


def julia(schema, template):
    out = [line for op in schema["operations"] for form in op["forms"] for line in julia_helper(Helper(op, form))]
    return template.replace("# OPERATIONS\n", "\n".join([*out, ""]))


def files():
    """Returns {path: text} of all files written from the schema. Each language has a template in tools/op_templates."""
    schema = json.loads((ROOT / SCHEMA).read_text())
    template = {kind: (ROOT / "tools" / "op_templates" / f"ops.{kind}.in").read_text() for kind in ("h", "py", "rs", "jl")}
    return {PAGE: page(schema, (ROOT / PAGE).read_text()), "include/ds_ops.h": c(schema, template["h"]),
            "bindings/python/libds/ops.py": python(schema, template["py"]),
            "bindings/rust/ds/src/ops.rs": rust(schema, template["rs"]),
            "bindings/julia/src/ops.jl": julia(schema, template["jl"])}


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
