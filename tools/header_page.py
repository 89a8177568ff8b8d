#!/usr/bin/env python3
"""Renders a C header in the style of include/ds.h as a page in Markdown. The header's comments are the only source.

usage: header_page.py HEADER     prints the page

The comment at the top becomes the introduction. A line `/* ---- name */` begins a section. Every other comment at the
left margin belongs to the declarations below it, up to a blank line or the next comment: a heading with their names,
the comment, its @param and @return as a list, and the unchanged declarations.
"""
import pathlib
import re
import sys

SECTION = re.compile(r"/\* -{4,} (.+?) \*/$")
NAMES = re.compile(r"\b(ds_\w+)\(|^(?:typedef )?(?:struct|enum) (ds_\w+)\b|^typedef .*?\b(ds_\w+_fn)\(|^struct (\w+);", re.M)
FUNCTION = re.compile(r"^DS_API[^;{]*?\b(ds_\w+)\(", re.M)
GUARDS = re.compile(r"#|extern \"C\"|}$")


def blocks(text):
    """Yields (comment, declarations) of each part between blank lines or comments at the left margin; either may be
    ''."""
    comment, code, inside = [], [], False
    for line in [*text.splitlines(), ""]:
        if inside:
            comment.append(line)
            inside = "*/" not in line
        elif line.startswith("/*") or (not line.strip() and not unfinished(code)):
            if comment or code:
                yield "\n".join(comment), "\n".join(code)
            comment, code = ([line], []) if line.startswith("/*") else ([], [])
            inside = line.startswith("/*") and "*/" not in line
        else:
            code.append(line)


def unfinished(code):
    return sum(line.count("{") - line.count("}") for line in code) > 0


def plain(comment):
    """Returns the words of a comment, without its marks and without the tags of tests such as {comm.send}."""
    lines = comment.removeprefix("/*").removeprefix("*").removesuffix("*/").splitlines()
    text = "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in lines).strip()
    return re.sub(r"\s*\{[a-z][\w-]*(?:\.[\w-]+)+\}", "", text)


def escape(text):
    """Returns the text as Markdown: names with underscores, and words that look like a tag or a link, are escaped."""
    text = re.sub(r"(?<![`\w/])(\w*_\w+(?:\(\))?|\*out\w*)(?![`\w/]|\.\w)", r"`\1`", text)
    text = re.sub(r"(?<!\w)docs/[\w/]+\.md", r"[\g<0>](../\g<0>)", text)
    return re.sub(r"\[(nullable|out|owned|threadsafe|borrowed: [^\]]+)\]", r"*\1*", text).replace("<", "\\<")


def introduction(text):
    """Returns paragraphs; one that begins with a single word and a full stop is a convention, cited by that word."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        yield re.sub(r"^(\w+)\. ", r"**\1.** ", escape(line))


def described(text):
    """Returns the sentences of a comment, then its parameters and result as a list."""
    first, *tags = re.split(r"\s*@(?=param|return)", " ".join(text.split()))
    if first:
        yield escape(first)
    items = []
    for tag in tags:
        kind, _, rest = tag.partition(" ")
        name, _, words = rest.partition(" ") if kind == "param" else ("returns", "", rest)
        items.append(f"- `{name}`: {escape(words.strip())}" if kind == "param" else f"- Returns {escape(rest.strip())}")
    if items:
        yield "\n".join(items)


def names_of(code):
    """Returns the names that declarations introduce, which form their heading on the page."""
    return list(dict.fromkeys(next(filter(None, found)) for found in NAMES.findall(code)))


def function_index(name, text):
    """Yields the parts of an index page for the header, with an entry for each function: its name, which links to its
    declaration, and the first sentence of its comment. Functions that share a comment share the sentence."""
    yield f"# Functions of {name}"
    yield f"Each name leads to the declaration in [{name}]({name}) with the whole comment."
    for comment, code in blocks(text):
        section = SECTION.match(comment)
        if section:
            yield f"## {section.group(1).capitalize()}"
        anchor = "-".join(names_of(code))  # as MyST derives it from the heading
        sentence, *_ = re.split(r"\s*@(?:param|return)|\s*\[threadsafe\]|(?<=[.?!])\s", " ".join(plain(comment).split()))
        for function in FUNCTION.findall(code):
            yield f"[`{function}`]({name}#{anchor})\n: {escape(sentence.strip())}"


def page(name, text):
    yield f"# {name}"
    first = True
    for index, (comment, code) in enumerate(blocks(text)):
        section = SECTION.match(comment)
        code = "" if all(GUARDS.match(line) or line.startswith("#") for line in code.splitlines()) else code
        if index == 0:
            about = re.sub(r"^\w+\.h: ", "", plain(comment))
            yield from introduction(about[:1].upper() + about[1:])
        elif section:
            yield f"## {section.group(1).capitalize()}"
            first = False
        if index == 0 or section or not (comment or code):
            continue
        # A heading of the third level needs a heading of the second level above it.
        if first:
            yield "## Status and types"
            first = False
        if names_of(code):
            yield "### " + ", ".join(f"`{name}`" for name in names_of(code))
        yield from described(plain(comment))
        if code:
            yield f"```c\n{code.strip()}\n```"


def main():
    header = pathlib.Path(sys.argv[1])
    print("\n\n".join(page(header.name, header.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
