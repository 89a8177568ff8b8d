"""Runs a program that imports deepspeed, with libds.torch in its place: python -m libds.torch SCRIPT or -m MODULE, and its arguments."""
import os
import runpy
import sys

from . import as_deepspeed


def main() -> None:
    """Runs the program."""
    words = sys.argv[1:]
    if not words or words == ["-m"]:
        sys.exit("usage: python -m libds.torch SCRIPT [ARGUMENT]... | -m MODULE [ARGUMENT]...")
    as_deepspeed()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


main()
