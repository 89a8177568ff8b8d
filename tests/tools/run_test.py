#!/usr/bin/env python3
"""Tests which targets ./run builds and tests for its arguments. A record of calls replaces ninja and ctest, and programs
that do nothing replace CMake and the installers.

usage: run_test.py SOURCE
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
STUBS = {"ninja": "echo \"ninja $*\" >> \"$CALLS\"", "ctest": "echo \"ctest $* long=${DS_LONG:-}\" >> \"$CALLS\"\n"
         "case \"$*\" in *zzz*) ;; *) echo '  Test #1: a' ;; esac", "cmake": ":", "apt-get": ":", "dpkg-query": "printf installed",
         "python3": f"case $1 in tools/run_tests.py) exec '{sys.executable}' \"$@\" ;; esac"}
wrong = []


def calls(*words, **variables):
    """Runs ./run with these words. Returns the exit code, the output, and the calls of ninja and ctest."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("tests", "bench", "tools", "bindings", "examples"):
            (folder / part).symlink_to(SOURCE / part)
        (folder / "run").write_text((SOURCE / "run").read_text())
        (folder / "bin").mkdir()
        for stub, text in STUBS.items():
            (folder / "bin" / stub).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / stub).chmod(0o755)
        environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "CALLS": f"{folder}/calls"}
        for name in ("DS_LONG", "CI"):
            environment.pop(name, None)
        environment |= variables
        done = subprocess.run(["sh", folder / "run", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment, check=False)
        made = (folder / "calls").read_text() if (folder / "calls").exists() else ""
    return done.returncode, done.stdout, made


def expect(words, *parts, without=(), **variables):
    """Expects that the calls contain the parts, and none of the parts in `without`."""
    code, output, made = calls(*words.split(), **variables)
    lost = [part for part in parts if part not in made]
    found = [part for part in without if part in made]
    if code or lost or found:
        wrong.append(f"./run {words}: exit code {code}, without {lost}, with {found}:\n{made}{output}")


def refuse(words, part):
    """Expects a refusal before anything is built."""
    code, output, made = calls(*words.split())
    if code == 0 or part not in output or "ninja" in made:
        wrong.append(f"./run {words}: exit code {code}, not refused with '{part}':\n{made}{output}")


expect("test kernels", " test_kernels\n", "-R ^kernels\\.", "-LE sanitizer")
expect("test Cse asan.kernels", " all\n", "-R Cse|^asan.kernels")
expect("test asan Cse", " all\n", "-R ^asan\\.|Cse")
expect("test asan passes.Cse", " test_passes\n")
expect("test readme", "examples/all", "bindings/python/all")
expect("test kernels --long", " test_kernels\n", "long=1")
expect("test", "-LE sanitizer")
expect("test --long", "ctest", "long=1", without=["-LE sanitizer"])
expect("test", "ctest", without=["-LE sanitizer"], CI="true")
expect("build", " installed\n", without=["ctest"])
refuse("build all", "build takes no argument, got all")
refuse("install", "install takes one folder, got 0 arguments")
refuse("test kernels " + "zz" + "z_none", "no test is named")
for action in ("bench", "interop", "attack", "elsewhere"):
    refuse(f"{action} nosuch", f"{action} takes one of: ")
refuse("bench verdict", "bench takes one of: ")
refuse("attack", "attack takes one of: ")
refuse("same-bits --ful", "same-bits takes --full and --print, or --draws, got --ful")
refuse("same-bits --draws some", "same-bits --draws takes a number of runs and that of the first, got --draws some")
refuse("docs foo", "docs takes no argument, got foo")
refuse("fmt x", "fmt takes no argument, got x")
print(*wrong, f"run_test: {len(wrong)} wrong", sep="\n")
sys.exit(1 if wrong else 0)
