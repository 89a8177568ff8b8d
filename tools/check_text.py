#!/usr/bin/env python3
"""Checks the text of the project.

usage: check_text.py [ROOT]
- no work marker (the words spelt below) in sources, tests and documents;
- every function, struct and enum of include/ds.h has a comment directly before it;
- every folder of src with sources has a README.md (core: each of its folders);
- relative links of Markdown files lead to existing files, and named anchors to existing headings or ids; the addresses of other
  links are well-formed (nothing is fetched);
- pages of docs/ that any text names by path exist (but for the changelog, which names them as they were);
- nothing in src asks the locale of the host, which may write numbers with a decimal comma and count other bytes as letters:
  core/base/ascii.h, std::from_chars and fmt do not. Nor does anything read from a stream by >>, which asks the program's;
- habits of prose that a program can see, in comments of src and include and in Markdown (HABITS and after). "behind" is refused in
  place of "after" unless it follows a word such as "left", or something that one can stand behind follows: a header, a proxy. Code
  blocks and `code` of Markdown and pages that a program writes are not read.
"""
import pathlib
import re
import subprocess
import sys

MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
TEXT = {".h", ".c", ".cpp", ".cu", ".py", ".sh", ".md", ".txt", ".json", ".cmake", ".in", ".yml", ""}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^(`{3,}).*?^\1`*$", re.M | re.S)
ADDRESS = re.compile(r"(https?://[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[\w.~%/+@:,;=&?!*#$()'-]*)?|mailto:[\w.+-]+@[\w.-]+)$", re.I)
PAGE = re.compile(r"""(?:(?<![\w./-])|(?<=["})]/))docs/[\w./-]*\w""")
DECLARATION = re.compile(r"^(?:typedef enum|typedef struct|struct|enum|DS_API)\b")
LOCALE = re.compile(r"(?<![\w.>])(?:std::)?(stod|stof|stold|strto(?:d|f|ld)|atof|is(?:alpha|alnum|upper|lower|space|punct|digit|xdigit)"
                    r"|to(?:lower|upper)|setlocale|localeconv|put_money|imbue)\s*\(|#include <(cctype|ctype\.h|clocale|locale\.h|locale|iomanip)>"
                    r"|(printf)\s*\(.*%[-+ #0-9.*]*[aefgAEFG]")
STREAM = re.compile(r"\b(?:std::)?(?:[io]?stringstream|[io]?fstream|[io]?stream\s*&|InputFile|OutputFile)\s+(\w+)")
FIXTURES = "tests/tools/fixtures/"

# Pages that a program writes, from texts of src, and records of what was measured.
WRITTEN_BY_PROGRAMS = ("docs/reference/config.md", "docs/results/gpu-check.md", "bench/history/20")
CODE = {".h", ".c", ".cpp", ".cu"}
# Matches a comment, or a literal, in which no comment begins.
COMMENT = re.compile(r'//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
HABITS = [
    ("of which", re.compile(r"\bwhich \w+ of which\b|\b(?P<found>of wh(?:ich|om))\b", re.I)),
    ("is none", re.compile(r"(?<!there )\b(?:is|are) none\b", re.I)),
    ("behind", re.compile(r"\b(?:left|leaves?|leaving|falls?|stays?)(?: \w+){0,3} behind\b|\b(?P<found>behind)\b(?! (?:(?:an?|the|one|its|this|that|"
                          r"their|our) )?(?:\w+ )?(?:proxy|firewall|router|gateway|NAT|header|interface|API|ABI|scan|wrapper|pointer|handle|lock|mutex)\b)")),
]
BEGINNING = re.compile(r"(?:Of|What|That of|The same of)\b")
IS_NO = re.compile(r"(?<!there )\b(?:is|are) no (?!longer|shorter|more than|less|fewer|better|worse|faster|slower|larger|smaller|greater|higher"
                   r"|lower|wider|earlier|later|further|different|use\b|good\b|one\b|matter)[a-z]+", re.I)
HEADLESS = re.compile(r"(?:of|what|that|where|theirs|its)\b")


def tracked(root):
    """Returns the files that git knows or would add; every file if there is no git."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    inside = (root / ".git").exists() and listing.returncode == 0
    names = listing.stdout.splitlines() if inside else [p.relative_to(root).as_posix() for p in root.rglob("*")]
    return sorted(n for n in names if not n.startswith(FIXTURES) and (root / n).is_file())


def markers(root, names):
    for name in names:
        if pathlib.PurePath(name).suffix not in TEXT:
            continue
        try:
            lines = (root / name).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if MARKERS.search(line):
                yield f"{name}:{number}: work marker: {line.strip()}"


def undocumented(root):
    """Yields declarations of ds.h without a comment before them. Consecutive lines share a comment."""
    header = root / "include/ds.h"
    if not header.is_file():
        return
    covered = False
    for number, line in enumerate(header.read_text(encoding="utf-8").splitlines(), 1):
        stripped = line.strip()
        if stripped.endswith("*/") and not DECLARATION.match(line):
            covered = True
        elif not stripped or stripped.startswith("#"):
            covered = False
        elif DECLARATION.match(line) and not covered:
            yield f"include/ds.h:{number}: no comment before: {stripped}"


def locale_bound(root, names):
    for name in names:
        if not name.startswith("src/") or pathlib.PurePath(name).suffix not in (".h", ".cpp"):
            continue
        text = (root / name).read_text(encoding="utf-8")
        streams = {match.group(1) for match in STREAM.finditer(text)} | {"std::cin"}
        extraction = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, streams)) + r"|(?:Input|Output)File\(.*\))\s*>>(?!=)")
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            found = LOCALE.search(code)
            if found:
                yield f"{name}:{number}: depends on the locale of the host: {next(filter(None, found.groups()))}"
            for stream in extraction.findall(code):
                yield f"{name}:{number}: depends on the locale of the host: {stream} >>"


def readmes(names):
    have = set(names)
    folders = set()
    for name in names:
        parts = name.split("/")
        if parts[0] == "src" and len(parts) > 2 and parts[-1] != "README.md":
            folders.add("/".join(parts[:3] if parts[1] == "core" and len(parts) > 3 else parts[:2]))
    for folder in sorted(folders):
        if f"{folder}/README.md" not in have:
            yield f"{folder}: no README.md"


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(root, names):
    for name in names:
        if not name.endswith(".md"):
            continue
        text = FENCED.sub("", (root / name).read_text(encoding="utf-8"))
        for target in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                if not ADDRESS.match(target):
                    yield f"{name}: link to {target}: no well-formed address"
                continue
            path, _, fragment = target.partition("#")
            file = (root / name).parent / path if path else root / name
            if not file.exists():
                yield f"{name}: link to {target}: no such file"
            elif fragment and file.suffix == ".md":
                if fragment not in anchors(file.read_text(encoding="utf-8")):
                    yield f"{name}: link to {target}: no such heading"


def anchors(text):
    """Returns the ids written as <a id="NAME">, and those of all headings; a repeated heading gets a number."""
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.M):
        name = first = anchor(heading)
        number = 0
        while name in found:
            number += 1
            name = f"{first}-{number}"
        found.add(name)
    return found


def pages(root, names):
    """Yields paths below docs/ in sources, messages and documents; docs/adr/0009 stands for the page that begins so."""
    for name in names:
        if pathlib.PurePath(name).suffix not in TEXT or name == "CHANGELOG.md":
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for path in dict.fromkeys(PAGE.findall(text)):
            if not (root / path).exists() and not any((root / path).parent.glob(f"{(root / path).name}[-.]*")):
                yield f"{name}: names {path}: no such page"


def comments(text):
    """Yields (line number, words, whether code stands before it) of each comment; consecutive lines of // are one comment."""
    held = []  # the comment that is being read: its line, its last line, its words
    for match in COMMENT.finditer(text):
        words = match.group("line") if match.group("block") is None else match.group("block")
        if words is None:
            continue
        number = text.count("\n", 0, match.start()) + 1
        trailing = bool(text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip())
        words = " ".join(re.sub(r"^[ \t]*[*!/<]*", "", words, flags=re.M).split())
        if held and not trailing and match.group("line") is not None and held[1] == number - 1:
            held[1:] = [number, f"{held[2]} {words}"]
            continue
        if held:
            yield held[0], held[2], False
            held = []
        if trailing or match.group("line") is None:
            yield number, words, trailing
        else:
            held = [number, number, words]
    if held:
        yield held[0], held[2], False


def hits(pattern, text):
    """Returns the matches of a habit. A pattern with a group `found` also matches right text, without that group, to skip it."""
    return [match for match in pattern.finditer(text) if "found" not in pattern.groupindex or match.group("found")]


def habits_of_comments(name, text):
    for number, words, trailing in comments(text):
        found = [habit for habit, pattern in HABITS if hits(pattern, words)]
        beginning, denied = BEGINNING.match(words), IS_NO.search(words)
        found += [f"begins with {beginning.group(0)}"] if beginning else []
        found += [denied.group(0)] if denied else []
        found += ["a phrase without a subject"] if trailing and name.endswith(".h") and HEADLESS.match(words) else []
        for habit in found:
            yield f"{name}:{number}: prose: {habit}: {words[:80]}"


def habits(root, names):
    """Yields habits of prose in comments of src and include, and in Markdown."""
    for name in names:
        code = pathlib.PurePath(name).suffix in CODE and name.startswith(("src/", "include/"))
        if name.startswith(WRITTEN_BY_PROGRAMS) or not (code or name.endswith(".md")):
            continue
        text = (root / name).read_text(encoding="utf-8")
        if code:
            yield from habits_of_comments(name, text)
            continue
        # Removes code and the targets of links, but keeps line breaks. A paragraph is read as one line, because a habit may span a line
        # break.
        for part in (FENCED, re.compile(r"`[^`]*`"), re.compile(r"\]\([^)]*\)")):
            text = part.sub(lambda match: "x" + re.sub(r"[^\n]", "", match.group(0)), text)
        flat = re.sub(r"\n(?=\S)", " ", text)
        for habit, pattern in HABITS:
            for match in hits(pattern, flat):
                number = text.count("\n", 0, match.start()) + 1
                yield f"{name}:{number}: prose: {habit}: {' '.join(flat[max(0, match.start() - 30):match.end() + 30].split())}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    names = tracked(root)
    found = [*markers(root, names), *undocumented(root), *readmes(names), *links(root, names), *pages(root, names),
             *locale_bound(root, names), *habits(root, names)]
    print("\n".join(found) if found else f"text: ok ({len(names)} files)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
