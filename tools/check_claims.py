#!/usr/bin/env python3
"""Checks that tests prove what the comments of a header promise.

usage: check_claims.py [HEADER TESTS...]   (default: include/ds.h, tests and bindings)
       check_claims.py --list [HEADER]     prints the sentences that need a tag, each with its tag

A sentence of a comment is a claim if it says what a call returns or refuses, what a caller may or must do, or which
error it gets (CLAIM below), and so is everything after @return. A claim ends with a tag: a name in braces, such as
{comm.send}. Tags are unique, and at least one test says that it proves the tag, in a comment: "proves {comm.send}". The
check complains about a claim without a tag, a tag that no test proves, a tag of a test that the header does not have, less
documentation than MOST_CODE allows, and more functions than MOST_FUNCTIONS. A comment of a struct member or an
enumerator is one sentence.
"""
import pathlib
import re
import sys

CLAIM = re.compile(r"\b(?:return(?:s|ed|ing)?|refus(?:e|es|ed|al|ing)|may|must|DS_ERROR_\w+)\b", re.I)
TAG = re.compile(r"\{([a-z][\w-]*(?:\.[\w-]+)+)\}")
PROVES = re.compile(r"\bproves((?:[\s*/#]|//|\band\b|,|\{[\w.-]+\})+)", re.I)
SENTENCE_END = re.compile(r"(?<=[^.][.!?])((?:\s*\{[\w.-]+\})?)\s+(?!\s*\{[\w.-]+\})")
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
MOST_CODE = 0.4  # the largest share of lines with code among those that are not blank
MOST_FUNCTIONS = 118  # a commit that adds a noun raises this, with an ADR
TESTS = {".c", ".cpp", ".h", ".py", ".rs", ".jl", ".sh"}


def sentences(text):
    """Yields (line, sentence, whether it is after @return) of every comment. A sentence keeps its tag."""
    for match in COMMENT.finditer(text):
        if re.match(r"\s*-{4,}", match.group(1)):
            continue  # the title of a section
        body = re.sub(r"^\*?<?", "", match.group(1))
        body = re.sub(r"\n[ \t]*\* ?", "\n", body)
        at, line = 0, text.count("\n", 0, match.start()) + 1
        for part in re.split(r"(?=@param\b|@return\b)|\n[ \t]*\n", body):
            begin = body.index(part, at)
            at = begin + len(part)
            for sentence in split(part):
                offset = body.index(sentence, begin)
                begin = offset + len(sentence)
                yield line + body.count("\n", 0, offset), " ".join(sentence.split()), part.startswith("@return")


def split(text):
    begin = 0
    for end in SENTENCE_END.finditer(text):
        yield text[begin:end.start() + len(end.group(1))].strip()
        begin = end.end()
    if text[begin:].strip():
        yield text[begin:].strip()


def claims(text):
    """Yields (line, sentence, tags) of each sentence that is a claim or has a tag."""
    for line, sentence, of_result in sentences(text):
        tags = TAG.findall(sentence)
        if tags or of_result or CLAIM.search(TAG.sub("", sentence)):
            yield line, sentence, tags


def proofs(paths):
    """Yields (file, tag) of each tag that a test names."""
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            inside = file.relative_to(path).parts if file != path else ()
            if file.suffix not in TESTS or "fixtures" in inside or "target" in inside or not file.is_file():
                continue
            for match in PROVES.finditer(file.read_text(encoding="utf-8", errors="replace")):
                yield from ((file, tag) for tag in re.findall(r"\{([\w.-]+)\}", match.group(1)))


def share_of_code(text):
    """Returns the share of lines with something besides a comment, among those that are not blank."""
    lines = [line for line in text.split("\n") if line.strip()]
    bare = COMMENT.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    return sum(1 for line in bare.split("\n") if line.strip()) / len(lines)


def complaints(header, tests):
    text = header.read_text(encoding="utf-8")
    seen = {}
    for line, sentence, tags in claims(text):
        where = f"{header.name}:{line}"
        if not tags:
            yield f"{where}: a claim without a tag: {sentence}"
        elif len(tags) > 1 or not sentence.endswith("{" + tags[-1] + "}"):
            yield f"{where}: a claim has one tag, at its end: {sentence}"
        for tag in tags:
            if tag in seen:
                yield f"{where}: tag {{{tag}}} has a sentence in line {seen[tag]} already"
            seen[tag] = line
    proved = set()
    for file, tag in proofs(tests):
        proved.add(tag)
        if tag not in seen:
            yield f"{file.name}: proves {{{tag}}}, which {header.name} does not have"
    for tag, line in seen.items():
        if tag not in proved:
            yield f"{header.name}:{line}: no test proves {{{tag}}}"
    code = share_of_code(text)
    functions = len(re.findall(r"^DS_API ", text, re.M))
    if functions > MOST_FUNCTIONS:
        yield f"{header.name}: {functions} functions, more than {MOST_FUNCTIONS}"
    if code > MOST_CODE:
        yield f"{header.name}: {100 * (1 - code):.1f} % of its lines are documentation, fewer than {100 * (1 - MOST_CODE):.0f} %"


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    listing = "--list" in arguments
    paths = [pathlib.Path(a) for a in arguments if a != "--list"]
    header = paths[0] if paths else root / "include" / "ds.h"
    if listing:
        for line, sentence, _ in claims(header.read_text(encoding="utf-8")):
            print(f"{line}: {sentence}")
        return 0
    found = list(complaints(header, paths[1:] or [root / "tests", root / "bindings"]))
    count = sum(1 for _ in claims(header.read_text(encoding="utf-8")))
    print("\n".join(found) if found else f"claims: ok ({count})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
