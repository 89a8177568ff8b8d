#!/usr/bin/env python3
"""Checks the names of the source files of src, and the names that they and the files of tools and tests declare.

usage: check_names.py [SRC]   (SRC: only this folder)
A file NAME.cpp has a header NAME.h in its folder, or is the only source of another header: the one file of the
folder that implements a header without a NAME.cpp. Exceptions are listed below with their reasons. No file has a
name that would fit many files: such a word needs a second one that tells which. No variable, function or type has
a name that would fit anything. No two types of a namespace in ds have the same name, because the linker would
silently keep only one of their destructors.
"""
import collections
import pathlib
import re
import sys

# Words that do not identify a file by themselves.
VAGUE = {"common", "decode", "helpers", "launch", "misc", "record", "report", "text", "tools", "util", "utils"}

# Words that do not identify anything by themselves. In a test, `what` may name the expectation.
EMPTY = {"damage", "said", "stuff", "temp", "thing", "things", "tmp", "what", "why"}
MAY_BE_EMPTY = {"tests": {"what"}}

# Headers with more than one part: their purpose, and the files that implement them.
PARTS = {
    "the face of a folder: a call a file": [
    ],
    "a method of Communicator, or a few that belong together": [
        "comm/collectives/all_gather", "comm/collectives/all_reduce", "comm/collectives/all_to_all", "comm/collectives/barrier", "comm/collectives/broadcast", "comm/collectives/coalesced",
        "comm/collectives/gather", "comm/loan", "comm/collectives/reduce_scatter", "comm/collectives/scatter", "comm/collectives/send", "comm/split", "comm/start",
        "comm/timing", "comm/create",
    ],
    "a plugin, found by its file": ["text/plugin_entry"],
    "a transport, found by its url": ["comm/transport/*", "comm/mpi/mpi", "comm/tcp/tcp"],
    "a noun of ds.h": ["api/*_api"],
    "a command of libds, declared in commands.h": ["cli/*_command", "cli/help", "cli/main", "cli/support"],
    "rows of a table that its header collects": ["core/graph/ops/*", "core/config/*_keys", "core/config/foreign", "nn/models/*"],
    "a table that a lower layer declares, in the first layer that knows all of its rows": ["run/config_sections"],
    "emitters, which a table finds by the kind of program": ["compile/programs/*"],
    "kernels, which only register.cpp names": ["kernels/cpu/*", "kernels/gemm/linear", "kernels/ref/*"],
    "one of several readers or writers of the type in its header": [
        "core/base/json_dump", "core/base/json_parse", "core/config/batch",
        "core/config/precision",
        "core/graph/autodiff", "core/graph/graph_text", "core/program/program_text",
        "core/program/verify", "text/tokenizers/bert_vocabulary", "text/tokenizers/gpt2_pair",
        "machine/host_topology_absent", "text/tokenizers/sentencepiece", "text/tokenizers/sentencepiece_absent",
        "kernels/builtin", "kernels/registry",
    ],
    "one architecture's side of the functions in its header": [
        "diagnostics/peak_loops_arm64", "diagnostics/peak_loops_x86",
    ],
    "a class whose methods fill two files": [
        "comm/shared_wait", "compile/recorded", "engine/delegate_fragments", "engine/delegate_record",
        "exec/chaos", "exec/instruction_launch",
    ],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


TEXT = {  # matches the comments and literals of a language
    ".py": re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'),
    ".cpp": re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*(?:.|\n)*?\*/'),
}
NAME = re.compile(r"(?:\.|->)what\(\)|\b[A-Za-z_]\w*\b")  # what() of std::exception may stay


def empty_names(folder, allowed=frozenset()):
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".h", ".c", ".cpp", ".py") or "fixtures" in path.relative_to(folder).parts:
            continue
        text = TEXT[".py" if path.suffix == ".py" else ".cpp"]
        code = text.sub(lambda m: "\n" * m.group(0).count("\n"), path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.split("\n"), 1):
            for name in NAME.findall(line):
                if name.rstrip("_") in EMPTY - allowed:
                    yield f"{path.relative_to(folder)}:{number}: '{name}' says nothing"


# Matches the beginning of a scope: a namespace, a type that is not a member of another type (Outer::Inner), or any other brace.
SCOPE = re.compile(r"namespace\s*([\w:]*)\s*\{|\b(?:class|struct|union)\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;{()]*)?\{|([{}])")


def types_of(code):
    """Returns full names of the types in a source's named namespaces, without those in functions and other types."""
    scopes = []
    for scope in SCOPE.finditer(code):
        namespace, type_name, brace = scope.groups()
        if brace == "}":
            scopes = scopes[:-1]
            continue
        if type_name and all(scopes):
            yield "::".join([*scopes, type_name])
        scopes.append(namespace or "")  # "": names inside are not visible elsewhere


def equal_types(source):
    places = collections.defaultdict(set)
    for path in sorted(source.rglob("*")):
        if path.suffix in (".h", ".cpp") and "fixtures" not in path.relative_to(source).parts:
            code = TEXT[".cpp"].sub("", path.read_text(encoding="utf-8"))
            for name in types_of(code):
                places[name].add(str(path.relative_to(source)))
    for name, files in sorted(places.items()):
        if len(files) > 1 and name.startswith("ds::"):
            yield f"{name} is a type in {' and in '.join(sorted(files))}"


def complaints(source):
    paths = sorted(p.relative_to(source).with_suffix("") for p in source.rglob("*.cpp"))
    headers = {p.relative_to(source).with_suffix("") for p in source.rglob("*.h")}
    allowed = [entry for entries in PARTS.values() for entry in entries]
    used = set()
    # Maps a header without a source of its name to the sources without a header that include it first.
    implements = {}
    for path in (p for p in paths if p not in headers):
        first = INCLUDE.search((source / f"{path}.cpp").read_text(encoding="utf-8"))
        header = pathlib.Path(first.group(1)).with_suffix("") if first else path
        if header.parent == path.parent and header in headers and header not in paths:
            implements.setdefault(header, []).append(path)
    only = {parts[0] for parts in implements.values() if len(parts) == 1}
    for path in paths:
        if path in headers or path in only:
            continue
        row = next((entry for entry in allowed if path.match(entry) and len(path.parts) == entry.count("/") + 1), None)
        if row is None:
            yield f"{path}.cpp: no {path.name}.h beside it, and not the only part of another header"
        used.add(row)
    for path in sorted(headers | set(paths)):
        if path.name in VAGUE:
            yield f"{path}: '{path.name}' does not say which"
    for entry in allowed:
        if entry not in used:
            yield f"tools/check_names.py: '{entry}' is listed in vain"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "src"
    found = set(complaints(source)) | set(equal_types(source))
    for folder in [source] if len(sys.argv) > 1 else [source, root / "tools", root / "tests"]:
        found |= {f"{folder.name}/{line}" for line in empty_names(folder, MAY_BE_EMPTY.get(folder.name, set()))}
    found = sorted(found)
    print("\n".join(found) if found else "names: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
