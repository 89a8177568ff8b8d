#!/usr/bin/env python3
"""Runs ctest, holds skipped tests against the list of those that may be, and tells where the minutes went.

usage: run_tests.py BUILD [--skips FILE] [--phases FILE] [CTEST ARGUMENT]...

Behind ctest's progress come what it took by phase (FILE has "SECONDS NAME" a line, written by ./run) and by suite, and the
skipped tests with their reasons; then ctest's own summary, which is last. Ends with 1 if ctest failed, or if a test was
skipped that FILE (tests/skips.txt) does not list for this machine.
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
SUITES = 15
SUMMARY = re.compile(r"^(\d+% tests passed|No tests were found)")
Skip = collections.namedtuple("Skip", "name reason")


def cpu_lacks(flag):
    return flag not in pathlib.Path("/proc/cpuinfo").read_text().split()


def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return os.environ.get("DS_BROWSER") or any(shutil.which(name) for name in names)


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


# Whether the machine lacks what a test needs. What it has and the build does not find is no reason to skip.
CONDITIONS = {
    "always": lambda build: True,
    "no_avx512_bf16": lambda build: cpu_lacks("avx512_bf16"),
    "no_amx": lambda build: cpu_lacks("amx_bf16"),
    "one_core": lambda build: len(os.sched_getaffinity(0)) < 2,
    "no_browser": lambda build: not browser(),
    "no_root": lambda build: os.geteuid() != 0,
    "no_debootstrap": lambda build: not shutil.which("debootstrap"),
    "no_direct": lambda build: not takes_direct(build),
    "no_ipv6": lambda build: not os.path.exists("/proc/net/if_inet6"),
    "no_tcp": lambda build: not os.path.exists("/usr/include/sodium.h"),
    "no_mpi": lambda build: not shutil.which("mpirun") or not shutil.which("mpicxx"),
    "no_nvcc": lambda build: not toolkits(),
    "no_sentencepiece": lambda build: not os.path.exists("/usr/include/sentencepiece_processor.h"),
    "no_namespaces": lambda build: not namespaces(),
    "no_loop_device": lambda build: not os.path.exists("/dev/loop-control") or not shutil.which("mkfs.ext4"),
}


def allowed(path):
    """[(name, condition, words)] of a list of skips."""
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
    """What a test said of its skip: "skipped: ..." of a script, or the line under gtest's "Skipped"."""
    found = re.search(r"^skipped: *(.*)$", text, re.MULTILINE | re.IGNORECASE)
    found = found or re.search(r"^\S+:\d+: Skipped\n(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def skipped(case):
    """The skips of a test case of ctest's JUnit file: its own, or those of the tests inside of its program."""
    name, text = case.get("name"), case.findtext("system-out") or ""
    if case.get("status") == "disabled":
        return [Skip(name, "it is disabled")]
    if case.find("skipped") is not None:
        return [Skip(name, reason(text) or case.find("skipped").get("message") or "")]
    found = []
    for one in dict.fromkeys(re.findall(r"\[  SKIPPED \] ([^\s.]+\.[^\s,]+)", text)):  # as it ends, and in the list behind all
        run = re.search(rf"^\[ RUN      \] {re.escape(one)}\n(.*?)\[  SKIPPED \] {re.escape(one)} \(", text, re.M | re.S)
        found.append(Skip(f"{name}/{one}", reason(run.group(1)) if run else ""))
    disabled = re.search(r"YOU HAVE (\d+) DISABLED TESTS?", text)
    return found + ([Skip(f"{name}/DISABLED", f"{disabled.group(1)} tests are disabled")] if disabled else [])


def may_be(skip, rows, build):
    fits = [condition for name, condition, words in rows if re.fullmatch(name, skip.name) and re.search(words, skip.reason)]
    return any(CONDITIONS[condition](build) for condition in fits)


def run_ctest(build, arguments, results):
    """Exit code, and the lines of ctest's summary, which are not printed yet."""
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error", "--output-junit", str(results),
               "--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000",
               "--test-output-truncation", "middle", *arguments]
    summary = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            if summary or SUMMARY.match(line):
                summary.append(line)
            else:
                print(line, end="", flush=True)
    return ctest.returncode, summary


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


def tell_suites(cases):
    times, counts = collections.Counter(), collections.Counter()
    for case in cases:
        suite = case.get("name").split(".")[0]
        suite = case.get("name") if suite in ("asan", "tsan") else suite
        times[suite] += float(case.get("time"))
        counts[suite] += 1
    print(f"\nMinutes of tests by suite, two at a time ({sum(times.values()) / 60:.1f} in all):")
    for suite, seconds in times.most_common(SUITES):
        print(f"{minutes(seconds)}  {suite} ({counts[suite]})")


def tell_skips(skips, rows, build):
    """Prints them; whether each may be."""
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
    parser.add_argument("--phases", type=pathlib.Path)
    options, arguments = parser.parse_known_args()
    build = options.build.resolve()
    rows, results, begin = allowed(options.skips), build / "test_results.xml", time.monotonic()
    results.unlink(missing_ok=True)
    code, summary = run_ctest(build, arguments, results)
    wall = time.monotonic() - begin
    cases = cases_of(results)
    if cases:
        tell_phases(options.phases, wall)
        tell_suites(cases)
        if not tell_skips([skip for case in cases for skip in skipped(case)], rows, build):
            code = code or 1
    print()
    sys.stdout.writelines(summary)
    return code


if __name__ == "__main__":
    sys.exit(main())
