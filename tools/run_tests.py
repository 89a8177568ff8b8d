#!/usr/bin/env python3
"""Runs ctest, compares skipped tests and the cost of each suite with their lists, and reports where the time went.

usage: run_tests.py BUILD [--skips FILE] [--budgets FILE] [--phases FILE] [CTEST ARGUMENT]...

After ctest's progress come the minutes of each phase (FILE has "SECONDS NAME" a line, written by ./run), the CPU time
of each suite with its budget, and the skipped tests with their reasons; ctest's own summary is last. Exits with ctest's
code if ctest failed, or else with 1 if a test was skipped that tests/skips.txt does not list for this machine, or if a
suite has no budget or took more CPU time than tests/budgets.txt gives it. Long forms (DS_LONG) have no budget.

The CPU time of a test is the increase in the CPU time of ctest's children when ctest reports the test as finished: that
of its processes and of all their children that were waited for. If two tests end at once, the first gets the time of
both, so only suites are reported, not single tests.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
FINISHED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) ")
SUMMARY = re.compile(r"^(\d+% tests passed|No tests were found)")
Skip = collections.namedtuple("Skip", "name reason")


def cpu_lacks(flag):
    return flag not in pathlib.Path("/proc/cpuinfo").read_text().split()


def browser():
    """Returns the browser of DS_BROWSER, or a Chromium by one of its usual names; None if the machine has none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return os.environ.get("DS_BROWSER") or next(filter(None, map(shutil.which, names)), None)


def takes_direct(folder):
    path = folder / "direct_probe"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)


def namespaces():
    command = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "br0",
               "type", "bridge"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def toolkits():
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", ROOT / ".cache/cuda"]
    return shutil.which("nvcc") or any(home and os.path.exists(f"{home}/bin/nvcc") for home in homes)


# Each condition says whether the machine lacks something that a test needs. If the machine has it and the build does not find it, that is
# not a reason to skip.
CONDITIONS = {
    "always": lambda build: True,
    "no_avx512_bf16": lambda build: cpu_lacks("avx512_bf16"),
    "no_amx": lambda build: cpu_lacks("amx_bf16"),
    "late": lambda build: bool(os.environ.get("DS_STARTED")) and os.environ.get("CI") == "true",
    "one_core": lambda build: len(os.sched_getaffinity(0)) < 2,
    "no_browser": lambda build: not browser(),
    "no_sphinx": lambda build: not (ROOT / ".cache/venv-docs/packages").exists(),
    "no_root": lambda build: os.geteuid() != 0,
    "no_debootstrap": lambda build: not shutil.which("debootstrap"),
    "no_direct": lambda build: not takes_direct(build),
    "no_ipv6": lambda build: not os.path.exists("/proc/net/if_inet6"),
    "no_tcp": lambda build: not os.path.exists("/usr/include/sodium.h"),
    "no_mpi": lambda build: not shutil.which("mpirun") or not shutil.which("mpicxx"),
    "no_nvcc": lambda build: not toolkits(),
    "no_sentencepiece": lambda build: not os.path.exists("/usr/include/sentencepiece_processor.h"),
    "no_hwloc": lambda build: not os.path.exists("/usr/include/hwloc.h"),
    "no_namespaces": lambda build: not namespaces(),
    "no_clang_format": lambda build: not shutil.which("clang-format-16"),
    "no_loop_device": lambda build: not os.path.exists("/dev/loop-control") or not shutil.which("mkfs.ext4"),
}


def allowed(path):
    """Returns [(name, condition, words)] of a list of skips."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.split(maxsplit=2)
        if len(row) != 3 or row[1] not in CONDITIONS:
            sys.exit(f"{path}:{number}: not NAME CONDITION WORDS with a condition of {', '.join(CONDITIONS)}: {line}")
        rows.append(row)
    return rows


def reason(text):
    """Returns the reason of a skip: "skipped: ..." of a script, or the line under gtest's "Skipped"."""
    found = re.search(r"^skipped: *(.*)$", text, re.MULTILINE | re.IGNORECASE)
    found = found or re.search(r"^\S+:\d+: Skipped\n(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def skipped(case):
    """Returns the skips of a test case in ctest's JUnit file: its own, or those of the tests inside of its program."""
    name, text = case.get("name"), case.findtext("system-out") or ""
    if case.get("status") == "disabled":
        return [Skip(name, "it is disabled")]
    if case.find("skipped") is not None:
        return [Skip(name, reason(text) or case.find("skipped").get("message") or "")]
    found = []
    for one in dict.fromkeys(re.findall(r"\[  SKIPPED \] ([^\s.]+\.[^\s,]+)", text)):  # printed twice
        run = re.search(rf"^\[ RUN      \] {re.escape(one)}\n(.*?)\[  SKIPPED \] {re.escape(one)} \(", text, re.M | re.S)
        found.append(Skip(f"{name}/{one}", reason(run.group(1)) if run else ""))
    disabled = re.search(r"YOU HAVE (\d+) DISABLED TESTS?", text)
    return found + ([Skip(f"{name}/DISABLED", f"{disabled.group(1)} tests are disabled")] if disabled else [])


def may_be(skip, rows, build):
    fits = [condition for name, condition, words in rows if re.fullmatch(name, skip.name) and re.search(words, skip.reason)]
    return any(CONDITIONS[condition](build) for condition in fits)


def cpu_of_children(process):
    """Returns the CPU seconds of the children that `process` has waited for, and of theirs."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def suite_of(test):
    """Returns the suite of a test; a program under a sanitizer is a suite of its own."""
    suite = test.split(".")[0]
    return test if suite in ("asan", "tsan") else suite


def run_ctest(build, arguments, results):
    """Returns the exit code, the lines of ctest's summary, which are not yet printed, and CPU seconds by suite."""
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error", "--output-junit", str(results),
               "--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000",
               "--test-output-truncation", "middle", *arguments]
    summary, cpu, before = [], collections.Counter(), 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            if summary or SUMMARY.match(line):
                summary.append(line)
            else:
                print(line, end="", flush=True)
            if finished := FINISHED.match(line):
                now = cpu_of_children(ctest.pid)
                cpu[suite_of(finished.group(1))] += now - before
                before = now
    return ctest.returncode, summary, cpu


def budgets_of(path):
    """Returns the CPU seconds that each suite may take."""
    budgets = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.split()
        if len(row) != 2 or not row[1].isdigit() or row[0] in budgets:
            sys.exit(f"{path}:{number}: not SUITE SECONDS, each suite once: {line}")
        budgets[row[0]] = int(row[1])
    return budgets


def cases_of(results):
    if not results.exists():  # ctest -N
        return []
    try:
        return list(xml.etree.ElementTree.parse(results).getroot().iter("testcase"))
    except xml.etree.ElementTree.ParseError as error:
        sys.exit(f"FAILED: {results}: {error}")


def minutes(seconds):
    return f"{seconds / 60:7.1f}"


def tell_phases(path, wall):
    rows = [line.split(maxsplit=1) for line in path.read_text().splitlines()] if path and path.exists() else []
    rows = [(name, float(seconds)) for seconds, name in rows] + [("tests", wall)]
    print("\nWhere the minutes went:")
    for name, seconds in rows:
        print(f"{minutes(seconds)}  {name}")
    print(f"{minutes(sum(seconds for _, seconds in rows))}  in all")


def slowness(cpu, budgets):
    """Returns by how much this machine is slower than the one of the budgets, which are about twice the times there: 1 to 4.
    One of many suites that became slow hardly changes the sum of all, but a slow or crowded processor does. The sum of few
    suites says less: 1 to 2."""
    known = [suite for suite in cpu if suite in budgets]
    expected = sum(budgets[suite] for suite in known) / 2
    most = 4.0 if len(known) >= 10 else 2.0
    return min(most, max(1.0, sum(cpu[suite] for suite in known) / expected)) if expected else 1.0


def tell_suites(cases, cpu, budgets):
    """Prints the time of each suite; returns whether each has a budget and kept it."""
    times, counts = collections.Counter(), collections.Counter()
    for case in cases:
        times[suite_of(case.get("name"))] += float(case.get("time"))
        counts[suite_of(case.get("name"))] += 1
    print(f"\nSeconds of CPU time by suite ({sum(cpu.values()):.0f} in all), its budget, and seconds of the clock, two tests at"
          f" a time ({sum(times.values()):.0f} in all):")
    factor = slowness(cpu, budgets) if budgets is not None else 1.0
    if factor > 1:
        print(f"The processor is slower than that of the budgets: they count {factor:.2f} times.")
    failed = []
    for suite in sorted(counts, key=lambda name: -cpu[name]):
        verdict = ""
        if budgets is not None and suite not in budgets:
            verdict = "  FAILED: tests/budgets.txt has no line for this suite"
        elif budgets is not None and cpu[suite] > factor * budgets[suite]:
            verdict = f"  FAILED: {cpu[suite]:.0f} s of CPU time are more than its budget of {factor * budgets[suite]:.0f} s"
        failed += [suite] if verdict else []
        budget = budgets.get(suite, "-") if budgets is not None else "-"
        print(f"{cpu[suite]:7.1f} {budget:>5} {times[suite]:7.1f}  {suite} ({counts[suite]}){verdict}")
    return not failed


def tell_skips(skips, rows, build):
    """Prints the skips; returns whether each is allowed."""
    print(f"\nSkipped: {len(skips) or 'nothing'}")
    wrong = [skip for skip in skips if not may_be(skip, rows, build)]
    for skip in skips:
        print(f"  {'FAILED: may not be skipped here: ' if skip in wrong else ''}{skip.name}: {skip.reason or 'no reason given'}")
    if wrong:
        print(f"FAILED: {len(wrong)} skipped tests are not in the list of those that may be (tests/skips.txt)")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--skips", type=pathlib.Path, default=ROOT / "tests" / "skips.txt")
    parser.add_argument("--budgets", type=pathlib.Path, default=ROOT / "tests" / "budgets.txt")
    parser.add_argument("--phases", type=pathlib.Path)
    options, arguments = parser.parse_known_args()
    build = options.build.resolve()
    budgets = None if os.environ.get("DS_LONG") else budgets_of(options.budgets)
    rows, results, begin = allowed(options.skips), build / "test_results.xml", time.monotonic()
    results.unlink(missing_ok=True)
    code, summary, cpu = run_ctest(build, arguments, results)
    wall = time.monotonic() - begin
    cases = cases_of(results)
    if cases:
        tell_phases(options.phases, wall)
        if not tell_suites(cases, cpu, budgets):
            code = code or 1
        if not tell_skips([skip for case in cases for skip in skipped(case)], rows, build):
            code = code or 1
    print()
    sys.stdout.writelines(summary)
    return code


if __name__ == "__main__":
    sys.exit(main())
