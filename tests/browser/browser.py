"""Drives Debian's headless Chromium through its debugging pipe.

There is one browser with one page. Inputs are real: they pass the renderer's
queue, and a call returns when the page has handled them.

    with Browser() as page:
        page.open("/tmp/a.html")
        page.key("+")
        page.screenshot().at(10, 20)
"""

import base64
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

ALT, CTRL, SHIFT = 1, 2, 8
# Key codes that Chromium needs for keys that type no character.
KEY_CODES = {
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
    "Escape": 27,
}
PATIENCE = 60  # seconds to wait for one answer, also on a busy machine


class BrowserError(Exception):
    """The browser ended, did not answer in time, or refused a call."""


class Picture:
    """Pixels of a screenshot, addressed in CSS pixels, as in the page."""

    def __init__(self, png, scale):
        self.scale = scale
        self.width, self.height, self.bytes, self.rows = _decode_png(png)

    def at(self, x, y):
        """(red, green, blue) of the device pixel that holds the point."""
        column, row = int(x * self.scale), int(y * self.scale)
        if not (0 <= column < self.width and 0 <= row < self.height):
            raise IndexError(f"no pixel at {x}, {y}")
        first = column * self.bytes
        return tuple(self.rows[row][first : first + 3])

    def __eq__(self, other):
        return self.rows == other.rows


def _decode_png(data):
    """(width, height, bytes a pixel, rows) of 8-bit RGB or RGBA."""
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        at += size + 12
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(
                ">IIBBBBB", body
            )
            if depth != 8 or colour not in (2, 6) or interlaced:
                raise BrowserError(f"a PNG of kind {depth}, {colour}")
        elif kind == b"IDAT":
            packed += body
    size = 3 if colour == 2 else 4
    raw, line = zlib.decompress(packed), width * size
    above, rows = bytearray(line), []
    for first in range(0, height * (line + 1), line + 1):
        row = bytearray(raw[first + 1 : first + 1 + line])
        _unfilter(raw[first], row, above, size)
        rows.append(row)
        above = row
    return width, height, size, rows


def _unfilter(kind, row, above, size):
    """Adds to each byte the prediction of this row's PNG filter."""
    if kind == 1:
        for i in range(size, len(row)):
            row[i] = (row[i] + row[i - size]) & 255
    elif kind == 2:
        row[:] = bytes([(a + b) & 255 for a, b in zip(row, above)])
    elif kind == 3:
        for i in range(len(row)):
            left = row[i - size] if i >= size else 0
            row[i] = (row[i] + (left + above[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(row)):
            a, c = (row[i - size], above[i - size]) if i >= size else (0, 0)
            b = above[i]
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            best = a if pa <= pb and pa <= pc else b if pb <= pc else c
            row[i] = (row[i] + best) & 255


class Browser:
    """A context that starts Chromium, gives its page, and ends Chromium."""

    def __enter__(self):
        program = shutil.which("chromium")
        if not program:
            raise BrowserError("there is no chromium: dev/setup browser")
        self._profile = tempfile.mkdtemp(prefix="tessera-browser-")
        ours, theirs = os.pipe(), os.pipe()
        self._log = open(os.path.join(self._profile, "log"), "w+")
        # Chromium reads calls from 3 and writes answers to 4.
        self._process = subprocess.Popen(
            [
                "bash", "-c",
                f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}',
                program, "--headless=new", "--remote-debugging-pipe",
                "--no-sandbox",  # needed for root in a container
                "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update",
                "--disable-extensions", "--hide-scrollbars", "--mute-audio",
                "--user-data-dir=" + self._profile, "about:blank",
            ],
            pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._calls, self._answers = ours[1], theirs[0]
        os.set_blocking(self._answers, False)
        self._read, self._last, self._events = b"", 0, []
        try:
            return Page(self)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._calls)
        os.close(self._answers)
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        """The answer to one call; events before it are kept for `take`."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._calls, data) :]
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(until, method)
            if answer.get("id") != self._last:
                self._events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def take(self):
        """All events since the last `take`."""
        events, self._events = self._events, []
        return events

    def wait(self, method):
        """Waits until there was such an event since the last `take`."""
        until = time.monotonic() + PATIENCE
        while not any(e.get("method") == method for e in self._events):
            self._events.append(self._receive(until, method))

    def _receive(self, until, what):
        while b"\0" not in self._read:
            try:
                data = os.read(self._answers, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise BrowserError(f"no answer to {what}") from None
                time.sleep(0.001)
                continue
            if not data:
                self._log.seek(0)
                said = self._log.read()[-2000:]
                raise BrowserError("chromium ended:\n" + said)
            self._read += data
        message, self._read = self._read.split(b"\0", 1)
        return json.loads(message)


class Page:
    """The page: what a user sees and does, and the problems that it reports."""

    def __init__(self, browser):
        self._browser = browser
        targets = browser.call("Target.getTargets")["targetInfos"]
        target = next(t for t in targets if t["type"] == "page")
        self._session = browser.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(domain + ".enable")
        self.scale = 1

    def _call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width, height, scale=1):
        self.scale = scale
        self.size = width, height
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=scale, mobile=False,
        )

    def prefer(self, scheme):
        """Sets the preferred color scheme: 'light' or 'dark'."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path):
        """Opens a file; returns when it is loaded and its script has run."""
        self._browser.take()
        self._address = "file://" + os.path.abspath(path)
        self._call("Page.navigate", url=self._address)
        self._browser.wait("Page.loadEventFired")

    def problems(self):
        """Errors, warnings and requests since the page was opened."""
        found = []
        for event in self._browser.take():
            kind, about = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(about["exceptionDetails"])
            elif kind == "Runtime.consoleAPICalled":
                found.append([about["type"], about["args"]])
            elif kind == "Log.entryAdded":
                found.append(about["entry"]["text"])
            elif kind == "Network.requestWillBeSent":
                if about["request"]["url"] != self._address:
                    found.append("asks for " + about["request"]["url"])
        return found

    def evaluate(self, expression):
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits until all changes are drawn."""
        self.evaluate(
            "new Promise(r => requestAnimationFrame("
            "() => requestAnimationFrame(() => r(0))))"
        )

    def screenshot(self):
        self.settle()
        answer = self._call("Page.captureScreenshot", optimizeForSpeed=True)
        return Picture(base64.b64decode(answer["data"]), self.scale)

    def mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def point(self, x, y):
        self.mouse("mouseMoved", x, y)

    def click(self, x, y, times=1):
        for n in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=n)

    def drag(self, start, end):
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def wheel(self, x, y, amount, modifiers=0):
        self.mouse(
            "mouseWheel", x, y, deltaX=0, deltaY=amount, modifiers=modifiers
        )

    def touch(self, kind, *points):
        places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self._call("Input.dispatchTouchEvent", type=kind, touchPoints=places)

    def key(self, name, modifiers=0, times=1):
        code = KEY_CODES.get(name) or ord(name.upper())
        silent = name in KEY_CODES or modifiers & ~SHIFT
        typed = {} if silent else {"text": name}
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                more = typed if kind == "keyDown" else {}
                self._call(
                    "Input.dispatchKeyEvent", type=kind, key=name,
                    modifiers=modifiers, windowsVirtualKeyCode=code, **more,
                )
