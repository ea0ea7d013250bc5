"""House style that no linter checks: first lines, sizes, where tests stand, no private paths."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sources import ROOT, functions, house

SOURCE = ROOT / "src"
TESTS = ROOT / "tests"
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
PRIVATE_PATH = re.compile(r"(?<![\w.~$}])/(?:home|root|work|Users)/\w")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cpp", ".hpp", ".h", ".expected", ""}


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def files_of_tests() -> list[Path]:
    return sorted(p for p in TESTS.rglob("test_*.py") if "node_modules" not in p.parts)


def header_files() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*") if p.suffix in {".h", ".hpp", ".cpp"})


def published_texts() -> Iterator[Path]:
    """Every text file of the repository, without what make made."""
    yield from (
        path
        for path in ROOT.iterdir()
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git"
    )
    for folder in ("src", "tests", "docs", "examples", "benchmarks", "tools", ".ci"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXT_SUFFIXES and ".egg-info" not in str(path):
                yield path


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_file_says_what_it_is():
    """Each Python file starts with a docstring, each C++ file with a comment, on its first line."""
    starts = [(path, ('"""', 'r"""')) for path in python_files()]
    starts += [(path, ("//", "/*")) for path in header_files()]
    silent = [
        name(path)
        for path, start in starts
        if not path.read_text(encoding="utf-8").startswith(start)
    ]
    assert not silent, "\n".join(silent)


def test_files_are_short():
    """No source file is longer than 800 lines."""
    sizes = {
        name(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files() + header_files()
    }
    assert not {path: size for path, size in sizes.items() if size > MAX_FILE_LINES}


def test_functions_are_short():
    """No function under src is longer than 60 lines."""
    long = []
    for path in python_files():
        for node in functions(path):
            n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if n_lines > MAX_FUNCTION_LINES:
                long.append(f"{name(path)}:{node.lineno}: {node.name} has {n_lines} lines")
    assert not long, "\n".join(long)


def test_tests_stand_where_their_source_stands():
    """Each folder of tests has the path of a folder of the package or of the repository."""
    folders = {path.parent.relative_to(TESTS) for path in files_of_tests()}
    homes = (SOURCE / "tremula", ROOT)
    misplaced = [str(f) for f in folders if not any((home / f).is_dir() for home in homes)]
    assert not misplaced, "\n".join(sorted(misplaced))


def test_every_test_says_its_claim():
    """Each test has a docstring, and its first line ends there or is followed by a blank one."""
    silent = []
    for path in files_of_tests():
        for node in functions(path):
            if node.name.startswith("test_"):
                _, *rest = (ast.get_docstring(node) or "\nmissing").splitlines()
                if rest and rest[0]:
                    silent.append(f"{name(path)}:{node.lineno}: {node.name}")
    assert not silent, "\n".join(silent)


def test_no_private_paths():
    """No file names a folder of the machine it was written on."""
    result = []
    for path in published_texts():
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines() if PRIVATE_PATH.search(text) else []
        result += [
            f"{name(path)}:{i}: {line.strip()}"
            for i, line in enumerate(lines, 1)
            if PRIVATE_PATH.search(line)
        ]
    assert not result, "\n".join(result)


def test_words_that_have_no_good_use():
    """Nothing that people read has a word that the house style rejects."""
    result = house.matches(house.REJECTED)
    assert not result, "\n".join(result)


def test_rejected_words_are_recognised():
    """Words in any case, in identifiers too, and docstrings "The same" match; parts do not."""
    quote = '"' * 3
    words = ("No" + "body reads it", "begins an" + "ew", "_no" + "ught", "HAS_MEN" + "DED")
    for text in (*words, f"{quote}The" + " same, backwards."):
        assert house.REJECTED.search(text), text
    for text in ("recommend an amendment", "the same numbers", f"{quote}Reads a file."):
        assert not house.REJECTED.search(text), text
