"""Tests that tools/check_commits.py accepts verbs that look like other forms, and a folder without a history.

usage: commits_test.py TOOLS
"""
import subprocess
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import check_commits  # noqa: E402

GOOD = ["Pass a stream to each call", "io: process a file once", "Need no locale", "text: embed the table", "Bring back a check",
        "tests/cuda, comm: bias the draw", "Seed each draw", "Merge branch 'other'", "Use 72 characters at most: " + 45 * "x"]
BAD = ["Passes a stream", "io: processed", "Using no locale", "the table", "", "12", "comm:", "Use one more: " + 59 * "x"]


def main():
    wrong = [f"refused: {one}: {list(check_commits.complaints(one))}" for one in GOOD if list(check_commits.complaints(one))]
    wrong += [f"accepted: {one}" for one in BAD if not list(check_commits.complaints(one))]
    with tempfile.TemporaryDirectory() as name:
        for prepare in (["true"], ["git", "init", "-q", name]):
            subprocess.run(prepare, check=True)
            done = subprocess.run([sys.executable, "-B", f"{sys.argv[1]}/check_commits.py", name], capture_output=True, text=True)
            if done.returncode or "not checked" not in done.stdout:
                wrong.append(f"without the history: {done.returncode} {done.stdout}{done.stderr}")
    print("\n".join(wrong) or "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
