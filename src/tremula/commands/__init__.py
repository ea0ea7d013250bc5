"""The `tremula` command: finds the subcommand, hands it its arguments, prints errors plainly."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from tremula.base.errors import suggest
from tremula.base.names import install
from tremula.base.version import VERSION
from tremula.commands.guard import CommandParser, actions_of, guarded, prepare_output

__all__ = ["COMMANDS", "GROUPS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand. Its module, of this package, is imported only when it is used."""

    name: str
    home: str
    help: str
    example: str  # its arguments in a typical call

    @property
    def module(self) -> str:
        return f"tremula.commands.{self.home}"


# Every command, by its purpose.
GROUPS = {
    "run": (
        Command("demo", "demo", "train MNIST with PopTorch, and model it on tiles", ""),
        Command("run", "run", "run a Python script, or an ONNX model", "script.py --epochs 3"),
        Command(
            "launch", "system.launch", "run a script in several processes", "--nproc 4 script.py"
        ),
        Command(
            "garden", "garden.garden", "find, run and copy applications", "run heat_stencil --tiny"
        ),
        Command("serve", "garden.serve", "answer requests with a compiled model", "model.onnx"),
        Command(
            "load-test",
            "garden.load_test",
            "ask a server, and take times",
            "http://localhost:8000 mnist",
        ),
        Command(
            "doctor",
            "installation.doctor",
            "say what is installed, what works, and how to repair it",
            "",
        ),
    ),
    "look": (
        Command("view", "view", "open reports in the analyser page", "reports/mnist"),
        Command("report", "report", "show a report as text or JSON", "reports/mnist"),
        Command("compare", "compare", "show what differs between two reports, and why", "old new"),
        Command(
            "history", "reports.history", "plot cycles and memory over a folder of runs", "reports"
        ),
        Command(
            "export", "reports.export", "write what ran for Perfetto or Chrome", "R -o run.json"
        ),
        Command(
            "check", "check", "fail if a report exceeds a budget", "reports/mnist --budget b.toml"
        ),
        Command("exponents", "exponents", "show which numbers a format would lose", "script.py"),
    ),
    "explore": (
        Command(
            "whatif", "whatif", "cost a report or script on other chips", "R --sweep clock=1e9,2e9"
        ),
        Command("plan", "plan", "find how to spread a model over chips", "script.py --chips 4"),
        Command("sweep", "sweep", "explore chips, options and models", "space.toml"),
        Command("profile", "onnx.profile", "cost an ONNX model on a chip", "model.onnx"),
        Command(
            "onnx-check", "onnx.check", "say what of an ONNX model runs on tiles", "model.onnx"
        ),
        Command("fit", "fit", "fit a chip to measurements", "rows.csv --from bow -o mychip.toml"),
        Command("chips", "chips", "print chips and machines, with sources", "bow"),
        Command("codelets", "codelets", "list the codelets of a C++ or Python file", "mine.cpp"),
    ),
    "machine room": (
        Command("poprun", "system.poprun", "run a program in several instances", "python a.py"),
        Command("vipu-server", "system.server", "run a controller of partitions", ""),
        Command(
            "vipu", "system.vipu", "make and list partitions, and administer", "list partition"
        ),
        Command("system", "system.tools", "list, watch, reset and test devices", "monitor"),
    ),
    "Tremula itself": (
        Command("cache", "cache", "show, check, prune and clear stored code", "check"),
        Command("bench", "bench", "measure Tremula's own speed", "core"),
        Command("fuzz", "checkout.fuzz", "try random programs, models and files", "run"),
        Command("validate", "validate", "check the cost model against measurements", ""),
        Command("version", "installation.version", "print the versions in use", ""),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


class CommandModule(Protocol):
    """What the module of a subcommand must define."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int | None:
        """Run the command; returns the exit code, or None for 0."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tremula ARGUMENTS` and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_output()
    n_own = next((i for i, a in enumerate(arguments) if not a.startswith("-")), len(arguments))
    own = _own_parser()
    chosen = own.parse_args(arguments[:n_own])
    shows_traceback = chosen.traceback
    if n_own == len(arguments):
        own.print_help()
        return 0 if not arguments else 2
    words = arguments[n_own:]
    if words[0].endswith(".py"):  # tremula script.py …
        words = ["run", *words]
    command = _find_command(words[0])
    if command is None:
        return 2
    rest, is_process = words[1:], argv is None

    def run() -> int:
        from tremula.commands.progress import quiet

        install()  # what commands run imports poptorch, popart, … from Tremula
        module = cast(CommandModule, import_module(command.module))
        args = _parsed(_command_parser(command, module), rest)
        shows = shows_traceback or args.traceback
        with quiet(chosen.quiet or args.quiet):
            return guarded(lambda: module.run(args), shows_traceback=shows, is_process=is_process)

    return guarded(run, shows_traceback=shows_traceback, is_process=is_process)


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Options may stand anywhere, except among the arguments of a script or a subcommand."""
    kinds = (argparse.REMAINDER, argparse.PARSER)
    takes_rest = any(action.nargs in kinds for action in actions_of(parser))
    parse = parser.parse_args if takes_rest else parser.parse_intermixed_args
    return parse(arguments)


def _listing() -> str:
    """All commands in their groups, each as one would type it."""
    typed = {c.name: f"tremula {c.name} {c.example}".rstrip() for c in COMMANDS}
    width = max(map(len, typed.values()))
    rows = []
    for title, group in GROUPS.items():
        rows += ["", f"{title}:", *(f"  {typed[c.name]:<{width}}  {c.help}" for c in group)]
    return "\n".join(rows).lstrip("\n")


def _own_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="tremula",
        usage="tremula [--version] [--traceback] [--quiet] COMMAND …",
        description="Program, run and profile a tile machine on the computer you have.",
        epilog=f"{_listing()}\n\n`tremula COMMAND --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"tremula {VERSION}"
    parser.add_argument("--version", action="version", version=version, help="print the version")
    _add_common(parser)
    return parser


def _command_parser(command: Command, module: CommandModule) -> argparse.ArgumentParser:
    parser = CommandParser(prog=f"tremula {command.name}", description=command.help)
    _add_common(parser)
    module.add_arguments(parser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    parser.add_argument("--quiet", action="store_true", help="no progress of long work")


def _find_command(name: str) -> Command | None:
    for command in COMMANDS:
        if command.name == name:
            return command
    advice = suggest(name, [command.name for command in COMMANDS])
    print(f"error: no command {name!r}\n  try: {advice}", file=sys.stderr)
    return None
