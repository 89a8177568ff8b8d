"""Wrong arguments to every public call. Each is refused by a line that names the argument.

The test tries 4 values of each argument, or all values with DS_LONG. DS_SEQUENCE=7 draws the values of seed 7.
"""
import os
import random
import sys
import tempfile

import wrong_arguments


def main():
    long = bool(os.environ.get("DS_LONG"))
    seed = int(os.environ.get("DS_SEQUENCE") or (random.randrange(1 << 30) if long else 0))
    print("seed", seed)
    wrong, count = [], 0
    with tempfile.TemporaryDirectory(prefix="libds-arguments-") as folder:
        os.chdir(folder)  # some correct calls create files
        for text, call in wrong_arguments.wrong_calls(random.Random(seed), None if long else 4):
            count += 1
            if said := call():
                wrong.append(f"{text}: {said}")
        os.chdir("/")
    print(f"{count} calls, {len(wrong)} wrong", *wrong[:40], sep="\n  ")
    return 1 if wrong or count < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
