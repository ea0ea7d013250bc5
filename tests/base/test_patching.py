"""Replacing names of other libraries: per thread, counted, and only what is listed."""

import ast
import copy
import importlib
import inspect
import math
import re
import threading
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from tremula.base.libraries import patches as library_patches
from tremula.base.libraries import patching
from tremula.base.libraries.patches import PATCHES, LibraryPatch
from tremula.base.libraries.patching import (
    AttributeChanges,
    in_force,
    install_in_place,
    replaced,
    replaced_for_all,
    replaced_in_place,
    wrapped,
)
from tremula.base.library_versions import LIBRARIES as VERSIONS
from tremula.frontends.keras.backend import use_torch

LIBRARIES = {patch.library for patch in PATCHES} | {"transformers", "onnx", "numpy"}
SOURCE = Path(library_patches.__file__).parents[2]


class Library:
    """Stands for a class of another library."""

    flag = "plain"

    def method(self):
        return "plain"

    @property
    def value(self):
        return "plain"


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """Rows for the library of these tests."""
    names = ("method", "value", "flag", "added")
    here = f"{__name__}.Library"
    rows = {f"{here}.{name}" for name in names} | {"made_up.area", "made_up.Shape"}
    rows |= {f"{patch.owner}.{name}" for patch in PATCHES for name in patch.names}
    monkeypatch.setattr(patching, "_listed", lambda: rows)


def in_thread(function):
    """The result of a function in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_method_is_replaced_for_one_thread():
    """The thread inside the block calls the replacement, another one the original."""
    plain = vars(Library)["method"]
    with replaced(Library, "method", lambda _self: "new"):
        assert Library().method() == "new"
        assert in_thread(lambda: Library().method()) == "plain"
        assert in_force(Library, "method")(None) == "new"
    assert vars(Library)["method"] is plain


def test_a_property_is_wrapped_for_one_thread():
    """`wrap` gets the property in force, which the block before it made."""

    def starred(plain):
        return property(lambda self: plain.fget(self) + "*")

    with wrapped(Library, "value", starred), wrapped(Library, "value", starred):
        assert Library().value == "plain**"
        assert in_thread(lambda: Library().value) == "plain"
    assert Library().value == "plain"


def test_blocks_of_threads_may_end_in_any_order():
    """The first thread's end does not take the second's replacement away."""
    plain, entered, may_end = vars(Library)["method"], threading.Event(), threading.Event()
    results = []

    def second():
        with replaced(Library, "method", lambda _self: "second"):
            entered.set()
            may_end.wait(10)
            results.append(Library().method())

    thread = threading.Thread(target=second)
    with replaced(Library, "method", lambda _self: "first"):
        thread.start()
        assert entered.wait(10)
        assert Library().method() == "first"
    assert Library().method() == "plain"
    assert vars(Library)["method"] is not plain
    may_end.set()
    thread.join()
    assert results == ["second"]
    assert vars(Library)["method"] is plain


def test_a_class_is_replaced_where_it_is_called():
    """A module's class: calls make the replacement, isinstance and subclasses mean the original."""
    module, other = ModuleType("made_up"), type("Other", (), {})
    module.Shape = shape = type("Shape", (), {})
    with replaced(module, "Shape", other):
        assert type(module.Shape()) is other
        assert isinstance(shape(), module.Shape)
        assert issubclass(type("Round", (shape,), {}), module.Shape)
        assert type(in_thread(module.Shape)) is shape
    assert module.Shape is shape


def test_functions_are_replaced_wherever_they_are_held():
    """Under whatever name, in whatever object, by this thread; the function itself stays."""
    library, user = ModuleType("made_up"), ModuleType("made_up_user")

    def area(side, height=2, *, unit="m"):
        return f"{side * height} {unit}"

    library.area = user.surface = area
    code, bound, default = area.__code__, partial(area, 3), lambda f=area: f(1)
    with replaced_in_place(library, {"area": lambda side, **_: f"new {side}"}):
        assert library.area(1) == user.surface(1) == default() == "new 1"
        assert bound(unit="cm") == "new 3"
        assert in_thread(lambda: area(3, unit="cm")) == "6 cm"
        with replaced_in_place(library, {"area": lambda *_: "inner"}):
            assert user.surface(1) == "inner"
    assert area.__code__ is code
    assert (bound(), area(2, 5, unit="km")) == ("6 m", "10 km")


def test_functions_installed_in_place_can_be_replaced():
    """A form that is installed for the process is what other threads call inside a block."""
    library = ModuleType("made_up")

    def area(side):
        return side

    library.area = area
    install_in_place(library, {"area": lambda side: -side})
    with replaced_in_place(library, {"area": lambda _: "new"}):
        assert (area(1), in_thread(lambda: area(1))) == ("new", -1)
    assert area(1) == -1


def test_what_is_read_is_replaced_for_all_threads():
    """Threads share a value; one that wants another waits for the block's end."""
    began, results = threading.Event(), []

    def want_other():
        began.set()
        with replaced_for_all(Library, "flag", "other"):
            results.append(Library.flag)

    thread = threading.Thread(target=want_other)
    with replaced_for_all(Library, "flag", "new"):
        assert in_thread(lambda: Library.flag) == "new"
        thread.start()
        assert began.wait(10)
        assert not results
        with replaced_for_all(Library, "flag", "inner"):
            assert Library.flag == "inner"
        assert Library.flag == "new"
    thread.join()
    assert results == ["other"]
    assert Library.flag == "plain"


def test_a_name_may_be_added():
    """A name that a library does not have exists inside the block only."""
    with replaced_for_all(Library, "added", 1):
        assert Library.added == 1
    assert not hasattr(Library, "added")


def test_what_is_not_listed_cannot_be_replaced():
    """A replacement without a row is an error that says where the row belongs."""
    with pytest.raises(AssertionError, match="no row in base/libraries/patches"):
        replaced(math, "sqrt", abs).__enter__()


def test_changes_of_an_object_are_undone():
    """Attributes that were missing are missing again, also in a copy of the object."""
    thing, changes = Library(), AttributeChanges()
    thing.__dict__["own"] = 1
    calls = []
    changes.on_undo(lambda: calls.append("undone"))
    changes.set(thing, "own", 2)
    changes.set(thing, "flag", "mine")
    thing.changes = changes
    twin = copy.deepcopy(thing)
    twin.changes.undo()
    assert (thing.own, thing.flag, twin.own, twin.flag) == (2, "mine", 1, "plain")
    changes.undo()
    changes.undo()
    assert (thing.own, thing.flag) == (1, "plain")
    assert calls == ["undone", "undone"]


# -- the list --------------------------------------------------------------------------------------


def _resolved(patch: LibraryPatch) -> object:
    """The owner of a row; libraries that are not installed are skipped."""
    if patch.library == "keras":
        use_torch()
    pytest.importorskip(patch.library)
    parts = patch.owner.split(".")
    for n in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            owner = getattr(owner, part)
        return owner
    raise AssertionError(f"there is no {patch.owner}")


def _is_ours(owner: object, name: str) -> bool:
    """Whether a name was added by this package, earlier in the process."""
    value = inspect.getattr_static(owner, name, None)
    function = getattr(value, "fget", value)
    return str(getattr(function, "__module__", "")).startswith("tremula.")


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.owner}.{patch.names[0]}")
def test_every_row_is_true(patch):
    """The library has (or, if added, lacks) each name, in the version of the row, by the file.

    A row of an older version, which is supported as well, has names that the installed one lacks.
    """
    owner = _resolved(patch)
    names = owner if isinstance(owner, dict) else dir(owner)
    is_older = not version(patch.library).startswith(patch.versions)
    for name in patch.names:
        lacks_it = name not in names or _is_ours(owner, name)
        assert lacks_it if patch.is_added or is_older else name in names, name
    assert not is_older or VERSIONS[patch.library].is_supported(patch.versions)
    assert (SOURCE / patch.by).is_file()


def _imported_libraries(tree: ast.Module) -> dict[str, str]:
    """Local names of modules and classes of other libraries, with what they name."""
    result = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result |= {(a.asname or a.name).partition(".")[0]: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            result |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {n: what for n, what in result.items() if what.partition(".")[0] in LIBRARIES}


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _assigned_attributes(tree: ast.Module) -> list[tuple[ast.expr, int]]:
    """The owners of attributes that are assigned, deleted or set by setattr, with their lines."""
    owners = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            owners.append((node.value, node.lineno))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            owners.append((node.args[0], node.lineno))
    return owners


# Settings that a library documents as attributes to be set: nothing of it is replaced.
_SETTINGS = ("torch.backends",)
_IMPORT = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(LIBRARIES)})\b", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^\s*(?!self\.)\w+(?:\.\w+)+ [-+*|]?= |(?:set|del)attr\(", re.MULTILINE)


def _offences(file: Path) -> list[str]:
    """Lines of a file that replace names of a library, and imports of unittest."""
    text = file.read_text()
    result = (
        [f"{file}: imports unittest"]
        if re.search(r"^(from|import) unittest", text, re.MULTILINE)
        else []
    )
    if not (_IMPORT.search(text) and _ASSIGNMENT.search(text)):
        return result
    tree = ast.parse(text)
    libraries = _imported_libraries(tree)
    return result + [
        f"{file}:{line}"
        for owner, line in _assigned_attributes(tree)
        if _root(owner) in libraries and not ast.unparse(owner).startswith(_SETTINGS)
    ]


def test_no_file_replaces_names_of_a_library_by_itself():
    """Nothing assigns to attributes of imported libraries, or imports mock, but patching.py."""
    files = [
        file
        for file in SOURCE.rglob("*.py")
        if file.name != "patching.py" and not {"bench", "garden"} & set(file.parts)
    ]
    assert len(files) > 500
    assert not [offence for file in files for offence in _offences(file)]


def test_a_replacement_would_be_noticed(tmp_path):
    """The search finds assignments, setattr and mock, and leaves attributes of objects alone."""
    file = tmp_path / "patched.py"
    file.write_text(
        "from unittest import mock\nimport torch\nfrom torch import nn\n"
        "torch.random.seed = 1\nsetattr(nn, 'Linear', 2)\nself.torch = 3\n"
    )
    assert [offence.rpartition(":")[2] for offence in _offences(file)] == [
        " imports unittest", "4", "5",
    ]  # fmt: skip


def test_the_list_is_a_table_one_can_read():
    """One line for each row, with its library and reason."""
    lines = library_patches.markdown().splitlines()
    assert len(lines) == len(PATCHES) + 2
    assert all(patch.why in line for patch, line in zip(PATCHES, lines[2:], strict=True))
