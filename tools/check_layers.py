#!/usr/bin/env python3
"""Checks the include edges between the folders of src against the layers of docs/concepts/design.md.

usage: check_layers.py [SRC] [--edges]   (--edges: also print every edge found)
A folder may include itself, the folders that its row names, and the headers of include/. Inside a folder, NAME.h, NAME-
inl.h and NAME.cpp are one part. Parts must not include each other in a cycle, except those of LOOPS.
"""
import pathlib
import re
import sys

CORE = {"core/base", "core/config", "core/graph", "core/program", "core/device"}
# Compile side: each folder may include core, nn, optim and the folders before it, but never the run side.
COMPILE = ["zero", "update", "offload", "passes", "compile"]
# Run side: these folders include only core. Others of the run side may include these, for example data and monitor,
# which open files through io.
RUN = {"kernels", "comm", "io"}

ALLOWED = {
    "core/base": set(),
    "core/device": {"core/base"},
    "core/config": {"core/base"},
    "core/graph": {"core/base"},
    "core/program": CORE,
    "nn": CORE,
    "optim": CORE,
    **{row: CORE for row in RUN},
    **{row: CORE | {"nn", "optim"} | set(COMPILE[:i]) for i, row in enumerate(COMPILE)},
    "text": {"core/base", "io"},
    "data": CORE | {"io"},
    "monitor": CORE | {"io"},
    "exec": CORE | {"kernels", "comm", "io"},
    "machine": set(),
    "launch": {"machine"},
    "cli": {"core/base", "launch"},
}
# Folders in which both sides meet, from low to high.
MEET = ["checkpoint", "engine", "generation", "run", "diagnostics", "api"]
BELOW = CORE | {"nn", "optim", "exec", "data", "monitor"} | RUN | set(COMPILE)
for position, row in enumerate(MEET):
    ALLOWED[row] = {"machine"} | BELOW | set(MEET[:position])

# Parts that include each other, and the reason.
LOOPS = {
    "the rows of a table are about the type whose function looks them up": [
        {"core/graph/graph", "core/graph/ops"},
    ],
    "a function that makes a type chooses among files that each make one kind of it": [
        {"nn/models/hf", "nn/models/hf_families"},
        {"text/tokenizer", "text/tokenizers/kinds"},
        {"text/tokenizers/bpe", "text/tokenizers/word_model", "text/tokenizers/word_piece"},
    ],
}

PUBLIC = {"ds.h", "ds_plugin.h", "ds_ops.h"}
WITHOUT_PUBLIC = {"launch", "machine"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def folder_of(path):
    parts = path.split("/")
    if parts[0] == "core":
        return "/".join(parts[:2])
    return parts[0]


def edges(source):
    """Yields (file, including folder, included path) of every quoted include; paths are relative to src."""
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".c", ".cu"):
            continue
        name = path.relative_to(source).as_posix()
        for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
            yield name, folder_of(name), included


def part_of(path):
    return re.sub(r"(-inl)?\.[a-z]+$", "", path)


def loops(source):
    """Yields sets of parts that include each other in a cycle."""
    below = {}
    for name, _, included in edges(source):
        below.setdefault(part_of(name), set())
        if included not in PUBLIC and part_of(included) != part_of(name):
            below[part_of(name)].add(part_of(included))
    reach = {}
    for start in below:
        reach[start], waiting = set(), [start]
        while waiting:
            for part in below.get(waiting.pop(), ()):
                if part not in reach[start]:
                    reach[start].add(part)
                    waiting.append(part)
    for start in sorted(below):
        loop = {part for part in reach[start] if start in reach.get(part, ())}
        if loop and start == min(loop):
            yield loop


def loop_complaints(source):
    known = [parts for rows in LOOPS.values() for parts in rows]
    found = list(loops(source))
    for loop in found:
        if loop not in known:
            yield f"{', '.join(sorted(loop))}: include each other in a circle"
    if (source / "README.md").is_file():  # not a fixture
        for loop in (loop for loop in known if loop not in found):
            yield f"tools/check_layers.py: {', '.join(sorted(loop))} are listed in vain"


def complaints(source):
    yield from loop_complaints(source)
    for name, folder, included in edges(source):
        if folder not in ALLOWED:
            yield f"{name}: folder {folder} has no row in tools/check_layers.py"
        elif included in PUBLIC:
            if folder in WITHOUT_PUBLIC:
                yield f"{name}: {folder} includes {included}; it may not use the library"
        elif not (source / included).is_file():
            yield f'{name}: "{included}" is no file relative to src'
        elif folder_of(included) not in ALLOWED[folder] | {folder}:
            yield f'{name}: {folder} may not include "{included}"'


def main():
    arguments = [a for a in sys.argv[1:] if a != "--edges"]
    source = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent / "src")
    if "--edges" in sys.argv:
        for edge in sorted({(f, folder_of(i)) for _, f, i in edges(source) if folder_of(i) != f}):
            print(*edge)
    found = sorted(set(complaints(source)))
    print("\n".join(found) if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
