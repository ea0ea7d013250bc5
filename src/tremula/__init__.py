"""Tremula: program, run and profile a tile machine of the IPU class on the computer you have."""

import sys as _sys
from importlib import import_module
from typing import TYPE_CHECKING

from tremula.base import version as _version
from tremula.base.libraries import parts as _parts

_version.require_python()
_sys.meta_path.append(_parts.PartsFinder)

if TYPE_CHECKING:
    from tremula.base import errors as errors
    from tremula.base.libraries.fallbacks import load_operations as load_operations
    from tremula.base.names import install as install
    from tremula.base.names import uninstall as uninstall
    from tremula.base.passes import PassTable as PassTable
    from tremula.base.passes import watch_passes as watch_passes
    from tremula.codelets.cpp import load_cpp_codelets as load_cpp_codelets
    from tremula.codelets.interpret import run_in_python as run_in_python
    from tremula.codelets.python.random import random_normal as random_normal
    from tremula.codelets.python.random import random_uint32 as random_uint32
    from tremula.codelets.python.random import random_uint64 as random_uint64
    from tremula.codelets.python.random import random_uniform as random_uniform
    from tremula.compiler.compile import compile_graph as compile_graph
    from tremula.compiler.executable.executable import Executable as Executable
    from tremula.frontends.keras.served import load_served as load_served
    from tremula.hardware import chip as chip
    from tremula.hardware import load_chip as load_chip
    from tremula.hardware import load_system as load_system
    from tremula.hardware import single as single
    from tremula.hardware import system as system
    from tremula.ir.ops.codelet_operation import codelet_operation as codelet_operation
    from tremula.ir.ops.custom import custom_operation as custom_operation
    from tremula.ir.run.tile_run import cost_of as cost_of
    from tremula.ir.run.tile_run import run_on_tiles as run_on_tiles
    from tremula.ir.settings import configure as configure
    from tremula.ir.settings import configured as configured
    from tremula.poplar import *  # noqa: F403 - all its public names are ours
    from tremula.runtime.engine import Engine as Engine
    from tremula.runtime.forecast import forecast as forecast
    from tremula.runtime.host_connections import StreamCallback as StreamCallback
    from tremula.vision.analysis.whatif import parse_sweep as parse_sweep
    from tremula.vision.analysis.whatif import whatif_report as whatif_report
    from tremula.vision.report.reader import open_report as open_report
    from tremula.vision.report.write import report_of_engine as report_of_engine
    from tremula.vision.trace import recorder as trace  # noqa: F401 - its public name
    from tremula.vision.trace.export import export_chrome as export_chrome
    from tremula.vision.trace.export import export_csv as export_csv
    from tremula.vision.trace.export import export_perfetto as export_perfetto

__version__ = _version.VERSION

# Where a public name is found, if not in tremula.poplar; loaded on first use.
_HOME = {
    "Engine": "tremula.runtime.engine",
    "StreamCallback": "tremula.runtime.host_connections",
    "Executable": "tremula.compiler.executable.executable",
    "compile_graph": "tremula.compiler.compile",
    "forecast": "tremula.runtime.forecast",
    "configure": "tremula.ir.settings",
    "configured": "tremula.ir.settings",
    "cost_of": "tremula.ir.run.tile_run",
    "codelet_operation": "tremula.ir.ops.codelet_operation",
    "custom_operation": "tremula.ir.ops.custom",
    "load_operations": "tremula.base.libraries.fallbacks",
    "install": "tremula.base.names",
    "uninstall": "tremula.base.names",
    "run_on_tiles": "tremula.ir.run.tile_run",
    "open_report": "tremula.vision.report.reader",
    "report_of_engine": "tremula.vision.report.write",
    "load_served": "tremula.frontends.keras.served",
    "parse_sweep": "tremula.vision.analysis.whatif",
    "whatif_report": "tremula.vision.analysis.whatif",
    "export_chrome": "tremula.vision.trace.export",
    "export_csv": "tremula.vision.trace.export",
    "export_perfetto": "tremula.vision.trace.export",
    "trace": "tremula.vision.trace.recorder",
    "chip": "tremula.hardware",
    "load_chip": "tremula.hardware",
    "load_system": "tremula.hardware",
    "single": "tremula.hardware",
    "system": "tremula.hardware",
    "load_cpp_codelets": "tremula.codelets.cpp",
    "run_in_python": "tremula.codelets.interpret",
    "PassTable": "tremula.base.passes",
    "watch_passes": "tremula.base.passes",
    "errors": "tremula.base.errors",
    "random_normal": "tremula.codelets.python.random",
    "random_uint32": "tremula.codelets.python.random",
    "random_uint64": "tremula.codelets.python.random",
    "random_uniform": "tremula.codelets.python.random",
}
_MODULES = ("errors", "trace")  # names that are modules
_unlisted: set[str] = set()  # names that `dir` leaves out, as loading them would take seconds


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_HOME[name])
    if name == "__all__":  # from tremula import *
        return sorted({*_HOME, *import_module("tremula.poplar").__all__})
    home = import_module(_HOME.get(name, "tremula.poplar"))
    try:
        value = getattr(home, name)
    except AttributeError:
        raise AttributeError(f"module 'tremula' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    if _unlisted:
        return sorted(globals())
    return sorted({*globals(), *_HOME, *import_module("tremula.poplar").__all__})


# -- what notebooks and pytest call, by these names ------------------------------------------------


def load_ipython_extension(shell: object) -> None:  # noqa: ARG001 - IPython's signature
    """`%load_ext tremula`: the notebook imports poptorch, popart, … from Tremula."""
    import_module("tremula.base.names").install()


def unload_ipython_extension(shell: object) -> None:  # noqa: ARG001 - the same
    """`%unload_ext tremula`."""
    import_module("tremula.base.names").uninstall()


def pytest_load_initial_conftests() -> None:
    """`pytest -p tremula`: tests import poptorch, popart, … from Tremula."""
    pytest_configure()


def pytest_configure() -> None:
    """For `pytest_plugins = ["tremula"]`, too. Pytest reads all names we list, for fixtures."""
    import_module("tremula.base.names").install()
    _unlisted.update(_HOME)


def pytest_collection() -> None:
    """All fixtures are known: `dir(tremula)` is complete again."""
    _unlisted.clear()
