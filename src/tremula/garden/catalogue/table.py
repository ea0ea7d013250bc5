"""All applications as a page of the documentation: `make docs` writes it."""

from collections.abc import Sequence

from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.figures import figures_file, read_figures
from tremula.garden.catalogue.manifest import Application
from tremula.garden.catalogue.techniques import DOMAINS, TECHNIQUES

_HEAD = """\
# Applications

{n} applications; `tremula garden run NAME --tiny` runs one. Figures are those that
`tremula garden figures` found: results of the tiny form, and what its step takes on the modelled
machine. Claims of others stand beside ours; they were measured on other programs, data and
machines, and do not compare speeds.
[The garden](garden.md) says how it works. This page is made by `make docs`.
"""


def applications_markdown() -> str:
    """The page, by domain; techniques at its end."""
    everything = all_applications()
    parts = [_HEAD.format(n=len(everything))]
    for domain in DOMAINS:
        result = [one for one in everything if one.domain == domain]
        if result:
            parts += [f"## {domain.capitalize()}\n", _table(result)]
    parts += ["## Techniques\n", _techniques(everything)]
    return "\n".join(parts)


def _table(applications: Sequence[Application]) -> str:
    lines = ["| application | with | reached | modelled | published |", "|---|---|---|---|---|"]
    for one in applications:
        published = "; ".join(f"{p.claim} ({p.source})" for p in one.published)
        what = f"**`{one.name}`** {one.title}. {one.summary}"
        cells = (what, one.framework, _reached(one), _modelled(one), published)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _reached(one: Application) -> str:
    figures = read_figures(figures_file(one))
    if figures is None:
        return "not run yet"
    names = [name for name in one.expected if name in figures.results]
    return ", ".join(f"{name.replace('_', ' ')} {figures.results[name]:.4g}" for name in names)


def _modelled(one: Application) -> str:
    figures = read_figures(figures_file(one))
    if figures is None or figures.modelled is None:
        return ""
    result = figures.modelled
    return f"{result.cycles:,} cycles on {result.machine}, {result.rate:,.4g} {result.unit}"


def _techniques(applications: Sequence[Application]) -> str:
    lines = ["| technique | | taught by |", "|---|---|---|"]
    for technique, meaning in TECHNIQUES.items():
        taught = ", ".join(f"`{one.name}`" for one in applications if technique in one.techniques)
        lines.append(f"| {technique} | {meaning} | {taught} |")
    return "\n".join(lines) + "\n"
