"""Reports of compiled models in the folder that `Options.enableProfiling` names."""

from pathlib import Path

from tremula.base.options import parse_options
from tremula.base.tracing import is_tracing, span
from tremula.frontends.poptorch.exceptions import poptorch_errors
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.runtime.auto_report import report_folder


def profile_folder(options: Options) -> Path | None:
    """The folder of reports, with a sub-folder for each model; None if none were requested.

    Reads the options of reports only: the others are checked when a model is compiled.
    """
    chosen = options.Popart.get("engineOptions")
    wanted = {name: value for name, value in chosen.items() if name.startswith("autoReport.")}
    with poptorch_errors():
        return report_folder(parse_options(wanted))


def trace_if_profiled(options: Options) -> None:
    """Start a system trace next to the report of a profiled model, unless one is open already."""
    if not is_tracing():
        folder = profile_folder(options)
        if folder is not None:
            from tremula.vision.trace import recorder as trace  # lazy: slow to import

            trace.start(folder)


def write_profile(compiled: CompiledModel, model_name: str) -> None:
    """Write the report of the tile program, which is compiled for it, and log where it is."""
    root = profile_folder(compiled.options)
    if root is None:
        return
    folder = root / model_name
    with poptorch_errors():
        compiled.program.tiles.program()
        with span("poptorch", "write profile"):
            path = compiled.program.save_report(folder, model_name)
    LOGGER.info("The profile of %s is in %s: tremula view %s", model_name, folder, path)
