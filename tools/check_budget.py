#!/usr/bin/env python3
"""Checks the size budgets of docs/concepts/design.md over the C++ files of src.

usage: check_budget.py [SRC]
Files: cap 600 lines, p90 <= 350, median <= 120. Functions: cap 100 lines (150 under kernels), p99 <= 60 outside
kernels.
Tokens, so that long lines cannot meet a budget: functions p99 <= 450, modules (a header with its source) p90 <= 3000,
at most 11 a line that has any. Classes: at most 50 methods.
Preprocessor: no #if inside a function, no function-like macro, conditionals in at most one line of 200 (2 are always allowed).
Functions and methods are found by universal-ctags.
"""
import collections
import pathlib
import re
import subprocess
import sys

FUNCTION_TOKENS, MODULE_TOKENS, LINE_TOKENS = 450, 3000, 11
METHODS = 50
# COMMENT matches a comment or a literal; its group is the literal, which is kept. TOKEN matches a token.
COMMENT = re.compile(r'//[^\n]*|/\*(?:.|\n)*?\*/|(R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\')')
TOKEN = re.compile(r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|[A-Za-z_]\w*|\d[\w.\']*|<<=|>>=|<=>|->\*|\.\.\.|'
                   r'::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w]')
FILE_CAP, FILE_P90, FILE_MEDIAN = 600, 350, 120
FUNCTION_CAP, KERNEL_CAP, FUNCTION_P99 = 100, 150, 60
CONDITIONAL = re.compile(r"\s*#\s*(?:if|ifdef|ifndef|elif)\b")
FUNCTION_MACRO = re.compile(r"\s*#\s*define\s+\w+\(")
# This header has a macro that declares device functions; a function cannot do this.
DECLARES = {"kernels/cuda/entry.h"}


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def without_comments(text):
    """Returns the same lines without their comments."""
    return COMMENT.sub(lambda m: m.group(1) or re.sub(r"[^\n]", "", m.group(0)), text)


def tags(source, names, kinds, fields):
    return subprocess.run(
        ["ctags", "-f", "-", "-n", "--sort=no", "--languages=C++", "--langmap=C++:.cpp.h.c.cu", f"--c++-kinds={kinds}",
         f"--fields=+{fields}", "-L", "-"],
        input="\n".join(names), cwd=source, capture_output=True, text=True, check=True).stdout


def methods(source, names):
    """Counts the methods that the classes of headers declare."""
    listing = tags(source, (n for n in names if n.endswith(".h")), "pf", "s")
    return collections.Counter(re.findall(r"\t(?:class|struct):(\S+)", listing))


def check_tokens(texts, found, classes):
    plain = {name: without_comments("\n".join(lines)) for name, lines in texts.items()}
    counts = {name: len(TOKEN.findall(text)) for name, text in plain.items()}
    modules = {}
    for name, count in counts.items():
        module = re.sub(r"(-inl)?\.[a-z]+$", "", name)
        modules[module] = modules.get(module, 0) + count
    if (p90 := quantile(modules.values(), 0.9)) > MODULE_TOKENS:
        yield f"modules: 90% quantile is {p90} tokens, limit {MODULE_TOKENS}"
    lines = {name: text.split("\n") for name, text in plain.items()}
    filled = sum(1 for text in lines.values() for line in text if line.strip())
    if (each := sum(counts.values()) / max(1, filled)) > LINE_TOKENS:
        yield f"lines: {each:.1f} tokens a line, limit {LINE_TOKENS}"
    sizes = [len(TOKEN.findall("\n".join(lines[path][first - 1:last]))) for path, _, first, last in found]
    if (p99 := quantile(sizes, 0.99)) > FUNCTION_TOKENS:
        yield f"functions: 99% quantile is {p99} tokens, limit {FUNCTION_TOKENS}"
    for name, count in sorted(classes.items()):
        if count > METHODS:
            yield f"{name}: {count} methods, cap {METHODS}"


def functions(source, names):
    """Yields (file, name, first line, last line) of every function definition."""
    for line in tags(source, names, "f", "e").splitlines():
        name, path, first = line.split("\t")[:3]
        last = re.search(r"\tend:(\d+)", line)
        if last:
            yield path, name, int(first.split(";")[0]), int(last.group(1))


def check_files(lengths):
    for name, length in lengths.items():
        if length > FILE_CAP:
            yield f"{name}: {length} lines, cap {FILE_CAP}"
    for share, limit in ((0.9, FILE_P90), (0.5, FILE_MEDIAN)):
        found = quantile(lengths.values(), share)
        if found > limit:
            yield f"files: {share:.0%} quantile is {found} lines, limit {limit}"


def check_functions(found):
    ordinary = []
    for path, name, first, last in found:
        length = last - first + 1
        kernel = path.startswith("kernels/")
        cap = KERNEL_CAP if kernel else FUNCTION_CAP
        if length > cap:
            yield f"{path}:{first}: {name} has {length} lines, cap {cap}"
        if not kernel:
            ordinary.append(length)
    longest = quantile(ordinary, 0.99)
    if longest > FUNCTION_P99:
        yield f"functions: 99% quantile is {longest} lines, limit {FUNCTION_P99}"


def check_preprocessor(texts, found):
    bodies = {}
    for path, name, first, last in found:
        bodies.setdefault(path, []).append((first, last, name))
    conditionals = 0
    for path, lines in texts.items():
        for number, line in enumerate(lines, 1):
            if FUNCTION_MACRO.match(line) and path not in DECLARES:
                yield f"{path}:{number}: function-like macro: {line.strip()}"
            if not CONDITIONAL.match(line):
                continue
            conditionals += 1
            for first, last, name in bodies.get(path, []):
                if first <= number <= last:
                    yield f"{path}:{number}: {line.strip()} inside {name}"
    total = sum(map(len, texts.values()))
    if conditionals > max(2, total / 200):
        yield f"preprocessor: {conditionals} conditionals in {total} lines, limit one in 200"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "src")
    names = sorted(p.relative_to(source).as_posix() for p in source.rglob("*") if p.suffix in (".h", ".cpp", ".c", ".cu"))
    texts = {n: (source / n).read_text(encoding="utf-8").splitlines() for n in names}
    found = list(functions(source, names))
    complaints = [*check_files({n: len(t) for n, t in texts.items()}), *check_functions(found),
                  *check_tokens(texts, found, methods(source, names)), *check_preprocessor(texts, found)]
    lengths = [last - first + 1 for _, _, first, last in found]
    print("\n".join(complaints) if complaints else
          f"budget: ok ({len(names)} files, median {quantile([len(t) for t in texts.values()], 0.5)} lines; "
          f"{len(found)} functions, p99 {quantile(lengths, 0.99)} lines)")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
