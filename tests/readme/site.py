"""Checks that the site is built without a warning, that its search finds a call, a configuration key and a guide, that every
file that a page loads exists, and that every configuration key and every function of ds.h has an anchor. With Chromium, also
checks that no page has an error or is cut off at the width of a phone, and that the search, the theme's switch and the dark
scheme work.

usage: site.py SOURCE OUT      With DS_SCREENSHOTS=FOLDER, also writes pictures of some pages.
Skipped (exit code 77) without the Sphinx of `./run docs`, and, after all other checks, without a browser.
"""
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

import browser

SOURCE, OUT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SITE = OUT / "html"
SPHINX = SOURCE / ".cache/venv-docs"
PAGES = ["index", "start/first_run", "guides/memory", "reference/config", "reference/deepspeed_compat", "concepts/overview",
         "results/benchmarks", "project/dependencies", "tree/README", "tree/include/ds.h", "tree/include/functions"]
# Words that the search must find, as stems, like in the index.
WORDS = ["ds_train_batch", "gradient_clip", "nvme"]
SCREENSHOTS = ["index", "guides/memory", "reference/config", "reference/deepspeed_compat", "tree/README",
               "tree/include/functions"]
PHONE, DESK = 390, 1200
CONTRAST = (SOURCE / "tests/support/contrast.js").read_text()
PROBE = pathlib.Path(__file__).with_name("site_probe.js").read_text()
failures = []


class Page(html.parser.HTMLParser):
    """A page of the site: its ids, the files that it loads, its links, and the entries of its definition lists as
    [ids, links, title, words]."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.loads, self.links, self.entries, self.inside = [], [], [], [], None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        of = dict(attrs)
        if tag == "dt":
            self.entries.append([[], [], "", ""])
        self.inside = tag if tag in ("dt", "dd") else self.inside
        if "id" in of:
            self.ids.append(of["id"])
        if tag in ("script", "img") and of.get("src"):
            self.loads.append(of["src"])
        if tag == "link" and of.get("rel") in ("stylesheet", "icon"):
            self.loads.append(of["href"])
        if tag == "a" and self.inside == "dt":
            self.entries[-1][0].append(of.get("id"))
            self.entries[-1][1].append(of.get("href"))

    def handle_endtag(self, tag):
        self.inside = None if tag in ("dt", "dd") else self.inside

    def handle_data(self, data):
        if self.inside:
            self.entries[-1][2 if self.inside == "dt" else 3] += data


def expect(right, wrong):
    if not right:
        failures.append(wrong)
    return right


def file_of(page, address):
    return (page.parent / urllib.parse.unquote(urllib.parse.urlsplit(address).path)).resolve()


def check_loads(pages):
    for path, page in pages.items():
        for address in page.loads:
            if not address.startswith("data:"):
                expect(file_of(path, address).is_file(), f"{path.relative_to(SITE)} loads {address}, which is not there")


def check_keys(pages):
    written = re.findall(r'<a id="([^"]+)">', (SOURCE / "docs/reference/config.md").read_text(encoding="utf-8"))
    page = pages[SITE / "reference/config.html"]
    entries = {name: words for names, _, _, words in page.entries for name in names if name}
    expect(len(written) > 200, f"docs/reference/config.md has {len(written)} keys")
    for key in written:
        expect(entries.get(key, "").strip(), f"the key {key} has no entry in a definition list")
        expect(page.ids.count(key) == 1, f"the key {key} has {page.ids.count(key)} anchors")
    return len(written)


def check_functions(pages):
    functions = re.findall(r"^DS_API [\w\s*]*?\b(ds_\w+)\(", (SOURCE / "include/ds.h").read_text(encoding="utf-8"), re.M)
    path = SITE / "tree/include/functions.html"
    listed = {title.strip(): (links, words) for _, links, title, words in pages[path].entries}
    for function in functions:
        links, words = listed.get(function, ([], ""))
        expect(words.strip(), f"the index of functions has no words about {function}")
        for link in links or [""]:
            there = pages.get(file_of(path, link))
            place = urllib.parse.urlsplit(link).fragment
            # docutils derives the id from the heading in this way.
            named = re.search(rf"(^|-){function.replace('_', '-')}(-|$)", place)
            expect(there and named and place in there.ids, f"{function} leads to '{link}'")
    expect(len(listed) == len(functions), f"ds.h has {len(functions)} functions, their index {len(listed)}")
    index = (SITE / "index.html").read_text(encoding="utf-8")
    expect(index.count('href="tree/include/functions.html"') >= 2, "the navigation lacks the index of functions")
    return len(functions)


def findings(page, path, contrasts):
    page.open(path.as_uri())
    return [*page.faults, *page.ask(f"(() => {{ {CONTRAST} return ({PROBE})({str(contrasts).lower()}); }})()")]


def probe(page, path, contrasts=False):
    return [f"{path.relative_to(SITE)}: {one}" for one in findings(page, path, contrasts)]


def check_probe(page, folder):
    """Checks that errors of a page are heard, and that the probe finds a fault of each kind except a narrow cell."""
    (folder / "faulty.html").write_text("""<!doctype html><script src="lost.js"></script><script>no_such_name()</script>
<article><p style="width:900px">wide</p><p style="color:#888;background:#999">pale</p>
<div style="overflow-x:auto"><div style="width:900px">hidden</div></div>
<script>console.error("heard")</script></article>""")
    found = "\n".join(findings(page, folder / "faulty.html", contrasts=True))
    for fault in ("ERR_FILE_NOT_FOUND", "no_such_name", "heard", "px wide of", "cut:", "must be scrolled", "contrast"):
        expect(fault in found, f"the probe does not see: {fault}. It sees:\n{found}")


def brightness(page):
    """Returns the mean, over a corner of the plan's picture, of the brightest channel of each pixel. The corner shows the
    background, and 0 is black."""
    place = page.ask("(() => { const r = document.querySelector('article img').getBoundingClientRect();"
                     " return [r.x + scrollX, r.y + scrollY]; })()")
    rows = browser.pixels(page.picture(x=place[0] + 10, y=place[1] + 2, width=40, height=4))
    values = [max(pixel) for row in rows for pixel in row]
    return sum(values) / len(values)


def check_switch(page):
    """Checks, while the system prefers light, that the theme's switch has three states and that page and plan follow it. Then
    checks, while the system prefers dark, that the plan is dark before the switch is used."""
    page.look(DESK, 900, "light")
    page.open((SITE / "tree/README.html").as_uri())
    seen = {}
    for _ in range(3):
        page.ask("document.querySelector('.theme-toggle').click()")
        theme = page.ask("document.body.dataset.theme")
        back = page.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        seen[theme] = (max(back), brightness(page))
    expect(set(seen) == {"auto", "light", "dark"}, f"the theme's switch has the states {sorted(seen)}")
    for theme, (back, plan) in seen.items():
        expect((back < 80) == (theme == "dark"), f"theme {theme}: the page's background is {back}")
        expect((plan < 80) == (theme == "dark"), f"theme {theme}: the plan's background is {plan}")
    page.ask("localStorage.clear()")
    page.look(DESK, 900, "dark")
    page.open((SITE / "tree/README.html").as_uri())
    expect(brightness(page) < 80, "the plan stays white where the system is dark")


def check_search(page):
    page.open((SITE / "search.html").as_uri() + "?q=gradient_clipping")
    count = page.ask("""new Promise(done => { let tries = 0; const look = () => {
        const found = document.querySelectorAll('#search-results li a').length;
        if (found || ++tries > 100) done(found); else setTimeout(look, 50); }; look(); })""")
    expect(count > 0, f"the search for gradient_clipping finds nothing: {page.faults}")


def take_screenshots(page, folder):
    for width, scheme in ((PHONE, "light"), (PHONE, "dark"), (DESK, "light"), (DESK, "dark")):
        page.look(width, 1000, scheme)
        for name in SCREENSHOTS:
            page.open((SITE / f"{name}.html").as_uri())
            (folder / f"{name.replace('/', '-')}-{width}-{scheme}.png").write_bytes(page.picture())


def check_in_browser(pages):
    with tempfile.TemporaryDirectory() as folder:
        page = browser.Browser(f"{folder}/profile")
        try:
            page.look(PHONE, 844, "light")
            check_probe(page, pathlib.Path(folder))
            for path in sorted(pages):
                failures.extend(probe(page, path))
            for scheme in ("light", "dark"):
                page.look(DESK, 900, scheme)
                for name in PAGES:
                    failures.extend(f"{scheme}: {one}" for one in probe(page, SITE / f"{name}.html", contrasts=True))
            check_switch(page)
            check_search(page)
            if os.environ.get("DS_SCREENSHOTS"):
                take_screenshots(page, pathlib.Path(os.environ["DS_SCREENSHOTS"]))
        finally:
            page.close()


def main():
    if not (SPHINX / "packages").exists():
        print("skipped: Sphinx is not in .cache/venv-docs (./run docs puts it there)")
        return 77
    built = subprocess.run([SPHINX / "bin/python", SOURCE / "tools/site.py", OUT], capture_output=True, text=True)
    if built.returncode:
        print(built.stdout + built.stderr)
        return 1
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for page in PAGES:
        expect(SITE / f"{page}.html" in pages, f"no page {page}")
    index = (SITE / "searchindex.js").read_text()
    for word in WORDS:
        expect(re.search(rf"\b{word}\b", index), f"the search does not find {word}")
    check_loads(pages)
    counts = f"{len(pages)} pages, {check_keys(pages)} keys, {check_functions(pages)} functions"
    if browser.program():
        check_in_browser(pages)
    print("\n".join(failures) or f"site: {counts}")
    if failures:
        return 1
    if not browser.program():
        print("skipped: no browser (chromium or google-chrome in PATH, or DS_BROWSER) for scripts, widths and colours")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
