"""`tremula doctor` says what works, what is absent, what is broken, and what to do about it."""

import json

import pytest

from tremula.base import library_versions
from tremula.base.requirements import EXTRAS
from tremula.base.version import VERSION
from tremula.commands import GROUPS, main
from tremula.commands.installation import doctor


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch):
    """Libraries count as working: loading all of them takes many seconds."""
    monkeypatch.setattr(doctor, "_failure", lambda _: [])


def test_it_lists_every_part(capsys, monkeypatch):
    """Versions, every extra, names, GPU, compiler and caches are there; a working machine is 0."""
    monkeypatch.setattr(doctor, "unsupported", lambda _: "")
    assert main(["doctor", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    sections = {check["section"].split(" ")[0] for check in checks}
    assert sections == {"Tremula", "Front", "Names", "GPU", "Compilers", "Caches"}
    parts = {check["part"]: check for check in checks if check["section"] == "Tremula"}
    assert {"tremula-garden", "tremula-frontends"} <= parts.keys()
    assert sum(check["section"].startswith("Front") for check in checks) == len(EXTRAS)
    assert doctor._USES.keys() == EXTRAS.keys()


def test_what_is_missing_or_broken_has_a_remedy(capsys, monkeypatch, tmp_path):
    """A missing extra is no failure; one that does not load, and a closed cache, are."""
    monkeypatch.setattr(doctor, "_failure", lambda m: ["does not load: x"] if "jax" in m else [])
    missing = {"keras": ["Keras"]}
    monkeypatch.setattr(doctor, "missing_packages", lambda extra: missing.get(extra, []))
    monkeypatch.setattr(doctor, "unsupported", lambda _: "")
    states = {check.part: check for check in doctor.front_ends()}
    keras = states["Keras, programs for TensorFlow"]
    assert (keras.state, keras.remedy) == ("absent", "pip install 'tremula[keras]'")
    assert states["JAX, TessellateIPU"].state == "broken"
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    monkeypatch.setattr(doctor, "SECTIONS", (doctor.caches,))
    assert main(["doctor"]) == 1
    assert "try: chmod u+w" in capsys.readouterr().out


def test_parts_have_tremulas_version(monkeypatch):
    """A part of another version is broken, and one that is missing has its command."""
    monkeypatch.setattr(doctor, "installed_version", lambda _: "0.1.0")
    check = doctor._part("Tremula", "tremula-garden")
    assert (check.state, check.what) == ("broken", "0.1.0, of another version")
    assert check.remedy == f"pip install tremula-garden=={VERSION}"
    monkeypatch.setattr(doctor, "is_installed", lambda _: False)
    assert doctor._part("Tremula", "tremula-garden").state == "absent"


def test_a_compiler_that_is_not_there(monkeypatch):
    """Without g++ the line says how to install one."""
    from tremula.codelets.cpp import toolchain

    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)
    toolchain.find_compiler.cache_clear() if hasattr(toolchain.find_compiler, "cache_clear") else 0
    (check,) = doctor.compilers()
    assert check.state == "absent"
    assert check.remedy


def test_a_version_outside_its_range_is_broken(monkeypatch):
    """A library of another version is named with the range, and the command that repairs it."""
    monkeypatch.setattr(
        library_versions, "installed_version", lambda m: "0.5" if m == "jax" else ""
    )
    (jax,) = (check for check in doctor.front_ends() if check.part == "JAX, TessellateIPU")
    assert jax.state == "broken"
    assert "JAX 0.5 is installed, but Tremula works with 0.9 and newer, before 0.12" in jax.what
    assert jax.remedy.startswith("pip install 'jax>=0.9,<0.12'")


def test_the_page_shows_a_call_of_every_command(capsys):
    """`tremula` alone has all commands in groups, each as one would type it."""
    assert main([]) == 0
    text = capsys.readouterr().out
    for title, group in GROUPS.items():
        assert f"\n{title}:\n" in text
        for command in group:
            assert f"  tremula {command.name} {command.example}".rstrip() in text
