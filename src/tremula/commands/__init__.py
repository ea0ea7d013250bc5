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
from tremula.commands.guard import guarded, prepare_output

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand. Its module is imported only when it is used."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("chips", "tremula.commands.chips", "print chips and machines, with sources"),
    Command("codelets", "tremula.commands.codelets", "list the codelets of a C++ or Python file"),
    Command("demo", "tremula.commands.demo", "train MNIST with PopTorch, and model it on tiles"),
    Command("exponents", "tremula.commands.exponents", "show which numbers a format would lose"),
    Command("launch", "tremula.commands.launch", "run a script in several processes"),
    Command("run", "tremula.commands.run", "run a Python script, or an ONNX model"),
    Command("profile", "tremula.commands.onnx.profile", "cost an ONNX model on a chip"),
    Command("onnx-check", "tremula.commands.onnx.check", "say what of an ONNX model runs on tiles"),
    Command("view", "tremula.commands.view", "open reports in the analyser page"),
    Command("report", "tremula.commands.report", "show a report as text or JSON"),
    Command(
        "compare", "tremula.commands.compare", "show what differs between two reports, and why"
    ),
    Command(
        "history",
        "tremula.commands.reports.history",
        "plot cycles and memory over a folder of runs",
    ),
    Command("export", "tremula.commands.reports.export", "write what ran for Perfetto or Chrome"),
    Command("check", "tremula.commands.check", "fail if a report exceeds a budget"),
    Command("whatif", "tremula.commands.whatif", "cost a report or script on other chips"),
    Command("plan", "tremula.commands.plan", "find how to spread a model over chips"),
    Command("sweep", "tremula.commands.sweep", "explore chips, options and models"),
    Command("garden", "tremula.commands.garden.garden", "find, run and copy applications"),
    Command("serve", "tremula.commands.garden.serve", "answer requests with a compiled model"),
    Command("load-test", "tremula.commands.garden.load_test", "ask a server, and take times"),
    Command("bench", "tremula.commands.bench", "measure Tremula's own speed"),
    Command("fuzz", "tremula.commands.checkout.fuzz", "try random programs, models and files"),
    Command("validate", "tremula.commands.validate", "check the cost model against measurements"),
    Command("poprun", "tremula.commands.system.poprun", "run a program in several instances"),
    Command("vipu-server", "tremula.commands.system.server", "run a controller of partitions"),
    Command("system", "tremula.commands.system.tools", "list, watch, reset and test devices"),
    Command("vipu", "tremula.commands.system.vipu", "make and list partitions, and administer"),
    Command("version", "tremula.commands.version", "print the versions in use"),
)


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
    shows_traceback = own.parse_args(arguments[:n_own]).traceback
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
        install()  # what commands run imports poptorch, popart, … from Tremula
        module = cast(CommandModule, import_module(command.module))
        args = _parsed(_command_parser(command, module), rest)
        shows = shows_traceback or args.traceback
        return guarded(lambda: module.run(args), shows_traceback=shows, is_process=is_process)

    return guarded(run, shows_traceback=shows_traceback, is_process=is_process)


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Options may stand anywhere, except among the arguments of a script or a subcommand."""
    kinds = (argparse.REMAINDER, argparse.PARSER)
    takes_rest = any(action.nargs in kinds for action in parser._actions)
    parse = parser.parse_args if takes_rest else parser.parse_intermixed_args
    return parse(arguments)


def _own_parser() -> argparse.ArgumentParser:
    width = max(len(command.name) for command in COMMANDS)
    listing = "\n".join(f"  {command.name:<{width}}  {command.help}" for command in COMMANDS)
    parser = argparse.ArgumentParser(
        prog="tremula",
        usage="tremula [--version] [--traceback] COMMAND …",
        description="Program, run and profile a tile machine on the computer you have.",
        epilog=f"commands:\n{listing}\n\n`tremula COMMAND --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"tremula {VERSION}"
    parser.add_argument("--version", action="version", version=version, help="print the version")
    _add_traceback(parser)
    return parser


def _command_parser(command: Command, module: CommandModule) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"tremula {command.name}", description=command.help)
    _add_traceback(parser)
    module.add_arguments(parser)
    return parser


def _add_traceback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")


def _find_command(name: str) -> Command | None:
    for command in COMMANDS:
        if command.name == name:
            return command
    advice = suggest(name, [command.name for command in COMMANDS])
    print(f"error: no command {name!r}\n  try: {advice}", file=sys.stderr)
    return None
