#!/usr/bin/env python3
"""Checks the names of the source files of src.

usage: check_names.py [SRC]
A file NAME.cpp has a header NAME.h beside it, or is the only part of another: the one file of its folder that
implements a header without a NAME.cpp. What else there may be is listed below with its reason. No file has a
name that would fit many: such a word needs another one beside it that says which.
"""
import pathlib
import re
import sys

# Words that name no file by themselves.
VAGUE = {"common", "decode", "helpers", "launch", "misc", "record", "report", "text", "tools", "util", "utils"}

# Headers with more than one part: who they are for, and the files that implement them.
PARTS = {
    "the face of a folder: a call a file": [
        "checkpoint/folder", "checkpoint/payload", "checkpoint/reader", "checkpoint/writer",
        "checkpoint/weights_load", "checkpoint/weights_save",
        "passes/hoist", "passes/offsets", "passes/repeat", "passes/sync",
        "zero/ranges", "zero/reduce", "zero/update",
    ],
    "a method of Communicator, or a few that belong together": [
        "comm/all_gather", "comm/all_reduce", "comm/all_to_all", "comm/barrier", "comm/broadcast", "comm/coalesced",
        "comm/gather", "comm/reduce_scatter", "comm/scatter", "comm/send", "comm/start", "comm/timing",
        "comm/create",
    ],
    "a transport, found by its url": ["comm/transport/*", "comm/mpi/mpi"],
    "a noun of ds.h": ["api/*_api"],
    "a command of libds, declared in commands.h": ["cli/*_command", "cli/help", "cli/main", "cli/support"],
    "rows of a table that its header collects": ["core/graph/ops/*", "core/config/foreign", "nn/models/*"],
    "kernels, which only register.cpp names": ["kernels/cpu/*", "kernels/gemm/linear", "kernels/ref/*"],
    "one of several readers or writers of the type in its header": [
        "core/base/json_dump", "core/base/json_parse", "core/config/batch", "core/config/schedule",
        "core/config/sizes", "core/graph/autodiff", "core/graph/graph_text", "core/program/text",
        "core/program/verify", "data/tokenizers/bert_vocabulary", "data/tokenizers/gpt2_pair",
        "data/tokenizers/sentencepiece", "data/tokenizers/sentencepiece_absent", "data/tokenizers/special_tokens",
        "kernels/builtin", "kernels/registry",
    ],
    "a class whose methods fill two files": [
        "comm/shared_wait", "compile/recorded", "engine/delegate_fragments", "engine/delegate_record",
        "compile/report", "exec/chaos", "exec/launch",
    ],
}
# Names of today that wait for a better one.
VAGUE_TODAY = ["compile/decode", "compile/report", "core/program/text", "exec/launch", "passes/decode"]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def complaints(source):
    paths = sorted(p.relative_to(source).with_suffix("") for p in source.rglob("*.cpp"))
    headers = {p.relative_to(source).with_suffix("") for p in source.rglob("*.h")}
    allowed = [entry for entries in PARTS.values() for entry in entries]
    used = set()
    implements = {}  # header without a source of its name -> the sources without a header that include it first
    for path in (p for p in paths if p not in headers):
        for included in INCLUDE.findall((source / f"{path}.cpp").read_text(encoding="utf-8")):
            header = pathlib.Path(included).with_suffix("")
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
            if path.as_posix() not in VAGUE_TODAY:
                yield f"{path}: '{path.name}' does not say which"
            used.add(path.as_posix())
    for entry in [*allowed, *VAGUE_TODAY]:
        if entry not in used:
            yield f"tools/check_names.py: '{entry}' is listed in vain"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "src")
    found = sorted(set(complaints(source)))
    print("\n".join(found) if found else "names: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
