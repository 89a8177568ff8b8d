#!/usr/bin/env python3
"""Tests tools/run_tests.py on made-up tests: which skips and budgets fail, the messages about them, and that ctest's
summary is last."""
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

RUN_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "run_tests.py"
PASSES = "echo fine"
NO_BROWSER = "echo 'skipped: no browser here'; exit 77"
GTEST = """printf '[ RUN      ] A.b\\n/x/a_test.cpp:3: Skipped\\nthis machine lacks it\\n\\n[  SKIPPED ] A.b (0 ms)\\n'"""
INSIDE = "printf '[ RUN      ] A.a\\n[       OK ] A.a (0 ms)\\n'; " + GTEST + "; printf '[ RUN      ] A.c\\n[       OK ] A.c (0 ms)\\n'"
SKIPS = """# a comment
cli\\.report   no_browser  no browser
program/A\\.b  always      lacks it
one\\.A\\.b    always      lacks it
"""
BUDGETS = "a 60\none 60\nprogram 60\nother 60\ncli 60\n"
BUSY = "sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done'"
wrong = []


def run(tests, skips=SKIPS, browser="", budgets=BUDGETS, long=""):
    """Runs run_tests.py on the tests [(name, command, properties)]. Returns the exit code and the lines of the output."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        lines = []
        for name, command, properties in tests:
            (root / f"{name}.sh").write_text(command + "\n")
            lines.append(f'add_test([=[{name}]=] sh "{root}/{name}.sh")\n')
            lines.append(f"set_tests_properties([=[{name}]=] PROPERTIES {properties})\n" if properties else "")
        (root / "CTestTestfile.cmake").write_text("".join(lines))
        (root / "skips").write_text(skips)
        (root / "phases").write_text("120 build release\n")
        (root / "budgets").write_text(budgets)
        environment = {**os.environ, "DS_BROWSER": browser, "DS_LONG": long}
        done = subprocess.run([sys.executable, RUN_TESTS, root, "--skips", root / "skips", "--phases", root / "phases",
                               "--budgets", root / "budgets"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
    return done.returncode, done.stdout.splitlines()


def expect(what, outcome, code, *parts):
    got, lines = outcome
    text = "\n".join(lines)
    lost = [part for part in parts if not re.search(part, text, re.MULTILINE)]
    last = [i for i, line in enumerate(lines) if re.match(r"\d+% tests passed", line)]
    behind = [i for i, line in enumerate(lines) if "Where the minutes went" in line or line.startswith("Skipped:")]
    if got != code or lost or not last or max(behind, default=0) > last[0]:
        wrong.append(f"{what}: exit code {got}, not {code}; missing {lost}:\n{text}")


SKIPPED = 'SKIP_RETURN_CODE 77'
BY_WORDS = 'SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]"'
expect("all pass", run([("a.b", PASSES, "")]), 0, r"^ +2\.0  build release$", r"^Skipped: nothing$")
expect("a failed test", run([("a.b", "exit 1", "")]), 8, r"a\.b \(Failed\)")
expect("a skip that is not listed", run([("a.b", PASSES, ""), ("a.c", NO_BROWSER, SKIPPED)]), 1,
       r"FAILED: may not be skipped here: a\.c: no browser here", r"^FAILED: 1 skipped")
if not any(os.access(f"{folder}/{name}", os.X_OK) for folder in os.environ["PATH"].split(":")
           for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")):
    expect("a listed skip", run([("cli.report", NO_BROWSER, SKIPPED)]), 0, r"^  cli\.report: no browser here$")
expect("a listed skip where it could run", run([("cli.report", NO_BROWSER, SKIPPED)], browser="/bin/true"), 1,
       r"FAILED: may not be skipped here: cli\.report")
expect("a listed skip for another reason", run([("one.A.b", "echo skipped: too lazy; exit 77", SKIPPED)]), 1,
       r"FAILED: may not be skipped here: one\.A\.b: too lazy")
expect("a skip without a reason", run([("one.A.b", "exit 77", SKIPPED)]), 1, r"one\.A\.b: ")
expect("a test of gtest", run([("one.A.b", GTEST, BY_WORDS)]), 0, r"^  one\.A\.b: this machine lacks it$")
expect("a listed skip inside of a program", run([("program", INSIDE, "")]), 0, r"^  program/A\.b: this machine lacks it$")
expect("a skip after text without an end of line", run([("other", "printf '[ RUN      ] A.b\\n[ a line\\nsaid[  SKIPPED ] A.b (0 ms)\\n'", "")]), 1,
       r"FAILED: may not be skipped here: other/A\.b")
expect("a disabled test", run([("a.b", PASSES, "DISABLED TRUE"), ("a.c", PASSES, "")]), 1,
       r"FAILED: may not be skipped here: a\.b: it is disabled")
expect("disabled tests inside of a program", run([("other", "echo '  YOU HAVE 2 DISABLED TESTS'", "")]), 1,
       r"FAILED: may not be skipped here: other/DISABLED: 2 tests are disabled")
expect("an unlisted skip inside of a program", run([("other", INSIDE, "")]), 1,
       r"FAILED: may not be skipped here: other/A\.b: this machine lacks it")
code, lines = run([("a.b", PASSES, "")], skips="a never because\n")
if code == 0 or "condition" not in "".join(lines):
    wrong.append(f"a condition that nobody knows: exit code {code}, {lines}")

# A child of the test's shell uses about half a second of CPU time; the budget of its suite is 0.
expect("a suite beyond its budget", run([("a.b", BUSY, ""), ("one.x", PASSES, "")], budgets="a 0\none 1\n"), 1,
       r"^ +[0-9.]+ +0 +[0-9.]+  a \(1\)  FAILED: \d+ s of CPU time are more than its budget of 0 s$", r"^ +0\.\d +1 .*  one \(1\)$")
expect("a suite within its budget", run([("a.b", BUSY, "")], budgets="a 30\n"), 0, r"  a \(1\)$")
expect("a suite without a budget", run([("a.b", PASSES, "")], budgets="one 1\n"), 1,
       r"a \(1\)  FAILED: tests/budgets\.txt has no line for this suite")
sys.path.insert(0, str(RUN_TESTS.parent))
run_tests = importlib.import_module("run_tests")
twelve = {f"s{number}": 10 for number in range(12)}
for what, times, want in [("a usual machine", dict.fromkeys(twelve, 5.0), 1.0), ("a fast one", dict.fromkeys(twelve, 1.0), 1.0),
                          ("a slow one", dict.fromkeys(twelve, 15.0), 3.0), ("a very slow one", dict.fromkeys(twelve, 90.0), 4.0),
                          ("one slow suite", {**dict.fromkeys(twelve, 4.5), "s0": 15.0}, 1.075), ("few suites", {"s0": 15.0}, 2.0)]:
    got = run_tests.slowness(times, twelve)
    if abs(got - want) > 1e-9:
        wrong.append(f"slowness of {what}: {got}, not {want}")
expect("long forms", run([("a.b", BUSY, "")], budgets="a 0\n", long="1"), 0, r"^ +[0-9.]+ +- .*  a \(1\)$")
code, lines = run([("a.b", PASSES, "")], budgets="a one\n")
if code == 0 or "budgets:1: not SUITE SECONDS" not in "".join(lines):
    wrong.append(f"a budget that is no number: exit code {code}, {lines}")

print(*wrong, f"run_tests_test: {len(wrong)} wrong", sep="\n")
sys.exit(1 if wrong else 0)
