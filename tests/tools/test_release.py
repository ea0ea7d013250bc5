"""Files of a release: the other distributions, bills of materials, contents of wheels."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.sources import ROOT
from tremula.base.names import NAMES
from tremula.base.version import VERSION

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "names"))
import dist
import sbom
import tremula_names
import wheel_contents


def project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("folder", [name for name in dist.PROJECTS if name != "."])
def test_distributions_agree(folder):
    """Each other distribution has Tremula's version and licences, and requires it."""
    other = project(folder)
    assert other["version"] == VERSION
    assert other["dependencies"] == [f"tremula=={VERSION}"]
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for licence in (ROOT / folder / "LICENSES").glob("*"):
        assert licence.read_bytes() == (ROOT / "LICENSES" / licence.name).read_bytes()


def test_the_version_is_stated_once_more():
    """CITATION.cff has Tremula's version, and tremula-names knows all of its names."""
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert {row.name.partition(".")[0] for row in NAMES} == tremula_names.ROOTS


def test_tremula_alone_has_one_command():
    """All commands but `tremula` are those of tremula-names, and each exists."""
    assert list(project(".")["scripts"]) == ["tremula"]
    for target in project("names")["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function))


def test_starting_is_cheap_and_can_be_switched_off():
    """The start file loads nothing of Tremula, and TREMULA_NAMES=off leaves Python alone."""
    code = (
        "import tremula_names, sys; tremula_names.start(); tremula_names.start();"
        "print(sum('Redirections' in repr(f) for f in sys.meta_path), 'tremula' in sys.modules)"
    )
    for variables, expected in (({}, "1 False"), ({"TREMULA_NAMES": "off"}, "0 False")):
        environment = {"PYTHONPATH": str(ROOT / "names"), **variables}
        command = [sys.executable, "-S", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_every_extra_is_explained():
    """Each extra of Tremula has a comment above it, or a page that names it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    for extra in project(".")["optional-dependencies"]:
        assert re.search(rf"^# .*\n{extra} = ", section, re.MULTILINE), extra


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        (".", {"numpy", "numba", "digits of MNIST"}),
        ("garden", {"tremula", "more digits of MNIST", "hydronet-gnn measurements"}),
        ("frontends", {"tremula"}),
    ],
)
def test_bill_of_materials(folder, names):
    """It names what pip installs beside the wheel, and the files of others inside, with hashes."""
    bill = json.loads(sbom.sbom(ROOT / folder, VERSION, 0))
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    components = {part["name"]: part for part in bill["components"]}
    assert components.keys() == names
    assert all(len(p["hashes"][0]["content"]) == 64 for p in components.values() if "hashes" in p)
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "LICENSES").iterdir()]
    assert all(any(part.file in text for text in texts) for part in sbom.VENDORED)


@pytest.fixture
def wheel(tmp_path) -> Path:
    """A small wheel as a build leaves it."""
    path = tmp_path / "tremula_names-1.0-py3-none-any.whl"
    info = "tremula_names-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("tremula_names/__init__.py", "tremula_names.pth", f"{info}/RECORD"):
            archive.writestr(name, "text")
        archive.writestr(f"{info}/METADATA", "Name: tremula-names\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\npoprun = a:b\n")
    return path


def test_finished_wheels_are_equal_and_recorded(wheel, tmp_path):
    """The order and dates of a wheel's files do not depend on when it was built."""
    for name in ("a.whl", "b.whl"):
        dist.finish_wheel(wheel, tmp_path / name, ROOT / "names", 1_700_000_000)
    assert (tmp_path / "a.whl").read_bytes() == (tmp_path / "b.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.whl") as archive:
        record = archive.read("tremula_names-1.0.dist-info/RECORD").decode()
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())
        assert {entry.date_time[:3] for entry in archive.infolist()} == {(2023, 11, 14)}
    assert "sboms/tremula_names.cdx.json,sha256=" in record


def test_wheels_of_one_tree_write_different_files(tmp_path):
    """A file of a part in Tremula's own wheel is reported, and one that two wheels write."""
    wheels = []
    for name in ("tremula", "tremula_garden"):
        wheels.append(tmp_path / f"{name}-1.0-py3-none-any.whl")
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr("tremula/garden/__init__.py", "")
            archive.writestr(f"{info}/METADATA", "")
    own, garden = map(wheel_contents.problems_of, wheels)
    assert f"{wheels[0].name} writes tremula/garden/__init__.py" in own
    assert not any(" writes " in problem for problem in garden)
    assert wheel_contents.shared_files(wheels) == ["tremula/garden/__init__.py"]


def test_contents_that_do_not_belong_are_reported(wheel):
    """A file outside its own folder, bytecode, and missing metadata each are a line."""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("poptorch/__init__.py", "")
        archive.writestr("tremula_names/__pycache__/x.pyc", "")
    problems = "\n".join(wheel_contents.problems_of(wheel))
    info = "tremula_names-1.0.dist-info"
    expected = (
        "writes poptorch/__init__.py",
        "contains tremula_names/__pycache__/x.pyc",
        f"lacks {info}/licenses/LICENSE",
        "no License-Expression:",
    )
    assert all(part in problems for part in expected)
