#!/usr/bin/env python3
"""Checks docs/tour.md: there are at least ten questions with at most three files each, and every file exists and defines the
named function.

usage: tour.py SOURCE_DIR
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| ([^|]*) \| `([^`]+)`: `([^`]+)` \| [^|]+ \|$")


def defines(text, function):
    """Returns whether a line at namespace or class level begins a definition of the function."""
    lines = re.findall(rf"^(?:  )?(?!return\b)\w[\w:<>,&*\[\] ]*[ &*](?:\w+::)*{function}\([^\n]*$", text, re.M)
    return any(not line.rstrip().endswith(";") for line in lines)


def complaints(root):
    lines = (root / "docs/tour.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    # The files of each question.
    files = []
    for line in rows:
        row = ROW.match(line.replace("| |", "|  |", 1))
        if not row:
            yield f"no row of a question, a file with its function and what to read: {line}"
            continue
        question, path, function = row.groups()
        if question.strip():
            files.append([question])
        elif not files:
            yield f"no question before {path}"
            continue
        files[-1].append(path)
        if not (root / path).is_file():
            yield f"{path}: no such file"
        elif not defines((root / path).read_text(encoding="utf-8"), function):
            yield f"{path}: defines no function {function}"
    for question, *paths in files:
        if len(set(paths)) > 3:
            yield f"{question} {len(set(paths))} files, at most 3"
    if len(files) < 10:
        yield f"{len(files)} questions, at least 10"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "tour: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
