"""Pages of the site for the garden: one for each application, and an index with their pictures.

`tools/site.py` writes them from manifests, figures and the reports of `docs/reports`.
"""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

from garden_pictures import curves_picture, time_picture
from site_reports import FOLDER, deep_links, read_packs

from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.figures import Figures, figures_file, read_figures
from tremula.garden.catalogue.manifest import Application
from tremula.garden.catalogue.runner import install_command
from tremula.garden.catalogue.techniques import DOMAINS

_INDEX = """\
# Applications of the garden

{n} applications, {n_reports} of them with a report that opens here, without installing anything.
[All in one table](../docs/garden-applications.md) · [how the garden works](../docs/garden.md)
"""


def write_garden_pages(folder: Path) -> int:
    """Write `index.md`, and `NAME.md` with its pictures; how many applications there are."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = all_applications()
    reports = {path.stem: read_packs(path) for path in FOLDER.glob("*.packs")}
    for one in everything:
        figures = read_figures(figures_file(one))
        _write_pictures(folder, one.name, figures, reports.get(one.name))
        page = "\n".join(_page(one, figures, reports.get(one.name)))
        (folder / f"{one.name}.md").write_text(f"{page}\n", encoding="utf-8")
    parts = [_INDEX.format(n=len(everything), n_reports=len(reports))]
    for domain in DOMAINS:
        chosen = [one for one in everything if one.domain == domain]
        if chosen:
            parts += [f"## {domain.capitalize()}\n", *map(_row, chosen), ""]
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")
    return len(everything)


def _write_pictures(
    folder: Path, name: str, figures: Figures | None, packs: Mapping[str, bytes] | None
) -> None:
    """What an application makes, its curves, and how its time is spent on the machine."""
    if figures is not None and figures.picture:
        (folder / f"{name}.png").write_bytes(base64.b64decode(figures.picture))
    curves = None if figures is None else curves_picture(figures.curves)
    if curves is not None:
        (folder / f"{name}-curves.svg").write_text(curves, encoding="utf-8")
    if packs is not None:
        (folder / f"{name}-time.svg").write_text(time_picture(packs), encoding="utf-8")


def _row(one: Application) -> str:
    return f"- [{one.title}]({one.name}.md) (`{one.name}`, {one.framework})"


def _page(
    one: Application, figures: Figures | None, packs: Mapping[str, bytes] | None
) -> Iterator[str]:
    yield f"# {one.title}\n"
    yield f"{one.summary}\n"
    if figures is not None and figures.picture:
        yield f"![What {one.name} makes]({one.name}.png){{ width=256 }}\n"
    if figures is not None and curves_picture(figures.curves) is not None:
        yield f"![{' and '.join(figures.curves)} of {one.name}]({one.name}-curves.svg)\n"
    if packs is not None:
        picture = f"![How {one.name} spends its time on the machine]({one.name}-time.svg)"
        yield f"[{picture}](../reports/{one.name}.html#view=execution)\n"
        links = (f"[{what}](../reports/{one.name}.html#{link})" for what, link in deep_links(packs))
        yield f"**See its report in the analyser:** {' · '.join(links)}\n"
        yield "It is the report of the tiny form, without the finest detail.\n"
    yield "## Run it\n"
    report = f"tremula garden run {one.name} --tiny --report reports/{one.name}"
    install = install_command(one.needs) if one.needs else "pip install tremula"
    view = f"tremula view reports/{one.name}"
    yield f"```text\n{install}\n{report}\n{view}\n```\n"
    yield "## Figures\n"
    yield from _figures(one, figures)
    if one.published:
        yield "\n## Published\n"
        yield "Measured by others on other programs, data and machines: speeds do not compare.\n"
        yield from (f"- {claim.claim} ({claim.source})" for claim in one.published)


def _figures(one: Application, figures: Figures | None) -> Iterator[str]:
    rows = [("domain", one.domain), ("front end", one.framework), ("data", one.data)]
    rows += [("techniques", ", ".join(one.techniques)), ("licence", one.licence)]
    if figures is not None:
        for name, value in figures.results.items():
            bar = f", must be {one.expected[name].text}" if name in one.expected else ""
            rows.append((name.replace("_", " "), f"{value:.4g}{bar}"))
    if figures is not None and figures.modelled is not None:
        result = figures.modelled
        rows.append(("modelled", f"{result.cycles:,} cycles on {result.machine}"))
        rows.append(("rate", f"{result.rate:,.4g} {result.unit}"))
        rows.append(("fullest tile", f"{result.bytes_on_fullest_tile / 1024:,.0f} KiB"))
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in rows)
