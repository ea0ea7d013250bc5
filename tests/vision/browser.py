"""A real browser for tests and figures: chromium, driven by playwright-core in a Node process."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tremula.base.errors import RuntimeFailure

DRIVER_FOLDER = Path(__file__).resolve().parent / "page"  # with its one dependency
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    return next((path for path in map(shutil.which, _NAMES) if path), None)


def missing() -> str:
    """Why there is no usable browser; empty if there is one."""
    if shutil.which("node") is None:
        return "node is not installed (apt-get install nodejs npm)"
    if not (DRIVER_FOLDER / "node_modules" / "playwright-core").is_dir():
        return "playwright-core is not installed (`make browser` in a checkout installs it)"
    if chromium() is None:
        return "chromium is not installed (apt-get install chromium)"
    return ""


class Browser:
    """Calls go to driver.mjs: browser.click(selector=…) sends the command "click"."""

    def __init__(self) -> None:
        why, path = missing(), chromium()
        if why or path is None:
            raise RuntimeFailure("there is no browser.", hint=why)
        self._process = subprocess.Popen(
            ["node", str(DRIVER_FOLDER / "driver.mjs"), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=DRIVER_FOLDER,
            env={**os.environ, "NODE_NO_WARNINGS": "1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, command: str) -> Callable[..., Any]:
        if command.startswith("_"):
            raise AttributeError(command)

        def call(**value: object) -> Any:
            return self._ask(command, value)

        return call

    def _ask(self, command: str, value: dict[str, object]) -> Any:
        assert self._process.stdin is not None, "it was opened with pipes"
        assert self._process.stdout is not None, "it was opened with pipes"
        self._process.stdin.write(json.dumps({"command": command, **value}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the driver ended"}')
        if "error" in answer:
            raise RuntimeFailure(
                f"the browser could not {command} {value}: {answer['error']}.",
                hint="look at the page with `tremula view`",
            )
        return answer["result"]

    def close(self) -> None:
        self._ask("quit", {})
        self._process.wait(timeout=20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
