"""Measurements and tools import names that exist, also inside functions that no test runs."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOMES = {"tremula": ROOT / "src", "benchmarks": ROOT, "tests": ROOT, "tools": ROOT}


def file_of(module: str) -> Path | None:
    """The source of a module of this repository."""
    path = HOMES[module.partition(".")[0]] / module.replace(".", "/")
    choices = (path.with_suffix(".py"), path / "__init__.py")
    return next((choice for choice in choices if choice.is_file()), None)


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a module binds anywhere; "*" if it makes names when they are looked up."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add("*" if node.name == "__getattr__" else node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return frozenset(names)


def missing_names(path: Path) -> Iterator[str]:
    """Imports of a file from this repository that cannot be resolved, without alternatives."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]
    alternatives = {id(node) for handler in handlers for node in ast.walk(handler)}
    for node in nodes:
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module is None or id(node) in alternatives or module.partition(".")[0] not in HOMES:
            continue
        source = file_of(module)
        known = names_in(source) if source else frozenset()
        for alias in node.names:
            is_known = "*" in known or alias.name in known or alias.name == "*"
            if not is_known and not file_of(f"{module}.{alias.name}"):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {module}.{alias.name}"


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "examples"])
def test_imported_names_exist(folder):
    """Each name that a file imports from this repository is bound where it says."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    missing = [line for path in files for line in missing_names(path)]
    assert not missing, "\n".join(missing)
