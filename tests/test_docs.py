"""Every Python block of README.md and docs/*.md runs, and prints what the page says it prints."""

import contextlib
import io
import linecache
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the first line of its content, and that content."""

    language: str
    info: str
    first_line: int  # counted from 1
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A Python block to run, and what it must print, if the page says so."""

    code: Block
    printed: Block | None


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    blocks, opening, content = [], None, []
    for number, line in enumerate(page.splitlines(), 1):
        match = FENCE.match(line)
        if opening is None:
            if match:
                opening, first, content = match, number + 1, []
        elif match and not match["language"]:
            block = Block(opening["language"], opening["info"].strip(), first, tuple(content))
            blocks.append(block)
            opening = None
        else:
            content.append(line.removeprefix(opening["indent"]))
    assert opening is None, f"the block opened in line {first - 1} is never closed"
    return blocks


def steps_of(page: str) -> list[Step]:
    """Python blocks, each with the text block that follows it, maybe after "… prints:"."""
    lines, blocks = page.splitlines(), blocks_of(page)
    steps = []
    for i, block in enumerate(blocks):
        if block.language != "python":
            continue
        follower = blocks[i + 1] if i + 1 < len(blocks) else None
        if follower is not None:
            between = lines[block.first_line + len(block.lines) : follower.first_line - 2]
            is_output = follower.language == "text" and follower.info != "no-check"
            prose = "".join(between).strip()
            is_promise = not prose or prose.endswith("prints:")
            follower = follower if is_output and is_promise else None
        steps.append(Step(block, follower))
    return steps


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def run_page(page: str, name: str, folder: Path) -> None:
    """Run a page's blocks in one namespace, in `folder`, which must be the current one.

    The blocks are also written to a file there, each on the lines it has in the page: tracebacks
    show them, and code that reads its own source (codelets) finds it.
    """
    steps = steps_of(page)
    file_lines = [""] * len(page.splitlines())
    for step in steps:
        first = step.code.first_line - 1
        file_lines[first : first + len(step.code.lines)] = step.code.lines
    script = f"{Path(name).stem.replace('-', '_')}.py"
    (folder / script).write_text("\n".join(file_lines) + "\n", encoding="utf-8")
    linecache.clearcache()
    module = ModuleType(f"page_{Path(script).stem}")
    module.__file__ = script
    sys.modules[module.__name__] = module
    try:
        for step in steps:
            run_step(step, module, name, script)
    finally:
        del sys.modules[module.__name__]


def run_step(step: Step, module: ModuleType, name: str, script: str) -> None:
    source = "\n" * (step.code.first_line - 1) + "\n".join(step.code.lines)
    printed = io.StringIO()
    try:
        code = compile(source, script, "exec")
        # PrintTensor writes to stderr: a reader sees both streams as one.
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            exec(code, vars(module))
    except Exception as error:  # noqa: BLE001 (whatever it is, the page is named)
        line = line_of(error, script) or step.code.first_line
        text = "".join(traceback.format_exception(error))
        pytest.fail(f"{name}:{line}: {error!r}\n\n{text}", pytrace=False)
    if step.printed is not None:
        expected, got = trimmed("\n".join(step.printed.lines)), trimmed(printed.getvalue())
        if expected != got:
            where = f"{name}:{step.printed.first_line}"
            pytest.fail(
                f"{where}: the block before prints\n{got}\n\nthe page says\n{expected}",
                pytrace=False,
            )


def line_of(error: BaseException, script: str) -> int | None:
    """The last line of the page that an exception passed through."""
    if isinstance(error, SyntaxError) and error.filename == script:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == script]
    return lines[-1] if lines else None


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_run(path, tmp_path, monkeypatch):
    """All Python blocks of the page run in order and print what stands below them."""
    monkeypatch.chdir(tmp_path)
    run_page(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)), tmp_path)


GOOD = """# Page

```python
import inspect

class Kept:
    word = "kept"

def kept(): return Kept.word
```

```python
print(kept(), "  ")
print(inspect.getsource(Kept).splitlines()[1])
```

```text
kept
    word = "kept"
```

```python
print("not checked")
```

Words between.

```text
anything
```

* a list

  ```python
  print("also not checked")
  ```
  ```text no-check
  anything
  ```

```sh
no python
```
"""


def failure(page: str, folder: Path) -> str:
    with pytest.raises(pytest.fail.Exception) as caught:
        run_page(page, "page.md", folder)
    return str(caught.value)


def test_blocks_share_names_and_can_read_their_source(tmp_path, monkeypatch):
    """Blocks share one namespace, see their own source, and only text right below one counts."""
    monkeypatch.chdir(tmp_path)
    run_page(GOOD, "page.md", tmp_path)


def test_failures_name_the_line(tmp_path, monkeypatch):
    """An error, a syntax error and a wrong output are reported with the page's own line."""
    monkeypatch.chdir(tmp_path)
    assert failure("\n```python\nx = 1\n1 / 0\n```\n", tmp_path).startswith(
        "page.md:4: ZeroDivisionError"
    )
    assert failure("```python\nok = 1\nthis is no python\n```\n", tmp_path).startswith(
        "page.md:3: SyntaxError"
    )
    wrong = "```python\nprint(1)\n```\n```text\n2\n```\n"
    assert failure(wrong, tmp_path) == ("page.md:5: the block before prints\n1\n\nthe page says\n2")
    promised = wrong.replace("```\n```", "```\nIt prints:\n```")
    assert failure(promised, tmp_path).endswith("the page says\n2")


def test_an_open_block_is_an_error():
    """A block that is never closed does not pass silently."""
    with pytest.raises(AssertionError, match="opened in line 2 is never closed"):
        blocks_of("text\n```python\nx = 1\n")
