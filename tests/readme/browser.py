"""Controls a page of a headless Chromium over the pipe of its DevTools protocol. Needs only Python's standard
library."""
import base64
import fcntl
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from run_tests import browser as program  # noqa: E402


class Browser:
    """A browser with one page. `faults` collects its errors, warnings and network requests until the next open()."""

    SECONDS = 60

    def __init__(self, profile):
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]

        # The browser reads from descriptor 3 and writes to 4.
        def as_expected():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=as_expected, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        self.buffer, self.number, self.session, self.events, self.faults = b"", 0, None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        # Closing the pipe ends the browser.
        os.close(self.out)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.inp)

    def message(self):
        end = time.monotonic() + self.SECONDS
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.inp], [], [], max(0, end - time.monotonic()))
            data = os.read(self.inp, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def heard(self, event):
        name, about = event.get("method"), event.get("params", {})
        self.events.append(name)
        if name == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.faults.append("console: " + " ".join(str(one.get("value")) for one in about["args"]))
        elif name == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.faults.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif name == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:", "about:")):
            self.faults.append(f"the page asks for {about['request']['url'][:80]}")

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") != self.number:
                self.heard(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def look(self, width, height, scheme):
        """Sets the size of the window, and whether the system prefers a `light` or a `dark` scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        # about:blank comes first, because a link to another place of the current page would not load the page again.
        for address in ("about:blank", url):
            self.faults, self.events = [], []
            failed = self.call("Page.navigate", url=address).get("errorText")
            if failed:
                raise RuntimeError(f"{address}: {failed}")
            while "Page.loadEventFired" not in self.events:
                self.heard(self.message())

    def ask(self, script):
        """Returns the value of a JavaScript expression. If the value is a promise, waits for it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def picture(self, **clip):
        """Returns a PNG of the window, or of the part of the page that x, y, width and height give."""
        part = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **part)["data"])


def pixels(png):
    """Returns the rows of an 8-bit PNG. Each row is a list of (red, green, blue)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8 and kind in (2, 6), (depth, kind)
    step, data, at = (3 if kind == 2 else 4), b"", 8
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at:at + 8])
        data += png[at + 8:at + 8 + size] if name == b"IDAT" else b""
        at += size + 12
    raw, before, rows = zlib.decompress(data), bytearray(width * step), []
    for y in range(height):
        begin = y * (width * step + 1)
        row = bytearray(raw[begin + 1:begin + 1 + width * step])
        unfilter(raw[begin], row, before, step)
        rows.append([tuple(row[x:x + 3]) for x in range(0, len(row), step)])
        before = row
    return rows


def unfilter(kind, row, before, step):
    for i, value in enumerate(row):
        left, up = (row[i - step] if i >= step else 0), before[i]
        corner = before[i - step] if i >= step else 0
        if kind == 4:
            guess = left + up - corner
            added = min((left, up, corner), key=lambda one: abs(guess - one))
        else:
            added = (0, left, up, (left + up) // 2)[kind]
        row[i] = (value + added) & 255
