"""Figures of an application as a file beside its manifest: made by running it, read by the page."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError
from tremula.base.storage.atomic_file import atomic_file
from tremula.garden.application import Findings, Modelled
from tremula.garden.catalogue.manifest import Application
from tremula.garden.catalogue.pictures import checked_picture, small_png

FIGURES = "figures.json"
_MOST_POINTS = 60  # of a curve: a card is about 300 pixels wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of an application's tiny form."""

    results: Mapping[str, float]
    modelled: Modelled | None
    curves: Mapping[str, Sequence[float]]
    picture: str  # a PNG in base64; empty if there is none


def figures_of(application: Application, findings: Findings) -> Figures:
    """Findings as they are stored: thinned, rounded and small."""
    picture = ""
    if findings.picture is not None:
        result = checked_picture(np.asarray(findings.picture), application.name)
        picture = base64.b64encode(small_png(result)).decode()
    return Figures(
        results={name: _rounded(value) for name, value in findings.results.items()},
        modelled=findings.modelled,
        curves={name: _thinned(curve) for name, curve in findings.curves.items()},
        picture=picture,
    )


def write_figures(figures: Figures, path: Path) -> None:
    with atomic_file(path) as file:
        text = json.dumps(asdict(figures), indent=1, ensure_ascii=False, allow_nan=False)
        file.write(f"{text}\n".encode())


def figures_file(application: Application) -> Path:
    return application.folder / FIGURES


def read_figures(path: Path) -> Figures | None:
    """The figures in a file; None if there are none yet."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        modelled = fields["modelled"]
        return Figures(
            results=fields["results"],
            modelled=None if modelled is None else Modelled(**modelled),
            curves=fields["curves"],
            picture=fields["picture"],
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise FileLoadError(
            f"{path} is damaged: {error!r}",
            hint=f"`tremula garden figures {path.parent.name}` makes it again",
        ) from None


def _rounded(value: float) -> float:
    """Six digits; JSON has no NaN, so what is not finite is an error here."""
    if not math.isfinite(value):
        raise FileLoadError(f"a figure is {value}, which is not a finite number.")
    return float(f"{value:.6g}")


def _thinned(curve: Sequence[float]) -> list[float]:
    """At most _MOST_POINTS of a curve, its ends among them."""
    values = np.asarray(curve, float)
    if len(values) > _MOST_POINTS:
        values = values[np.linspace(0, len(values) - 1, _MOST_POINTS).round().astype(int)]
    return [float(f"{value:.4g}") for value in values]
