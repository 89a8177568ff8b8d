#!/usr/bin/env python3
"""Checks that no file of src opens a descriptor that may be 0, 1 or 2 (src/core/base/descriptor.h).

usage: check_descriptors.py [SRC]
- a call that makes one descriptor stands within above_standard(...);
- calls that make two (pipe, socketpair) and streams of the standard library are forbidden: core/base/file_stream.h
  has streams.
launch and cli are exempt: they belong to the command, which opens descriptors 0 to 2 first.
"""
import pathlib
import re
import sys

EXEMPT = {"launch", "cli"}
OWNERS = {"core/base/descriptor.h"}
ONE = re.compile(
    r"(?<![\w.>])(?<!\w::)(?:::|std::)?(open|openat|openat2|creat|memfd_create|memfd_secret|shm_open|socket|accept4?|"
    r"epoll_create1?|eventfd|timerfd_create|signalfd|inotify_init1?|fanotify_init|dup|mkstemp|mkostemp|"
    r"mkstemps|mkostemps|pidfd_open|userfaultfd|io_uring_queue_init|perf_event_open)\s*\("
)
OTHER = re.compile(
    r"(?<![\w.>])(?:::|std::)?(?:(pipe2?|socketpair|fopen|freopen|fdopen|tmpfile|popen)\s*\(|"
    r"((?:basic_)?(?:i|o)?fstream|(?:basic_)?filebuf)\b)"
)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])'", re.S)


def plain(text):
    """Returns the text with comments and literals blanked, and line breaks kept."""
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def complaints(source):
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.suffix not in (".h", ".cpp", ".c") or name.split("/")[0] in EXEMPT or name in OWNERS:
            continue
        text = plain(path.read_text(encoding="utf-8"))
        for match in ONE.finditer(text):
            before = text[: match.start()]
            statement = re.split(r"[;{}]", before)[-1]
            # Not system calls: a member `bool open() const`, without flags, and a variable, `Socket socket(...)`.
            own = match.group(1) == "open" and "O_" not in re.split(r"[;{}]", text[match.end() :])[0]
            own = own or re.search(r"\b[A-Z]\w*&?\s+$", before)
            if "above_standard(" not in statement and not own:
                line = before.count("\n") + 1
                yield f"{name}:{line}: {match.group(1)}() outside of above_standard(): it may return 0, 1 or 2"
        for match in OTHER.finditer(text):
            start = text.rfind("\n", 0, match.start()) + 1
            line = text[: match.start()].count("\n") + 1
            include = text[start : match.start()].lstrip().startswith("#")
            hint = "include" if include else "use"
            call = match.group(1) or match.group(2)
            yield f"{name}:{line}: {hint} of {call}: it may get descriptor 0, 1 or 2"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "src")
    found = list(complaints(source))
    print("\n".join(found) if found else "descriptors: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
