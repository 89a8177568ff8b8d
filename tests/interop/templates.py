#!/usr/bin/env python3
"""Compares random chat templates with Transformers (./run interop templates [NUMBER [SEED]]).

Each template is drawn from the constructs that libds documents (docs/reference/data.md). `libds tokenize` and
apply_chat_template render it with the same tokenizer, and the tokens must be equal. libds must refuse every template that
Transformers refuses. libds may refuse more templates, but only for the documented reasons in REFUSED. The program counts
these refusals and the constructs that both accept.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBDS = ROOT / "build" / "bin" / "libds"
TOKENIZER = ROOT / "tests" / "data" / "tokenizers" / "gpt2"

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Why?\n"},
            {"role": "assistant", "content": "Because \u00e9 < 3 & 'so'."}, {"role": "user", "content": "Thanks"}]
VARIABLES = {"nums": [3, 1, 2], "words": ["b", "A", "c", "b"], "d": {"k": "v", "n": [1, 2], "items": 5}, "s": "H\u00e9 b\tc",
             "e": "", "f": False, "t": True, "none": None, "x": 2.5, "n": 7, "huge": 1e300, "vast": 2 ** 62, "deep": {"a": {"b": [{"c": 1}, {"c": None}]}},
             "ms": [{"role": "user", "c": "hi"}, {"role": "tool", "c": None}, {"role": "user"}]}
# Words of messages by which libds refuses a template that Python renders. The reasons are generators and other Python objects
# shown as text, results that are too large, and errors that Python does not notice because a generator is never read or
# because jinja2 folds a constant.
REFUSED = ("cannot be shown", "read a second time", "is unsupported", "64 bits", "cannot be iterated", "cannot be sliced", "unique of a")

# For each kind of value: expressions, and filters that accept it, each with the kind of its result.
ATOMS = {
    "list": ["nums", "words", "ms", "messages", "deep.a.b", "range(4)", "range(0)", "range(1, 9, 3)", "[]", "(1, 'a')", "[none, 'q']",
             "d.n", "words[1:]", "(3,)", "[n, n, x]", "d.items()", "d.keys()", "d.values()"],
    "text": ["s", "e", "'7'", "'1e3'", "'\u00aa\u2160\u01c5\u00df'[n % 5:]", "'\u2171'", "s[::-1]",
             "'1e400'", "'-1e-400'", "'\u0663.5'", "' \uff17\u00a0'", "'+-5'", "'nan(1)'", "'inf'", "'1\u0667'", "('9' * 30)", "'\u001c5'",
             "'a\\n\"b'", "messages[0].content", "messages[-1]['content']", "ms[-1]['role']", "words[1]"],
    "number": ["x", "n", "-3", "0", "1.0", "1e20", "nums[0]", "d['items']", "n ** 2", "t", "f", "9007199254740993", "9007199254740992.0",
               "9223372036854775807", "9223372036854775808.0", "1e308", "1e-320", "-8.0", "huge", "-huge", "vast", "-0.0"],
    "mapping": ["d", "ms[0]", "{}", "{'a': 1, 'b': [n]}", "dict(z=1, y=e)", "deep['a']", "messages[1]"],
    "any": ["none", "missing", "ms[1].c", "loop", "bos_token", "d.zz", "f", "t"]}
FILTERS = {
    "list": [("map('string')", "list"), ("map(attribute='role')", "list"), ("map(attribute='c', default='z')", "list"), ("select", "list"),
             ("select('odd')", "list"), ("select('string')", "list"), ("reject", "list"), ("reject('none')", "list"),
             ("selectattr('role', 'equalto', 'user')", "list"), ("selectattr('c')", "list"), ("rejectattr('c', 'none')", "list"),
             ("rejectattr('role', 'defined')", "list"), ("unique", "list"), ("list", "list"), ("sort", "list"), ("reverse", "list"),
             ("first", "any"), ("last", "any"), ("length", "number"), ("join('-')", "text"), ("join", "text"),
             ("join(', ', attribute='role')", "text"), ("min", "any"), ("max", "any"), ("sum", "number"), ("list | tojson", "text"),
             ("count", "number"), ("sort(reverse=true)", "list"), ("sort(attribute='role')", "list"), ("map('length')", "list"),
             ("map('first')", "list"), ("map('int')", "list"), ("map('upper') | list", "list"), ("string", "text"),
             ("map(attribute='content') | list", "list"), ("reject('in', [1, 'b']) | list", "list"), ("default('D')", "list")],
    "text": [("upper", "text"), ("trim", "text"), ("trim('b')", "text"), ("lower", "text"), ("capitalize", "text"), ("length", "number"),
             ("indent", "text"), ("indent(2, true)", "text"), ("replace('b', 'X')", "text"), ("replace('', '-')", "text"), ("int", "number"),
             ("int(4)", "number"), ("float", "number"), ("first", "text"), ("last", "text"), ("list", "list"), ("reverse", "text"),
             ("tojson", "text"), ("string", "text"), ("default('D', true)", "text"), ("d('E')", "text"), ("unique | list", "list"),
             ("sort | join", "text"), ("map('upper') | join", "text")],
    "number": [("int", "number"), ("float", "number"), ("abs", "number"), ("round", "number"), ("round(1)", "number"), ("string", "text"),
               ("tojson", "text"), ("default('D')", "number"), ("default('D', true)", "any")],
    "mapping": [("items", "list"), ("dictsort", "list"), ("tojson", "text"), ("tojson(indent=2)", "text"), ("length", "number"),
                ("list", "list"), ("string", "text"), ("items | list", "list"), ("first", "text"), ("default('D', true)", "mapping")],
    "any": [("default('D')", "any"), ("default('D', true)", "text"), ("string", "text"), ("list", "list"), ("int", "number")]}
TESTS = ["string", "sequence", "iterable", "mapping", "lower", "upper", "number", "none", "defined", "undefined", "odd", "even", "true",
         "false", "boolean", "integer", "float", "callable", "divisibleby(2)", "eq(1)", "gt(1)", "in([1, 'b'])", "sameas(none)", "ne('a')"]
METHODS = {
    "text": [("strip()", "text"), ("upper()", "text"), ("split()", "list"), ("split(' ')", "list"), ("split('b', 1)", "list"),
             ("startswith('H')", "any"), ("endswith('c')", "any"), ("replace('b', 'Q')", "text"), ("lstrip('H')", "text"),
             ("rstrip()", "text"), ("title()", "text"), ("find('b')", "number"), ("rfind('b')", "number"), ("count('b')", "number"),
             ("isalpha()", "any"), ("splitlines()", "list"), ("removeprefix('H')", "text"), ("join(['p', 'q'])", "text"),
             ("isdigit()", "any"), ("rsplit('b', 1)", "list"), ("lower()", "text"), ("capitalize()", "text")],
    "mapping": [("get('k')", "any"), ("get('zz', 1)", "number"), ("keys() | list", "list"), ("items() | list", "list"),
                ("values() | list", "list")],
    "list": [("count('b')", "number"), ("index('b')", "number")], "number": [], "any": []}
OPERATORS = {"number": [("+", "number"), ("-", "number"), ("*", "number"), ("/", "number"), ("//", "number"), ("%", "number"),
                        ("<", "any"), (">=", "any"), ("==", "any"), ("~", "text"), ("and", "number"), ("<=", "any"), (">", "any"),
                        ("!=", "any")],
             "text": [("+", "text"), ("~", "text"), ("in", "any"), ("not in", "any"), ("==", "any"), ("<", "any"), ("or", "text")],
             "list": [("+", "list"), ("==", "any"), ("!=", "any"), ("and", "list"), ("or", "list")],
             "mapping": [("==", "any"), ("~", "text"), ("or", "mapping")], "any": [("==", "any"), ("and", "any"), ("or", "any"), ("~", "text")]}
POWERS = ["2", "3", "0", "-1", "-3", "0.5", "-0.5", "1e3", "-1e3", "x", "t", "1e-3"]


class Drawn:
    """A random template, and the kinds of constructs in it. Most values are of a suitable kind; some are of any kind."""

    def __init__(self, random_numbers):
        self.random = random_numbers
        self.kinds = set()
        self.text = "Text: " + "".join(self.statement(0) for _ in range(self.random.randint(1, 3)))

    def pick(self, kind, choices):
        one, gives = self.random.choice(choices)
        self.kinds.add(f"{kind} {one.split('(')[0].split(' ')[0]}")
        return one, gives

    def expression(self, depth, kind=None):
        """Returns the text of an expression, and the kind of its value."""
        kind = kind or self.random.choice(["list", "list", "text", "text", "number", "mapping", "any"])
        part = self.random.random()
        if depth > 3 or part < 0.3:
            return self.random.choice(ATOMS[kind]), kind
        inner, has = self.expression(depth + 1, kind)
        if self.random.random() < 0.04:
            # This kind may be unsuitable.
            has = self.random.choice(list(ATOMS))
        if part < 0.65:
            one, gives = self.pick("filter", FILTERS[has])
            text = f"{inner} | {one}"
            return (text if self.random.random() < 0.5 else f"({text})"), gives
        if part < 0.67 and has == "number":
            # Larger exponents could keep Python busy.
            self.kinds.add("operator **")
            return f"({inner}) ** ({self.random.choice(POWERS)})", "number"
        if part < 0.71:
            index = self.random.choice(["0", "-1", "1:", "::-1", "9", ":2", "-2:"] if has in ("list", "text") else ["'k'", "'zz'"])
            return f"({inner})[{index}]", has if ":" in index else "any"
        if part < 0.78 and METHODS[has]:
            one, gives = self.pick("method", METHODS[has])
            return f"({inner}).{one}", gives
        if part < 0.87:
            one, gives = self.pick("operator", OPERATORS[has])
            return f"({inner}) {one} ({self.expression(depth + 1, has)[0]})", gives
        if part < 0.91:
            return f"('y' if {inner} else {self.expression(depth + 1)[0]})", "text"
        if part < 0.97:
            test = self.random.choice(TESTS)
            self.kinds.add(f"test {test.split('(')[0]}")
            return f"(({inner}) is {test})", "any"
        return f"not ({inner})", "any"

    def value(self, depth, kind=None):
        return self.expression(depth, kind)[0]

    def dash(self):
        return self.random.choice(["", "", "-"])

    def tag(self, text):
        return "{%" + self.dash() + f" {text} " + self.dash() + "%}" + self.random.choice(["", "", "\n", " \n  "])

    def statement(self, depth):
        part = self.random.random()
        if part < 0.4 or depth > 2:
            return "{{" + self.dash() + f" {self.value(0)} " + self.dash() + "}}"
        body = self.statement(depth + 1)
        if part < 0.55:
            self.kinds.add("tag for")
            where = f" if {self.value(2)}" if self.random.random() < 0.2 else ""
            shown = self.random.choice(["{{ i }}", "{{ loop.index }}{{ loop.last }}", "{{ loop.length }}", "{{ i.role }}",
                                        "{{ loop.previtem }}", "{% if loop.first %}{% continue %}{% endif %}{{ loop.index0 }}",
                                        "{% if loop.index > 2 %}{% break %}{% endif %}{{ i }}", "{{ loop.cycle('o', 'e') }}"])
            otherwise = "{% else %}E" if self.random.random() < 0.4 else ""
            return self.tag(f"for i in {self.value(1, 'list')}{where}") + shown + body + otherwise + self.tag("endfor")
        if part < 0.68:
            self.kinds.add("tag if")
            return (self.tag(f"if {self.value(1)}") + body + self.tag(f"elif {self.value(2)}") + "L" + self.tag("else") + "F"
                    + self.tag("endif"))
        if part < 0.8:
            self.kinds.add("tag set")
            return self.tag(f"set g = {self.value(1, 'list')}") + "{{ g | list }}{% if g %}1{% endif %}"
        if part < 0.86:
            self.kinds.add("tag set of a block")
            return self.tag("set h") + body + self.tag("endset") + "{{ h | trim }}{{ h | length }}"
        if part < 0.92:
            self.kinds.add("namespace")
            return ("{% set ns = namespace(c=0) %}" + self.tag(f"for j in {self.value(2, 'list')}") + "{% set ns.c = ns.c + 1 %}"
                    + self.tag("endfor") + "{{ ns.c }}")
        if part < 0.97:
            self.kinds.add("tag macro")
            name = f"m{self.random.randrange(10 ** 6)}"
            macro = f"{{% macro {name}(a, b=2) %}}[{{{{ a }}}}{{{{ b }}}}]{{% endmacro %}}"
            return (macro if depth == 0 else "") + f"{{{{ {name}({self.value(2)}) }}}}"
        self.kinds.add("comment and raw")
        return "{# " + "a comment #}{% raw %}{{ raw }}{% endraw %}\n"


def expected(tokenizer, template):
    """Returns the ids, or None if Transformers refuses the template or its text contains the address of a Python
    object."""
    try:
        text = tokenizer.apply_chat_template(MESSAGES, chat_template=template, tokenize=False, **json.loads(json.dumps(VARIABLES)))
    except Exception:  # jinja2 raises its own errors and Python's
        return None
    return None if " at 0x" in text else tokenizer(text, add_special_tokens=False)["input_ids"]


def tokens_of(path):
    """Returns the ids of a token file whose tokens are all targets (src/data/token_file.cpp)."""
    content = path.read_bytes()
    width, count = np.frombuffer(content, "<u4", 1, 12)[0], np.frombuffer(content, "<i8", 1, 24)[0]
    marked = np.frombuffer(content, "<u4", 1, 104)[0]
    return (np.frombuffer(content, f"<u{width}", count, 128) >> marked).tolist()


def rendered(folder, number, template):
    """Returns the ids that libds computes, or its message."""
    source, out = folder / f"{number}.jinja", folder / f"{number}.tokens"
    source.write_text(template, encoding="utf-8")
    run = subprocess.run([LIBDS, "tokenize", "--data", folder / "line.jsonl", "--format", "jsonl", "--tokenizer", TOKENIZER,
                          "--chat-template", source, "--loss-on", "all", "--out", out], capture_output=True, text=True, timeout=60,
                         check=False, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if run.returncode < 0:
        return f"ended by signal {-run.returncode}"
    return tokens_of(out) if run.returncode == 0 else run.stderr.strip().splitlines()[-1]


def verdict(want, got):
    """Compares the two results for one template."""
    if isinstance(got, list):
        return "same" if got == want else "another text" if want is not None else "rendered what Transformers refuses"
    if got.startswith("ended by"):
        return got
    if want is None:
        return "both refuse"
    return "refused" if any(words in got for words in REFUSED) else "refused without a documented reason"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    warnings.simplefilter("ignore")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    drawn = [Drawn(random.Random(f"{seed} {number}")) for number in range(count)]
    found, kinds, shown = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = pathlib.Path(name)
        (folder / "line.jsonl").write_text(json.dumps({"messages": MESSAGES, "chat_template_kwargs": VARIABLES}) + "\n")
        results = pool.map(lambda pair: rendered(folder, *pair), enumerate(one.text for one in drawn))
        for number, (one, got) in enumerate(zip(drawn, results)):
            want = expected(tokenizer, one.text)
            what = verdict(want, got)
            found[what] += 1
            if what == "same":
                kinds.update(one.kinds)
            elif what not in ("both refuse", "refused") and shown < 20:
                shown += 1
                text = tokenizer.decode(got) if isinstance(got, list) else got
                print(f"FAIL template {number}: {what}\n  {one.text!r}\n  libds: {text!r}\n"
                      f"  Transformers: {tokenizer.decode(want) if want is not None else 'refuses'!r}")
    for what, times in found.most_common():
        print(f"{times:6} {what}")
    print(f"{len(kinds)} kinds of constructs are in texts that are the same; the rarest: "
          + ", ".join(f"{kind} {times}" for kind, times in kinds.most_common()[:-6:-1]))
    good = found["same"] + found["both refuse"] + found["refused"]
    print(f"templates: {good} of {count} as Transformers or refused with a documented reason")
    return 0 if good == count and found["same"] > count / 10 else 1


if __name__ == "__main__":
    sys.exit(main())
