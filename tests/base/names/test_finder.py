"""The import hook: names of other projects from Tremula, beside real packages, in children."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tremula
from tremula.base.names import NAMES, is_installed
from tremula.base.names.finder import NamesFinder
from tremula.base.names.table import FOLDER, names_markdown

QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SOURCE = Path(tremula.__file__).resolve().parents[1]


def run(*arguments: object, folder: Path | None = None) -> str:
    """What a fresh Python prints that has Tremula on its path; tremula-names is switched off."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    paths = os.pathsep.join([str(SOURCE), *([str(folder)] if folder else [])])
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**inherited, "PYTHONPATH": paths, "TREMULA_NAMES": "off", **QUICK},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def real(tmp_path) -> Path:
    """A folder with packages of other people: a `horovod`, an `optimum` of two kinds of files."""
    folder = tmp_path / "installed"
    for name in ("horovod", "optimum", "optimum/onnx"):
        (folder / name).mkdir(parents=True)
    (folder / "horovod" / "__init__.py").write_text("WHO = 'real'\n")
    (folder / "optimum" / "version.py").write_text("VERSION = 'real'\n")
    (folder / "optimum" / "onnx" / "__init__.py").write_text("WHO = 'real'\n")
    return folder


@pytest.fixture
def switched_off() -> Iterator[None]:
    """A test without the hook; afterwards modules, paths and hook are as before."""
    modules, finders, path = dict(sys.modules), list(sys.meta_path), list(sys.path)
    variable = os.environ.get("PYTHONPATH", "")
    tremula.uninstall()
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "is_tremulas", False)]
    yield
    sys.modules.clear()
    sys.modules.update(modules)
    sys.meta_path[:], sys.path[:] = finders, path
    os.environ["PYTHONPATH"] = variable


def test_every_row_has_its_package_and_every_package_its_row():
    """The folder of names has the packages of the table, and the plug-in of JAX."""
    packages = {path.parent for path in FOLDER.glob("*/__init__.py")} - {FOLDER / "optimum"}
    packages |= {path.parent for path in FOLDER.glob("optimum/*/__init__.py")}
    assert packages == {row.folder for row in NAMES}


def test_the_page_has_the_table(repository):
    """docs/names.md lists the names as the table of the hook does."""
    assert names_markdown() in (repository / "docs" / "names.md").read_text(encoding="utf-8")


def test_installing_again_restores_the_path(monkeypatch):
    """Where something else has replaced `sys.path`, processes by spawn get the names again."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(FOLDER)])
    tremula.install()
    assert str(FOLDER) in sys.path


def test_names_come_and_go(switched_off):
    """`install` makes a name importable, `uninstall` leaves nothing behind, twice is harmless."""
    path, variable = list(sys.path), os.environ.get("PYTHONPATH")
    for _ in range(2):
        tremula.install()
        tremula.install()
        module = importlib.import_module("libpvti")
        assert Path(module.__file__).is_relative_to(FOLDER)
        assert is_installed()
        tremula.uninstall()
        tremula.uninstall()
        assert "libpvti" not in sys.modules
    assert (sys.path, os.environ.get("PYTHONPATH")) == (path, variable)


def test_a_package_that_was_imported_goes_on_working():
    """`uninstall` takes names from the table of modules, not from packages that a script holds."""
    code = """
import sys, tremula
tremula.install()
import popart, popxl
modules = {name: set(vars(m)) for name, m in sys.modules.items() if name.startswith("pop")}
before = {name: sys.modules[name] for name in modules}
tremula.uninstall()
print(any(name in sys.modules for name in before))
print([name for name in before if modules[name] - set(vars(before[name]))])
"""
    assert run("-c", code) == "False\n[]\n"


def test_a_name_that_is_loaded_from_elsewhere_is_an_error(switched_off, real, monkeypatch):
    """`install` after an import of the real package says so and changes nothing."""
    monkeypatch.syspath_prepend(real)
    assert importlib.import_module("horovod").WHO == "real"
    with pytest.raises(
        ImportError, match=r"'horovod' is already imported from .*horovod/__init__.py"
    ):
        tremula.install()
    assert not is_installed()
    tremula.uninstall()
    assert "horovod" in sys.modules  # it was not ours


def test_a_real_package_stays_as_it_is(real, tmp_path):
    """Plain Python imports the real package; with the hook on, Tremula's has the name."""
    script = tmp_path / "script.py"
    script.write_text("import horovod\nprint(getattr(horovod, 'WHO', 'ours'))\n")
    before = {path: path.read_bytes() for path in real.rglob("*.py")}
    assert run(script, folder=real) == "real\n"
    assert run("-m", "tremula", script, folder=real) == "ours\n"
    assert {path: path.read_bytes() for path in real.rglob("*.py")} == before


@pytest.mark.parametrize("is_regular", [False, True], ids=["namespace", "regular"])
def test_a_part_beside_a_real_optimum(real, is_regular):
    """`optimum.graphcore` is ours, all else of `optimum` the installed one's; in children, too."""
    if is_regular:
        (real / "optimum" / "__init__.py").write_text("WHO = 'real'\n")
    look = (
        "import optimum.version, optimum.onnx, importlib.util as u;"
        "print(optimum.version.VERSION, optimum.onnx.WHO,"
        " 'names' in u.find_spec('optimum.graphcore').origin)"
    )
    code = f"""
import subprocess, sys, tremula
tremula.install()
look = {look!r}
exec(look)
print(subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout)
tremula.uninstall()
import optimum.version
print("graphcore" in vars(optimum), "optimum.graphcore" in sys.modules)
"""
    output = run("-c", code, folder=real).split()
    assert output == ["real", "real", "True"] * 2 + ["False", "False"]


CHILDREN = """
import multiprocessing, subprocess, sys
import horovod

def who(_):
    import optimum  # ours is an empty package
    return getattr(horovod, "WHO", "ours")

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(who, [0])[0])
    code = "import horovod; print('subprocess', getattr(horovod, 'WHO', 'ours'))"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_child_processes_have_the_names(real, tmp_path):
    """Children by fork, spawn, forkserver and subprocess import ours, beside a real package."""
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    lines = run("-m", "tremula", "run", script, folder=real).splitlines()
    expected = [f"{how} ours" for how in ("fork", "spawn", "forkserver", "subprocess")]
    assert sorted(lines) == sorted(expected)


def test_pytest_plugin_and_notebook_extension(tmp_path, switched_off):
    """`pytest -p tremula` and `%load_ext tremula` switch the hook on, `%unload_ext` off."""
    (tmp_path / "conftest.py").write_text("import horovod\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it():\n    import horovod\n    assert not hasattr(horovod, 'WHO')\n"
    )
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "tremula", tmp_path)
    tremula.load_ipython_extension(None)
    assert is_installed()
    tremula.unload_ipython_extension(None)
    assert not is_installed()


def test_it_gives_way_where_asked(real, monkeypatch, switched_off):
    """In the form of tremula-names a real package is an error that says whose it is."""
    monkeypatch.syspath_prepend(real)
    sys.path[:] = ["", *(entry for entry in sys.path if not Path(entry, "libpvti").is_dir())]
    sys.meta_path.insert(0, NamesFinder(gives_way=True))
    assert importlib.util.find_spec("libpvti") is not None
    record = real / "some_horovod-1.2.dist-info"
    with pytest.raises(
        ImportError, match=r"'horovod' belongs to .*horovod/__init__.py, which belongs"
    ):
        importlib.import_module("horovod")
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: some-horovod\nVersion: 1.2\n")
    (record / "RECORD").write_text("horovod/__init__.py,,\n")
    with pytest.raises(ImportError, match=r"belongs to the distribution some-horovod 1.2"):
        importlib.import_module("horovod")


def test_it_gives_way_to_modules_beside_the_script(tmp_path, monkeypatch, switched_off):
    """A module `horovod.py` of one's own project is imported as Python would."""
    (tmp_path / "horovod.py").write_text("WHO = 'mine'\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.meta_path.insert(0, NamesFinder(gives_way=True))
    assert importlib.import_module("horovod").WHO == "mine"
