#!/usr/bin/env python3
"""Passes damaged files of every kind to the readers of libds, with new damage in every round.

usage: fuzz.py BUILD [MINUTES] [--first ROUND] [--only FILTER]     (default: 60 minutes, from round 1)

Runs BUILD/bin/test_fuzz repeatedly, each time with new random inputs (DS_FUZZ_ROUND), on all processors, until the
minutes are over. BUILD may be a build with a sanitizer (build/asan). A round that fails is printed with the command
that repeats it, and ends the attack.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import time


def play(program, number, pattern, end):
    """Returns (round, exit code, output), or None if no time was left."""
    if time.monotonic() > end:
        return None
    environment = {**os.environ, "DS_FUZZ_ROUND": str(number), "DS_LONG": "1"}
    done = subprocess.run([program, f"--gtest_filter={pattern}", "--gtest_brief=1"], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL)
    return number, done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("minutes", nargs="?", type=float, default=60)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="*")
    args = parser.parse_args()
    program = os.path.join(os.path.abspath(args.build), "bin", "test_fuzz")
    if not os.access(program, os.X_OK):
        sys.exit(f"there is no program '{program}'")
    end, rounds, workers = time.monotonic() + 60 * args.minutes, 0, len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        waiting, number = set(), args.first
        while True:
            while len(waiting) < 2 * workers and time.monotonic() < end:
                waiting.add(pool.submit(play, program, number, args.only, end))
                number += 1
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in filter(None, (future.result() for future in done)):
                if one[1] != 0:
                    pool.shutdown(wait=False, cancel_futures=True)
                    print(f"{one[2]}\nrepeat it: DS_FUZZ_ROUND={one[0]} DS_LONG=1 {program} --gtest_filter='{args.only}'")
                    return 1
                rounds += 1
                print(f"round {one[0]}: ok", flush=True)
    print(f"fuzz: ok, {rounds} rounds of damaged files in {args.minutes:g} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
