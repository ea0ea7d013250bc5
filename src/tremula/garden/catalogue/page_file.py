"""The catalogue as one HTML file: search, filters and cards, made from manifests and figures."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tremula.base.storage.atomic_file import atomic_file
from tremula.garden.catalogue.catalogue import searched_text
from tremula.garden.catalogue.figures import figures_file, read_figures
from tremula.garden.catalogue.manifest import Application
from tremula.garden.catalogue.techniques import TECHNIQUES
from tremula.vision.serve.export import one_file
from tremula.vision.serve.page_files import bundle, page_files

_ENTRY = "garden/main.js"


def write_page(applications: Sequence[Application], path: Path) -> int:
    """Write the page; returns its size in bytes."""
    content = page_html(applications).encode()
    with atomic_file(path) as file:
        file.write(content)
    return len(content)


def page_html(applications: Sequence[Application]) -> str:
    """The page with everything inside."""
    own = {
        f.name: f.read_bytes()
        for f in (files("tremula.garden.catalogue") / "page").iterdir()
        if f.is_file()
    }
    # The analyser's look and parts: only what is used of its scripts comes along.
    parts = page_files()
    sources = {name: content.decode() for name, content in parts.items() if name.endswith(".js")}
    sources |= {f"garden/{name}": c.decode() for name, c in own.items() if name.endswith(".js")}
    style = parts["style.css"].decode() + own["garden.css"].decode()
    data = {
        "applications": [described(one) for one in applications],
        "techniques": TECHNIQUES,
    }
    html = parts["index.html"].decode().replace("<title>Tremula<", "<title>Tremula garden<")
    return one_file(html, style, bundle(sources, _ENTRY), data)


def described(one: Application) -> dict[str, Any]:
    """What a card shows; figures are those that a run left, or none."""
    figures = read_figures(figures_file(one))
    modelled = None if figures is None else figures.modelled
    return {
        "name": one.name,
        "title": one.title,
        "summary": one.summary,
        "domain": one.domain,
        "framework": one.framework,
        "techniques": one.techniques,
        "data": one.data,
        "tiny_seconds": one.tiny_seconds,
        "command": f"tremula garden run {one.name} --tiny",
        "published": [{"claim": p.claim, "source": p.source} for p in one.published],
        "words": searched_text(one),
        "results": {} if figures is None else figures.results,
        "curves": {} if figures is None else figures.curves,
        "picture": "" if figures is None else figures.picture,
        "modelled": None
        if modelled is None
        else {
            "machine": modelled.machine,
            "cycles": modelled.cycles,
            "bytes": modelled.bytes_on_fullest_tile,
            "rate": modelled.rate,
            "unit": modelled.unit,
        },
    }
