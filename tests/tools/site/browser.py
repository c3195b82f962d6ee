"""A browser without a window, driven over a pipe by the DevTools protocol.

    with Browser(folder) as browser:
        tab = browser.tab(width=400)
        tab.open("http://127.0.0.1:8000/index.html")
        tab.evaluate("document.title")

Chromium alone is needed: no driver, and no package of another language.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

TIMEOUT = 60


class BrowserError(Exception):
    pass


def find():
    """The path of a browser, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    def __init__(self, folder):
        """`folder` gets the profile, and the log of the browser."""
        folder.mkdir(parents=True, exist_ok=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def descriptors():
            # The browser reads commands from descriptor 3 and writes answers to 4.
            ends = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.log = open(folder / "browser.log", "w")
        # No name is looked up, and only this machine is asked: what a page loads from another host fails, and is seen.
        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
             f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=descriptors)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.tabs = b"", 0, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.log.close()

    def call(self, method, session=None, **parameters):
        """Sends a command and returns its result."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(TIMEOUT, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self, seconds, reason):
        """The next message. An event goes to its tab as well."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise BrowserError(f"{reason}: no answer in {seconds} s")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message and message.get("sessionId") in self.tabs:
            self.tabs[message["sessionId"]].event(message["method"], message["params"])
        return message

    def tab(self, **how):
        return Tab(self, **how)


class Tab:
    def __init__(self, browser, width, height=900, script=True, dark=False):
        self.browser = browser
        # Each tab has a profile of its own, as if of another reader: a page stores the reader's choice of colours.
        profile = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=profile)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.target = target
        browser.tabs[self.session] = self
        self.forget()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)

    def forget(self):
        self.errors, self.requests, self.loaded = [], [], False

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        del self.browser.tabs[self.session]

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def event(self, method, parameters):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def open(self, address):
        """Opens a page and waits until it is loaded."""
        self.forget()
        result = self.call("Page.navigate", url=address)
        if "errorText" in result:
            raise BrowserError(f"{address}: {result['errorText']}")
        while not self.loaded:
            self.browser.receive(TIMEOUT, address)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until the expression is true, and returns its value."""
        end = time.monotonic() + TIMEOUT
        while not (value := self.evaluate(expression)):
            if time.monotonic() > end:
                raise BrowserError(f"never true: {expression}")
            time.sleep(0.02)
        return value

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
