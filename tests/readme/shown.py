"""Compares output that a page shows with output that a command printed."""
import re

# Relative tolerance of a number with a decimal point, such as a loss, because processors round differently.
NEAR = 0.05
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
# Text that differs between runs or machines, and its replacement in both texts.
VARIES = [
    (r"[\d.,]+k? tokens/s", "N tokens/s"),
    (r"ETA \d+:\d+(:\d+)?", "ETA T"),
    (r"\bnorm [\d.]+", "norm N"),
    (r"overhead [\d.]+ [KMG]iB", "overhead N"),
    (r"\b[0-9a-f]{32}\b", "HASH"),
    (r"\b[\d.]+ (s|ms|us|seconds)\b", r"N \1"),
    (r">100 %", "100 %"),
    (r"^cores .*", "cores"),
    (r"tfevents\.\S+", "tfevents"),
    (r"\b(pid|port|process) \d+", r"\1 N"),
]


def same_line(shown, got, any_number=False):
    """Returns whether two lines are equal except for spaces, text that varies, and numbers with a point that differ by NEAR at
    most. With `any_number`, all numbers may differ."""
    for pattern, stand_in in VARIES:
        shown, got = re.sub(pattern, stand_in, shown), re.sub(pattern, stand_in, got)
    if [*filter(None, NUMBER.sub(" ", shown).split())] != [*filter(None, NUMBER.sub(" ", got).split())]:
        return False
    ours, theirs = NUMBER.findall(shown), NUMBER.findall(got)
    return len(ours) == len(theirs) and (any_number or all(map(same_number, ours, theirs)))


def same_number(one, two):
    if "." not in one:
        return one == two
    one, two = float(one.replace(",", "")), float(two.replace(",", ""))
    return abs(one - two) <= NEAR * abs(one)


def difference(shown, got, any_number=False):
    """Returns the first shown line that was not printed, "(the end)" if more lines were printed, or None. A line `...`, or no
    line at all, matches any lines."""
    rest, skipping = list(got), False
    for line in shown:
        if line.strip() == "...":
            skipping = True
            continue
        while rest and skipping and not same_line(line, rest[0], any_number):
            rest.pop(0)
        if not rest or not same_line(line, rest.pop(0), any_number):
            return line
        skipping = False
    return "(the end)" if shown and rest and not skipping else None
