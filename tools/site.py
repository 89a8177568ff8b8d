#!/usr/bin/env python3
"""Builds the documentation as a site with search: docs/ and every file of the working copy that its pages link to.

usage: site.py OUT     (writes OUT/source for Sphinx and the site OUT/html; any warning is an error. The Python that runs it
                        has Sphinx: `./run docs` makes it)

The pages are plain Markdown with relative links, which a forge shows as they are. This program makes everything else of the
site: docs/README.md is its front page, whose lists of links are the navigation; headers become reference pages
(tools/header_page.py), and ds.h an index of its functions; other linked files and folders become pages under `tree`.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import header_page

ROOT = pathlib.Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
# The index that this program makes from ds.h. Its line on the front page follows the line of ds.h.
FUNCTIONS = "include/functions.md"
LINK = re.compile(r"(\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```+$|`[^`\n]+`)", re.M | re.S)
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".py": "python", ".sh": "sh", ".json": "js", ".js": "js"}
PICTURES = {".svg", ".png"}
BINARY = {".safetensors"}


def listing(folder):
    """Returns a page for a folder without a README.md."""
    tracked = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True).stdout.split()
    names = sorted({os.path.relpath(name, folder).split("/")[0] for name in tracked})
    return f"# {folder}\n\n" + "\n".join(f"- {name}" for name in names) + "\n"


def named(path):
    """Returns the file that shows a path of the working copy; for a folder it is the README.md."""
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def page_of(path):
    """Returns the place of a path's page in Sphinx's source."""
    if path == INDEX:
        return "index.md"
    inside = path.removeprefix("docs/") if path.startswith("docs/") else f"tree/{path}"
    return inside if path.endswith(".md") or pathlib.Path(path).suffix in PICTURES else f"{inside}.md"


def with_functions(text):
    """Returns the front page with a line for the index of functions, which is not a file of the working copy."""
    line = re.search(r"^- \[ds\.h\]\(.*\n", text, re.M)
    if not line:
        sys.exit(f"site: {INDEX} has no line for ds.h")
    return text[:line.end()] + f"- [Functions](../{FUNCTIONS}): those of ds.h, a line each\n" + text[line.end():]


def content(path):
    """Returns the Markdown of a path of the working copy."""
    file = ROOT / path
    if path == FUNCTIONS:
        header = file.with_name("ds.h")
        return "\n\n".join(header_page.function_index(header.name, header.read_text(encoding="utf-8"))) + "\n"
    if file.is_dir():
        return listing(path)
    text = file.read_text(encoding="utf-8")
    if path == INDEX:
        return with_functions(text)
    if path.endswith(".md"):
        return text
    if path.startswith("include/"):
        return "\n\n".join(header_page.page(file.name, text)) + "\n"
    return f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n````\n"


def with_links(path, text, seen):
    """Returns the text with links to pages of the site; adds the linked paths to `seen`."""
    def replaced(match):
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        found = named(os.path.normpath(os.path.join(os.path.dirname(path), target)))
        if found != FUNCTIONS and not (ROOT / found).exists():
            sys.exit(f"site: {path}: link to {target}: no such file")
        seen.setdefault(found)
        return before + os.path.relpath(page_of(found), os.path.dirname(page_of(path)) or ".") + after

    pieces = FENCE.split(text)
    pieces[::2] = [LINK.sub(replaced, piece) for piece in pieces[::2]]
    return "".join(pieces)


def rejoined(path, text, seen):
    """Does with_links for links whose words contain code: the split at code would break these links."""
    held = []

    def hold(match):
        held.append(match.group(0))
        return f"\0{len(held) - 1}\0"

    text = with_links(path, FENCE.sub(hold, text), seen)
    return re.sub("\0(\\d+)\0", lambda match: held[int(match.group(1))], text)


def navigation(text):
    """Returns Sphinx's hidden tables of contents: one for each section of the front page, with its pages."""
    made = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        pages = [target for _, target, _ in LINK.findall(section) if not re.match(r"[a-z]+:", target)]
        entries = "\n".join(dict.fromkeys(target.removesuffix(".md") for target in pages))
        made.append(f"```{{toctree}}\n:hidden:\n:caption: {section.splitlines()[0]}\n\n{entries}\n```\n")
    return "\n".join(made)


def stage(source):
    """Writes every page that can be reached from the front page."""
    seen, written = {INDEX: None}, set()
    listed = set()
    while todo := [path for path in seen if path not in written]:
        for path in todo:
            written.add(path)
            page = source / page_of(path)
            page.parent.mkdir(parents=True, exist_ok=True)
            if page.suffix in PICTURES:
                shutil.copy(ROOT / path, page)
                continue
            text = rejoined(path, content(path), seen)
            if path == INDEX:
                text += "\n" + navigation(text)
                listed = {os.path.normpath(target) for _, target, _ in LINK.findall(text)}
            elif page_of(path) not in listed:
                text = "---\norphan: true\n---\n\n" + text
            page.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs/conf.py", source)
    shutil.copytree(ROOT / "docs/static", source / "static")
    missing = {path for path in subprocess.run(["git", "ls-files", "docs/*.md"], cwd=ROOT, capture_output=True,
                                               text=True).stdout.split()} - written
    if missing:
        sys.exit(f"site: no page links to {', '.join(sorted(missing))}")


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    source = out / "source"
    for made in (source, out / "html"):
        shutil.rmtree(made, ignore_errors=True)
    stage(source)
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "auto", "-b", "html"]
    built = subprocess.run([*sphinx, source, out / "html"])
    if built.returncode == 0:
        print(f"site: {out / 'html' / 'index.html'}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
