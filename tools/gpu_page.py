#!/usr/bin/env python3
"""Writes the result page of `./run gpu-check` from the lines of its parts.

usage: gpu_page.py LINES.jsonl PAGE.md --commit COMMIT --device TEXT [--date YYYY-MM-DD]
A part without lines is shown as "not run". If a check has several lines, the last one counts.
"""
import argparse
import datetime
import json
import pathlib

PARTS = {"A": "memory, kernels, products", "B": "recorded numbers, equal bits, the main job", "C": "speed",
         "D": "the 1.5B shape beside torch"}


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def number(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def section(part, lines):
    title = f"## Part {part}: {PARTS[part]}\n\n"
    if not lines:
        return title + "not run\n"
    counts = {}
    for line in lines:
        counts[line["status"]] = counts.get(line["status"], 0) + 1
    text = title + ", ".join(f"{count} {status}" for status, count in counts.items()) + "\n\n"
    text += "| group | check | result | cases | worst, of its tolerance | seconds | |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    for line in lines:
        figures = ", ".join(f"{name} {number(value)}" for name, value in line.get("figures", {}).items())
        remark = "; ".join(filter(None, [figures, line.get("text", "")]))
        worst = line.get("worst")
        row = [line["group"], line["check"], line["status"], line.get("cases", ""), "" if worst is None else number(worst),
               line["seconds"], remark]
        text += "| " + " | ".join(cell(word) for word in row) + " |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lines", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    args = parser.parse_args()
    checks = {}
    for line in args.lines.read_text(encoding="utf-8").splitlines() if args.lines.exists() else []:
        record = json.loads(line)
        checks[record["part"], record["group"], record["check"]] = record
    head = f"""# Checks on a GPU

What `./run gpu-check` found. Commit {args.commit}, {args.date}, {args.device}. Parts that have not run say so.

"""
    parts = [section(part, [r for r in checks.values() if r["part"] == part]) for part in PARTS]
    args.page.write_text(head + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
