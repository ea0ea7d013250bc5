"""`tremula garden`: list, show, run and copy applications; make their figures and the page."""

import argparse
import re
import textwrap
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from tremula.base.errors import PoplarError
from tremula.commands.arguments import one_of, output_file, output_folder, whole
from tremula.commands.garden.together import make_figures, run_together
from tremula.commands.guard import CommandParser
from tremula.commands.progress import progress, quiet
from tremula.garden.catalogue.techniques import DOMAINS, FRAMEWORKS, TECHNIQUES

WIDTH = 100
_ACTIONS_HELP = """\
  tremula garden [--domain D] [--framework F] [--technique T] [WORDS]   list applications
  tremula garden show NAME                 what it is, costs and reaches
  tremula garden run NAME [--tiny]         run it (`run all --tiny`: all of them)
  tremula garden new NAME --from OTHER     copy one as the start of your own
  tremula garden figures [NAME …]          run the tiny forms and keep what they find
  tremula garden page [FILE]               all of it as a page for a browser"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "tremula garden [ACTION] …"
    parser.epilog = _ACTIONS_HELP
    _add_filters(parser)
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="…", help="see below")


def run(args: argparse.Namespace) -> int:
    rest: list[str] = args.rest
    if rest and rest[0] in _ACTIONS:
        describe, action = _ACTIONS[rest[0]]
        parser = CommandParser(prog=f"tremula garden {rest[0]}")
        describe(parser)
        parser.add_argument("--quiet", action="store_true", help="no progress of long work")
        chosen = parser.parse_intermixed_args(rest[1:])
        with quiet(chosen.quiet):
            return action(chosen)
    _check_action(rest)
    parser = CommandParser(prog="tremula garden")
    _add_filters(parser)
    parser.add_argument("words", nargs="*")
    result = parser.parse_intermixed_args(rest)
    for name in ("domain", "framework", "technique"):
        setattr(result, name, getattr(result, name) or getattr(args, name))
    return _list(result)


def _check_action(words: list[str]) -> None:
    """A first word that is nearly an action, and that no application uses, is an error."""
    from tremula.garden.catalogue.catalogue import all_applications

    near = get_close_matches(words[0], _ACTIONS, 1) if words else []
    texts = (f"{one.name} {one.title} {one.summary}".lower() for one in all_applications())
    if near and not any(words[0].lower() in re.findall(r"\w+", text) for text in texts):
        raise PoplarError(
            f"`tremula garden` has no action {words[0]!r}, and no application uses that word.",
            hint=f"did you mean `tremula garden {near[0]}`?",
        )


# -- listing ---------------------------------------------------------------------------------------


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for name, known in (
        ("domain", DOMAINS), ("framework", FRAMEWORKS), ("technique", TECHNIQUES),
    ):  # fmt: skip
        parser.add_argument(
            f"--{name}", type=one_of(known, name), help=f"one of: {', '.join(known)}"
        )


def _list(args: argparse.Namespace) -> int:
    from tremula.garden.catalogue.catalogue import all_applications, chosen

    everything = all_applications()
    result = chosen(
        everything, domain=args.domain, framework=args.framework, technique=args.technique,
        words=args.words,
    )  # fmt: skip
    if not result:
        print(f"None of the {len(everything)} applications fits. `tremula garden` lists all.")
        return 1
    width = max(len(one.name) for one in result)
    for one in result:
        print(f"{one.name:<{width}}  {one.domain:<14} {one.framework:<18} {one.title}")
    print(f"\n{len(result)} of {len(everything)}. `tremula garden show NAME` says more.")
    return 0


def _describe_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def _show(args: argparse.Namespace) -> int:
    from tremula.garden.catalogue.catalogue import find_application
    from tremula.garden.catalogue.figures import figures_file, read_figures
    from tremula.garden.catalogue.runner import install_command

    one = find_application(args.name)
    print(f"{one.title} ({one.name})\n")
    print(textwrap.fill(one.summary, WIDTH))
    rows = [
        ("domain", one.domain), ("framework", one.framework),
        ("techniques", ", ".join(one.techniques)), ("data", one.data), ("licence", one.licence),
        ("needs", install_command(one.needs) if one.needs else "nothing beside tremula"),
        ("tiny form", f"{one.tiny_seconds:g} s: tremula garden run {one.name} --tiny"),
    ]  # fmt: skip
    rows += [("must reach", f"{name} {limits.text}") for name, limits in one.expected.items()]
    figures = read_figures(figures_file(one))
    if figures is not None:
        rows += [("reached", f"{name} {value:g}") for name, value in figures.results.items()]
    if figures is not None and figures.modelled is not None:
        rows.append(("modelled", _machine_words(figures.modelled)))
    rows += [("published", f"{claim.claim} ({claim.source})") for claim in one.published]
    _print_rows(rows)
    return 0


def _machine_words(modelled: object) -> str:
    from tremula.garden.application import Modelled

    assert isinstance(modelled, Modelled)
    kilobytes = modelled.bytes_on_fullest_tile / 1024
    return (
        f"{modelled.machine}: {modelled.cycles:,} cycles, {modelled.rate:,.4g} {modelled.unit}, "
        f"{kilobytes:,.0f} KiB on the fullest tile"
    )


def _print_rows(rows: list[tuple[str, str]]) -> None:
    print()
    last = ""
    for name, text in rows:
        head = "" if name == last else name
        print(textwrap.fill(text, WIDTH, initial_indent=f"{head:<12}", subsequent_indent=" " * 12))
        last = name


# -- running ---------------------------------------------------------------------------------------


def _describe_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="an application, a folder of yours (./mine), or `all`")
    parser.add_argument("--tiny", action="store_true", help="in about a minute or less")
    parser.add_argument(
        "--report", type=output_folder, metavar="FOLDER", help="write a report here"
    )
    parser.add_argument("--figures", type=output_file, metavar="FILE", help="write figures here")
    parser.add_argument("--jobs", type=whole(1, 64), default=1, help="of `all`: how many at once")


def _run(args: argparse.Namespace) -> int:
    from tremula.garden.application import Settings
    from tremula.garden.catalogue.catalogue import find_application
    from tremula.garden.catalogue.figures import figures_of, write_figures
    from tremula.garden.catalogue.runner import run_application

    if args.name == "all":
        return run_together(args.jobs)
    one = find_application(args.name)
    with progress(one.name) as line:
        settings = Settings(tiny=args.tiny, report=args.report, show=line.print)
        findings = run_application(one, settings)
    rows = [("reached", f"{name} {value:g}") for name, value in findings.results.items()]
    if findings.modelled is not None:
        rows.append(("modelled", _machine_words(findings.modelled)))
    _print_rows(rows)
    if args.figures is not None:
        write_figures(figures_of(one, findings), args.figures)
    return 0


def _describe_figures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    parser.add_argument("--jobs", type=whole(1, 64), default=1, help="how many at once (1)")
    parser.add_argument(
        "--reports", type=output_folder, metavar="FOLDER", help="leave their reports here"
    )


def _figures(args: argparse.Namespace) -> int:
    return make_figures(args.names, args.jobs, args.reports)


# -- your own --------------------------------------------------------------------------------------


def _describe_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of your application: a folder here")
    parser.add_argument("--from", dest="other", required=True, metavar="OTHER", help="what to copy")


def _new(args: argparse.Namespace) -> int:
    from tremula.garden.catalogue.catalogue import find_application
    from tremula.garden.catalogue.copies import copy_application

    folder = copy_application(find_application(args.other), args.name, Path.cwd())
    print(f"{folder} is a copy of {args.other}. Run it, then change it:")
    print(f"  tremula garden run ./{args.name} --tiny")
    return 0


# -- the page --------------------------------------------------------------------------------------


def _describe_page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=output_file, default=Path("garden.html"))


def _page(args: argparse.Namespace) -> int:
    from tremula.garden.catalogue.catalogue import all_applications
    from tremula.garden.catalogue.page_file import write_page

    n_bytes = write_page(all_applications(), args.file)
    print(f"{args.file}: {n_bytes / 1000:,.0f} KB. Open it in a browser; it needs no network.")
    return 0


Describe = Callable[[argparse.ArgumentParser], None]
_ACTIONS: dict[str, tuple[Describe, Callable[[argparse.Namespace], int]]] = {
    "show": (_describe_show, _show),
    "run": (_describe_run, _run),
    "new": (_describe_new, _new),
    "figures": (_describe_figures, _figures),
    "page": (_describe_page, _page),
}
