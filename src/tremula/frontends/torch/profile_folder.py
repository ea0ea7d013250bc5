"""Reports of compiled models in the folder that `Options.enableProfiling` names."""

import json
import os
from pathlib import Path

from tremula.compiler.profile_summary import profile_summary
from tremula.frontends.torch.compiled import CompiledModel
from tremula.frontends.torch.logging import LOGGER
from tremula.frontends.torch.options import Options
from tremula.runtime.forecast import forecast
from tremula.vision.write_report import write_report

SUMMARY_FILE = "profile.txt"


def profile_folder(options: Options, model_name: str) -> Path | None:
    """Where a model's reports go; None if nobody asked for them."""
    engine = json.loads(os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}")
    engine.update(options._Popart.options.get("engineOptions", {}))
    if str(engine.get("autoReport.all", "false")).lower() != "true":
        return None
    return Path(engine.get("autoReport.directory", ".")) / model_name


def write_profile(compiled: CompiledModel, model_name: str) -> None:
    """Write what is known about the tile program, which is compiled for that; and say where."""
    folder = profile_folder(compiled.options, model_name)
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    executable = compiled.tiles.program().executable
    report = forecast(executable)
    text = profile_summary(report)
    (folder / SUMMARY_FILE).write_text(text, encoding="utf-8")
    path = write_report(folder, executable, report, extra={"model": model_name})
    LOGGER.info("The profile of %s is in %s: tremula view %s", model_name, folder, path)
