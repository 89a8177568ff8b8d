"""Prints the verdict of a bench: verdict.run(main) is the last line of each bench in bench/*.py.

main(bars) measures, judges with least(), most() and holds(), and prints their results next to the numbers. run() then prints
one last line, `PASS: 7 of 7 bars hold` or `FAIL: 2 of 7 bars missed: ...`. It exits with 1 if a bar was missed, if no bar was
judged (unless only_figures() says why), or if an exception ended the bench before its bars, and with 2 if sys.exit() did.
Programs in C++ only measure and know no bars, except `bench_overlap separate` and `bench_kernels documents`.
"""
import subprocess
import sys
import traceback


class Bars:
    def __init__(self):
        self.count, self.missed, self.absent, self.figures = 0, [], [], None

    def least(self, what, value, bar):
        return self._judge(what, value >= bar, f"{value:.4g} of at least {bar:g}", f"bar {bar:g}")

    def most(self, what, value, bar):
        return self._judge(what, value <= bar, f"{value:.4g} of at most {bar:g}", f"bar at most {bar:g}")

    def holds(self, what, ok, said):
        return self._judge(what, ok, said, what)

    def left_out(self, what):
        """Leaves out a side that this machine lacks, with its bars."""
        if what not in self.absent:
            self.absent.append(what)

    def only_figures(self, why):
        """Says that this form of the bench has no bar."""
        self.figures = why

    def _judge(self, what, ok, said, row):
        self.count += 1
        if not ok:  # a figure that is no number misses every bar
            self.missed.append(f"{what} {said}")
        return row if ok else row + " MISSED"

    def end(self):
        """Prints the verdict and returns the exit code."""
        absent = f"; left out: {', '.join(self.absent)}" if self.absent else ""
        if self.missed:
            print(f"FAIL: {len(self.missed)} of {self.count} bars missed: {'; '.join(self.missed)}{absent}", flush=True)
            return 1
        if self.count == 0 and self.figures:
            print(f"PASS: no bars, {self.figures}{absent}", flush=True)
            return 0
        if self.count == 0:
            print(f"FAIL: no bar was judged{absent}", flush=True)
            return 1
        print(f"PASS: {self.count} of {self.count} bars hold{absent}", flush=True)
        return 0


def run(main):
    bars = Bars()
    try:
        main(bars)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        sys.stdout.flush()
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        if isinstance(error, subprocess.CalledProcessError) and error.stderr:
            print(error.stderr, file=sys.stderr)
        sys.stderr.flush()
        print(f"FAIL: the bench ended before its verdict: {error}", flush=True)
        sys.exit(2 if isinstance(error, SystemExit) else 1)
    sys.exit(bars.end())


if __name__ == "__main__":
    sys.exit("verdict.py is no bench: it is what benches judge with")
