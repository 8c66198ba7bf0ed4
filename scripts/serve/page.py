"""Tests a server's page in headless Chromium, using only Python.

    python scripts/serve/page.py URL [--pictures FOLDER]

The server is that of crates/serve/tests/page.rs, which runs this script: `picture` gives the mean of each of ten bands
of a grey picture of 28 by 28, from top to bottom, `row` each of its four numbers doubled, `text` its texts,
`accumulate` the sum of a sequence, `shifted` its two numbers plus `by`, which is 10 if omitted. Prints a line for each
check; fails if a check fails, or if there is no Chromium, which POLYGRAD_CHROMIUM may name. --pictures keeps
screenshots.
"""

import argparse
import base64
import json
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
PATIENCE = 60.0


class Page:
    """A page of Chromium, controlled over two pipes."""

    def __init__(self, program, folder):
        ours, its = os.pipe(), os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]

        def connect():
            # The intermediate copies keep the four file descriptors from overwriting each other.
            read, write = os.dup(ours[0]), os.dup(its[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        command = [program, *flags, f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, **quiet)
        os.close(ours[0])
        os.close(its[1])
        self.to, self.of = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(its[0], "rb")
        self.number, self.session, self.faults = 0, None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.faults.append(answer["params"]["exceptionDetails"]["text"])
            if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                self.faults.append(answer["params"]["entry"]["text"])

    def next(self):
        read = bytearray()
        while (byte := self.of.read(1)) not in (b"\0", b""):
            read += byte
        if not byte:
            raise RuntimeError("Chromium has gone")
        return json.loads(read)

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            if time.monotonic() > end:
                raise RuntimeError(f"{expression} never came true")
            time.sleep(0.02)

    def open(self, url):
        self.ask("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete' && !!document.body.dataset.state")

    def run(self):
        self.value("delete document.body.dataset.state; document.querySelector('button:not([type])').click()")
        self.wait("document.body.dataset.state")

    def press(self, key, **more):
        text = {"Enter": "\r"}.get(key)
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, **more}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def drag(self, points):
        """Moves a pressed mouse over the canvas, by fractions of its extents."""
        box = self.value("(b => [b.left, b.top, b.width, b.height])(document.querySelector('canvas').getBoundingClientRect())")
        kinds = ["mousePressed"] + ["mouseMoved"] * (len(points) - 1)
        for kind, (x, y) in [*zip(kinds, points), ("mouseReleased", points[-1])]:
            at = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
            self.ask("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **at)

    def bars(self):
        """(class, value) of the rows shown, in order."""
        texts = self.value("[...document.querySelectorAll('.bars span')].map(span => span.textContent)")
        return list(zip(map(int, texts[::2]), map(float, texts[1::2])))

    def close(self):
        self.process.terminate()
        self.process.wait()


def png(path, width, height, rows):
    """A grey PNG picture from rows of bytes."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b""))


def shown_bars(page, url, folder):
    page.open(f"{url}/?model=picture&run=1")
    bars = page.bars()
    assert len(bars) == 10 and all(value == 0 for _, value in bars), bars
    assert page.value("document.querySelector('#time').textContent").endswith(" ms")


def drawn_by_mouse(page, url, folder):
    page.open(f"{url}/?model=picture")
    page.drag([(0.1, 0.05), (0.5, 0.05), (0.9, 0.05)])
    page.run()
    bars = page.bars()
    assert bars[0][0] == 0 and bars[0][1] > 0.3 and bars[-1][1] == 0, bars
    page.value("document.querySelector('button.plain').click()")
    page.run()
    assert all(value == 0 for _, value in page.bars()), page.bars()


def drawn_by_keys(page, url, folder):
    page.open(f"{url}/?model=picture")
    page.value("document.querySelector('canvas').focus()")
    for _ in range(13):
        page.press("ArrowDown", modifiers=8)
    for _ in range(10):
        page.press("ArrowRight")
    page.press("Tab")
    assert page.value("document.activeElement.type") == "file"
    page.run()
    assert page.bars()[0][0] == 9 and page.bars()[0][1] > 0.1, page.bars()


def a_file(page, url, folder):
    page.open(f"{url}/?model=picture")
    picture = folder / "lower.png"
    png(picture, 56, 56, [bytes([255 if row >= 28 else 0] * 56) for row in range(56)])
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    node = page.ask("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
    page.ask("DOM.setFileInputFiles", files=[str(picture)], nodeId=node)
    page.wait("document.querySelector('canvas').getContext('2d').getImageData(140, 270, 1, 1).data[0] === 255")
    page.run()
    values = [value for _, value in sorted(page.bars())]
    assert max(values[:4]) < 0.01 and min(values[6:]) > 0.99, values


def a_row(page, url, folder):
    page.open(f"{url}/?model=row")
    page.value("document.querySelectorAll('.cells input').forEach((cell, i) => { cell.value = [1, -2, 30, 4][i]; })")
    page.value("document.querySelector('.cells input').focus()")
    page.value("delete document.body.dataset.state")
    page.press("Enter")
    page.wait("document.body.dataset.state")
    assert page.bars() == [(2, 60), (3, 8), (0, 2), (1, -4)], page.bars()


def texts(page, url, folder):
    page.open(f"{url}/?model=text")
    page.value("document.querySelector('textarea').value = \"it's\\n<b>ä</b>\"")
    page.run()
    assert page.value("document.querySelector('#outputs pre').textContent") == "[\"it's\",\"<b>ä</b>\"]"


def the_line_of_curl(page, url, folder):
    """The line is copied and run."""
    if not shutil.which("curl"):
        raise RuntimeError("there is no curl")
    texts(page, url, folder)
    line = page.value("document.querySelector('#curl').textContent")
    answer = json.loads(subprocess.check_output(["sh", "-c", line], stderr=subprocess.DEVNULL))
    assert answer["outputs"][0]["data"] == ["it's", "<b>ä</b>"], (shlex.split(line), answer)


def raw_json_and_a_fault(page, url, folder):
    page.open(f"{url}/?model=row&as=JSON")
    page.value("document.querySelector('textarea').value = '{\"shape\": [1, 4], \"data\": [1, 2, 3]}'")
    page.run()
    wanted = 'the data of "x" has a list of 3 where its shape [1, 4] has 4'
    assert page.value("document.querySelector('.error').textContent") == wanted
    assert page.value("document.body.dataset.state") == "failed"
    # The browser logs every answer that is an error.
    page.faults.clear()


def a_sequence(page, url, folder):
    page.open(f"{url}/?model=accumulate&as=JSON")
    sums = []
    for _ in range(3):
        page.value("document.querySelector('textarea').value = '{\"shape\": [1, 1], \"data\": [2]}'")
        page.run()
        sums.append(json.loads(page.value("document.querySelector('#outputs pre').textContent")))
    assert sums == [[2], [4], [6]], sums


def what_may_be_left_out(page, url, folder):
    page.open(f"{url}/?model=shifted&run=1")
    assert sorted(page.bars()) == [(0, 10), (1, 10)], page.bars()
    page.value("(kind => { kind.value = 'table'; kind.onchange() })(document.querySelectorAll('#inputs select')[1])")
    page.value("[...document.querySelectorAll('.cells input')].at(-1).value = 3")
    page.run()
    assert sorted(page.bars()) == [(0, 3), (1, 3)], page.bars()


def another_model(page, url, folder):
    page.open(f"{url}/?model=picture&run=1")
    page.value("(m => { m.value = 'row'; m.dispatchEvent(new Event('change')) })(document.querySelector('#model'))")
    page.wait("document.querySelectorAll('.cells input').length === 4")
    assert page.value("document.querySelector('#outputs').children.length") == 0


def a_phone_in_the_dark(page, url, folder):
    colour = "getComputedStyle(document.documentElement).color"
    page.ask("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=2, mobile=True)
    for model in ("picture", "row", "text"):
        page.open(f"{url}/?model={model}&run=1")
        wide = "[...document.querySelectorAll('*')].filter(element => element.getBoundingClientRect().right > 360)"
        wide = page.value(f"{wide}.map(element => element.outerHTML.slice(0, 80))")
        assert page.value("document.documentElement.scrollWidth") <= 360, (model, wide)
    light = page.value(colour)
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value(colour) != light
    page.open(f"{url}/?model=picture&run=1")


CHECKS = [
    shown_bars,
    drawn_by_mouse,
    drawn_by_keys,
    a_file,
    a_row,
    texts,
    the_line_of_curl,
    raw_json_and_a_fault,
    a_sequence,
    what_may_be_left_out,
    another_model,
    a_phone_in_the_dark,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--pictures", type=pathlib.Path)
    asked = parser.parse_args()
    program = os.environ.get("POLYGRAD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        sys.exit(f"there is no Chromium (looked for {', '.join(NAMES)})\n  fix: apt-get install chromium")
    failed = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Page(program, folder)
        try:
            for check in CHECKS:
                reason = ""
                try:
                    check(page, asked.url, pathlib.Path(folder))
                    assert not page.faults, page.faults
                except (AssertionError, RuntimeError) as error:
                    reason, failed = f": {error}", failed + 1
                    page.faults.clear()
                print("failed" if reason else "ok", check.__name__ + reason, flush=True)
                if asked.pictures:
                    asked.pictures.mkdir(parents=True, exist_ok=True)
                    data = page.ask("Page.captureScreenshot", format="png")["data"]
                    (asked.pictures / f"{check.__name__}.png").write_bytes(base64.b64decode(data))
        finally:
            page.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
