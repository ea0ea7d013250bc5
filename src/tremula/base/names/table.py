"""The names of other projects under which scripts import Tremula: one row for each package."""

from dataclasses import dataclass
from pathlib import Path

# Packages by their original names, which hold names only. On the path of child processes.
FOLDER = Path(__file__).resolve().parents[2] / "names"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorName:
    """A package that scripts import: where its code is, and what it needs."""

    name: str
    what: str
    code: str  # the module of ours that its names come from
    extra: str | None = None  # of pyproject.toml; None: it needs nothing else

    @property
    def folder(self) -> Path:
        return FOLDER.joinpath(*self.name.split("."))


NAMES = (
    VendorName(
        name="poptorch",
        what="PopTorch: PyTorch models",
        code="tremula.frontends.poptorch",
        extra="torch",
    ),
    VendorName(
        name="poptorch_geometric",
        what="PyTorch Geometric for PopTorch",
        code="tremula.frontends.geometric",
        extra="geometric",
    ),
    VendorName(
        name="popart",
        what="PopART: ONNX graphs, built and trained",
        code="tremula.frontends.popart",
        extra="onnx",
    ),
    VendorName(
        name="popxl",
        what="PopXL: explicit graphs",
        code="tremula.frontends.popxl",
        extra="popxl",
    ),
    VendorName(
        name="popxl_addons",
        what="modules and transforms for PopXL",
        code="tremula.frontends.popxl_addons",
        extra="popxl",
    ),
    VendorName(
        name="optimum.graphcore",
        what="Optimum Graphcore: trainers and pipelines of transformers",
        code="tremula.frontends.optimum",
        extra="optimum",
    ),
    VendorName(
        name="tessellate_ipu",
        what="TessellateIPU: tiles programmed from JAX",
        code="tremula.frontends.jax.tessellate",
        extra="jax",
    ),
    VendorName(
        name="ipu_tensorflow_addons",
        what="layers and optimisers for Keras",
        code="tremula.frontends.keras.addons",
        extra="keras",
    ),
    VendorName(
        name="popdist",
        what="PopDist: which of several processes this one is",
        code="tremula.frontends.poptorch.instances",
        extra="torch",
    ),
    VendorName(
        name="horovod",
        what="what these processes compute together",
        code="tremula.frontends.poptorch.collectives",
        extra="torch",
    ),
    VendorName(name="pva", what="reports, read by scripts", code="tremula.vision.pva"),
    VendorName(name="libpvti", what="system traces", code="tremula.vision.trace"),
)

ROWS = {row.name: row for row in NAMES}
# Packages that are shared with others: only the parts in the table are ours.
SHARED = frozenset(row.name.rpartition(".")[0] for row in NAMES if "." in row.name)


def names_markdown() -> str:
    """The table of docs/names.md."""
    lines = ["| name | what | code | needs |", "|---|---|---|---|"]
    for row in NAMES:
        needs = f"`tremula[{row.extra}]`" if row.extra else "–"
        lines.append(f"| `{row.name}` | {row.what} | `{row.code}` | {needs} |")
    return "\n".join(lines)
