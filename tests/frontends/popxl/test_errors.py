"""Every exception of PopXL by type and text, and that none of them is forgotten."""

import ast
from pathlib import Path

import pytest

from tests.frontends.popxl.error_cases.cases import CASES
from tests.frontends.popxl.error_cases.world import Case, World
from tremula.frontends.popxl.core import registry

PACKAGE = Path(registry.__file__).parents[1]
# Reached only where files are not ours to write, a map is read-only (test_session), by the
# interpreter's own checks, or as the reason inside another exception.
ELSEWHERE = {
    ("core/host_data.py", "PermissionError"),
    ("run/session.py", "is a read-only memory map"),
    ("run/session.py", "is retrieved from all replicas"),  # test_public_behaviours
    ("ops/by_name.py", "AttributeError(name)"),
    ("core/constructors.py", "it holds no numbers"),
    ("replica_grouping.py", "AssertionError"),
}


def raised(case: Case, folder: Path) -> pytest.ExceptionInfo:
    world = World(folder)
    with world.main, pytest.raises(case.error, match=case.text) as result:
        case.do(world)
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exceptions_say_what_is_wrong(case, tmp_path):
    """The exception is of the type that PopXL raises, and its text names what was given."""
    result = raised(case, tmp_path)
    assert type(result.value) is case.error


def raises() -> dict[tuple[str, int], str]:
    """Every `raise` of the package with an exception of the package: (file, line) → its source."""
    result = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = path.relative_to(PACKAGE).as_posix()
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    result[name, line] = ast.get_source_segment(source, node) or ""
    return result


def lines_of(error: BaseException | None) -> set[tuple[str, int]]:
    """Lines of the package that an exception, or the one it was made of, came through."""
    if error is None:
        return set()
    result, traceback = lines_of(error.__cause__), error.__traceback__
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            result.add((path.relative_to(PACKAGE).as_posix(), traceback.tb_lineno))
        traceback = traceback.tb_next
    return result


def test_every_exception_has_a_case(tmp_path):
    """Each `raise` of the package is reached by a case, or by a test that is named above."""
    every = raises()
    reached = {
        every[line]
        for case in CASES
        for line in lines_of(raised(case, tmp_path).value)
        if line in every
    }
    missing = {
        (name, source)
        for (name, _), source in every.items()
        if source not in reached and not any(n == name and t in source for n, t in ELSEWHERE)
    }
    assert not missing
