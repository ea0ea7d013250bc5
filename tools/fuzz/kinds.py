"""All kinds of cases by name; each is imported when it is used."""

from importlib import import_module

from tools.fuzz.case import Kind
from tremula.base.names.finder import install

HOMES = {
    "tiles": ("tools.fuzz.tiles.check", "TilePrograms"),
    "files": ("tools.fuzz.files.check", "MutatedFiles"),
    "models": ("tools.fuzz.models.check", "Models"),
    "popxl": ("tools.fuzz.expressions.check", "Expressions"),
    "popart": ("tools.fuzz.expressions.check", "Expressions"),
    "jax": ("tools.fuzz.expressions.check", "Expressions"),
    "keras": ("tools.fuzz.expressions.check", "Expressions"),
    "onnx": ("tools.fuzz.onnx_graphs.check", "OnnxGraphs"),
    "calls": ("tools.fuzz.calls.check", "CallSequences"),
    "apis": ("tools.fuzz.calls.apis", "ApiCalls"),
}


def kind_named(name: str) -> Kind:
    """The kind with this name; an error names the others."""
    if name not in HOMES:
        raise SystemExit(f"no kind {name!r}; there are: {', '.join(HOMES)}")
    install()  # some kinds import `poptorch`, `popxl`, … as scripts do
    module, attribute = HOMES[name]
    kind = getattr(import_module(module), attribute)
    return kind(name) if attribute == "Expressions" else kind()
