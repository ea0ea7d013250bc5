"""A real browser for tests: Debian's chromium, driven by playwright-core in a Node process."""

import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def missing() -> str:
    """Why there is no browser to test with; empty if there is one."""
    if shutil.which("node") is None:
        return "node is not installed (apt-get install nodejs npm)"
    if not (HERE / "node_modules" / "playwright-core").is_dir():
        return "playwright-core is not installed (npm ci in tests/vision_page, which make test does)"
    if chromium() is None:
        return "chromium is not installed (apt-get install chromium, which make test tries)"
    return ""


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """Calls go to driver.mjs: browser.click(selector=…) sends the command "click"."""

    def __init__(self):
        path = chromium()
        assert path, "there is a browser"
        self._process = subprocess.Popen(
            ["node", str(HERE / "driver.mjs"), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
            env={**os.environ, "NODE_NO_WARNINGS": "1"},
        )

    def __getattr__(self, command):
        def call(**given):
            return self._ask(command, given)

        return call

    def _ask(self, command, given):
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"command": command, **given}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the driver ended"}')
        if "error" in answer:
            raise AssertionError(f"{command} {given}: {answer['error']}")
        return answer["result"]

    def close(self):
        self.quit()
        self._process.wait(timeout=20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
