"""The site is built without a warning, and its search index knows a call, a configuration key and a guide.

usage: site.py SOURCE OUT
"""
import pathlib
import re
import subprocess
import sys

SOURCE, OUT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
PAGES = ["index", "start/first_run", "guides/memory", "reference/config", "concepts/overview", "results/benchmarks",
         "project/dependencies", "tree/include/ds.h"]
WORDS = ["ds_train_batch", "gradient_clip", "nvme"]  # as the index has them: stems


def main():
    built = subprocess.run([sys.executable, SOURCE / "tools/site.py", OUT], capture_output=True, text=True)
    failures = [built.stdout + built.stderr] if built.returncode else []
    if not failures:
        failures += [f"no page {page}" for page in PAGES if not (OUT / "html" / f"{page}.html").exists()]
        index = (OUT / "html/searchindex.js").read_text()
        failures += [f"the search does not find {word}" for word in WORDS if not re.search(rf"\b{word}\b", index)]
    print("\n".join(failures) or f"site: {len(PAGES)} pages, {len(WORDS)} words")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
