#!/usr/bin/env python3
"""Checks the subjects of the commits after FIRST.

usage: check_commits.py [ROOT]            (the history of a working copy)
       check_commits.py --subjects FILE   (a subject a line)
A subject is an imperative, optionally after the rooms that it is about ("comm: ", "comm, io: "), in at most 72 characters, without
a full stop. The subjects of merges are free. The check guesses from the first word whether a subject is an imperative: the word must
not be an article or a question word, and not end in -s, -ed or -ing unless it is in the list below.
If the history cannot be read (a source archive, a shallow clone without FIRST), the program says so and checks nothing.
"""
import pathlib
import re
import subprocess
import sys

FIRST = "b9cead4bdc1d5d53869562decfdbee932cc207b5"  # "Reformat C and C++ to 100 columns"
LIMIT = 72
ROOMS = re.compile(r"^[a-z0-9_./-]+(?:, [a-z0-9_./-]+)*:(?: |$)")
MERGE = re.compile(r"[Mm]erge ")
# Verbs that end like other forms. Every word in -ss (pass, address) or -eed (need, feed) counts as a verb.
VERBS = {"alias", "bias", "bring", "bus", "cling", "embed", "focus", "ping", "ring", "shed", "shred", "sing", "sling", "spring",
         "sting", "string", "swing", "wed", "wing"}
NO_VERBS = {"a", "an", "the", "what", "where", "when", "how", "why", "of", "no", "one", "more"}


def imperative(word):
    word = word.lower()
    return word not in NO_VERBS and (word in VERBS or word.endswith(("ss", "eed")) or not word.endswith(("s", "ed", "ing")))


def complaints(subject):
    """Yields what is wrong with a subject."""
    if MERGE.match(subject):
        return
    if len(subject) > LIMIT:
        yield f"{len(subject)} characters, at most {LIMIT}"
    if subject.endswith("."):
        yield "a full stop at the end"
    words = re.findall(r"[A-Za-z]+", ROOMS.sub("", subject))
    if not words or not imperative(words[0]):
        yield f"not an imperative: '{words[0] if words else ''}'"


def git(root, *words):
    """Returns the output of git, or None if it failed."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def history(root):
    """Returns the lines `hash subject` of the commits after FIRST, or None if they cannot be read."""
    if not (root / ".git").exists() or git(root, "merge-base", "--is-ancestor", FIRST, "HEAD") is None:
        return None
    log = git(root, "log", "--no-merges", "--format=%h %s", f"{FIRST}..HEAD")
    return None if log is None else log.splitlines()


def main():
    if sys.argv[1:2] == ["--subjects"]:
        subjects = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
        lines = [f"{number} {subject}" for number, subject in enumerate(subjects, 1)]
    else:
        lines = history(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve())
        if lines is None:
            print(f"commits: not checked, there is no history from {FIRST[:8]} on (an archive, or a shallow clone)")
            return 0
    found = [f"{name}: {wrong}: {subject}" for name, subject in (line.split(" ", 1) for line in lines) for wrong in complaints(subject)]
    print("\n".join(found) if found else f"commits: ok ({len(lines)} subjects)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
