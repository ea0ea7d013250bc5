"""`import tremula` stays light: heavy packages are loaded when first needed."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "llvmlite", "torch", "scipy", "benchmarks", "tremula.commands")


def loaded_after(code: str) -> set[str]:
    """Names of the modules a fresh interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_loads_nothing_heavy():
    """`import tremula` loads neither Numba nor PyTorch, nor the bench and the commands."""
    loaded = loaded_after("import tremula")
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.slow
def test_poptorch_loads_the_tile_side_when_it_is_used():
    """The first names of `poptorch` load neither compiler nor PopLibs: the host needs none."""
    loaded = loaded_after("import poptorch\npoptorch.trainingModel, poptorch.Options")
    tile_side = ("poplar", "compiler", "runtime.engine", "poplibs", "vision", "hardware")
    assert not [name for name in tile_side if f"tremula.{name}" in loaded]


def test_the_command_loads_nothing_heavy():
    """`tremula` alone loads no Numba and none of the subcommands."""
    loaded = loaded_after(
        "import contextlib, io\nfrom tremula.commands import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n    main([])"
    )
    assert "numba" not in loaded
    subcommands = {name for name in loaded if name.startswith("tremula.commands.")}
    assert subcommands == {"tremula.commands.guard"}  # which every command runs under


def test_star_import_has_everything_public() -> None:
    """`from tremula import *` brings the graph's names and the engine's."""
    names: dict[str, object] = {}
    exec("from tremula import *", names)
    assert {"Graph", "Engine", "Vertex", "FLOAT", "Executable", "errors"} <= names.keys()
