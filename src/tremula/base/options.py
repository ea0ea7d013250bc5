"""Engine options: the table of all names, and the only place that reads options from outside."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from types import MappingProxyType

from tremula.base.errors import InvalidOption, suggest
from tremula.base.source import Source, user_source
from tremula.base.storage import strict_json

OptionValue = bool | int | float | str

# Later ones win, and all win over code: the environment of a program overrides its code.
ENVIRONMENT_VARIABLES = ("POPLAR_ENGINE_OPTIONS", "POPLAR_RUNTIME_OPTIONS")


class OptionKind(Enum):
    """The form of a value, in the words an error uses."""

    BOOL = '"true" or "false"'
    INT = "a whole number, decimal or 0x-hex"
    NUMBER = "a number, decimal or 0x-hex"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option. `is_acted_on` is False where it is accepted without effect."""

    name: str
    kind: OptionKind
    default: OptionValue | None  # None: unset
    about: str
    is_acted_on: bool
    choices: tuple[str, ...] = ()
    minimum: int | None = None

    @property
    def form(self) -> str:
        """What a value looks like."""
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        at_least = f", at least {self.minimum}" if self.minimum is not None else ""
        return self.kind.value + at_least


def _acted_on(
    name: str,
    default: OptionValue,
    about: str,
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
) -> OptionSpec:
    kind = _KIND_OF_TYPE[type(default)]
    return OptionSpec(name, kind, default, about, True, choices, minimum)


def _accepted(
    names: str,
    about: str,
    kind: OptionKind = OptionKind.BOOL,
    default: OptionValue | None = None,
    choices: tuple[str, ...] = (),
) -> list[OptionSpec]:
    """Options of Poplar that change nothing here; `names` are separated by blanks."""
    minimum = 0 if kind in (OptionKind.INT, OptionKind.NUMBER) else None
    return [
        OptionSpec(name, kind, default, about, False, choices, minimum) for name in names.split()
    ]


_KIND_OF_TYPE = {
    bool: OptionKind.BOOL, int: OptionKind.INT, float: OptionKind.NUMBER, str: OptionKind.TEXT,
}  # fmt: skip
_INT, _NUMBER, _TEXT = OptionKind.INT, OptionKind.NUMBER, OptionKind.TEXT

# Poplar's options have Poplar's defaults where these are public, with two exceptions: a tile out of
# memory raises, and what a report needs is kept, since reporting is what a model is for.
_TABLE: tuple[OptionSpec, ...] = (
    _acted_on("debug.allowOutOfMemory", False,
              "a tile out of memory is an error (false) or a warning (true); both leave a report"),
    _acted_on("debug.strict", False,
              "poison Outputs and uninitialised memory, protect Inputs, shuffle vertex order"),
    _acted_on("debug.nanOverflowMode", False,
              "start with halves that become NaN when they overflow; programs can change it"),
    _acted_on("debug.floatPointOpException", False,
              "stop on an invalid operation, a division by zero or an overflow"),
    _acted_on("exchange.enablePrefetch", False,
              "call `prefetch` of stream callbacks ahead of time"),
    _acted_on("tremula.threads", 0, "threads that run vertices; 0 = one per core", minimum=0),
    _acted_on("tremula.cache", "", "folder of the executable cache; empty = none"),
    _acted_on("tremula.dump", "",
              "folder for a text of what each compiler pass left, and their times; empty = none"),
    _acted_on("tremula.seed", 0,
              "seed of random numbers, rounding and strict mode's shuffle", minimum=0),
    _acted_on("autoReport.all", False, "write a report, profile.pop; see docs/vision.md"),
    _acted_on("autoReport.outputGraphProfile", False, "the same as autoReport.all"),
    _acted_on("autoReport.outputExecutionProfile", False, "the same as autoReport.all"),
    _acted_on("autoReport.directory", ".",
              "folder of the report; a second engine's goes to the folder 2 in it, and so on"),
    _acted_on("autoReport.executionProfileProgramRunCount", 2,
              "runs whose order of steps is kept; later runs are counted", minimum=0),
    *_accepted("debug.retainDebugInformation debug.instrument",
               "names, source lines and modelled cycles are always kept", default=True),
    *_accepted("target.deterministicWorkers", "vertices always go to the same workers", _TEXT,
               "true", ("true", "false", "portable")),
    *_accepted("exchange.streamBufferOverlap", "stream buffers never share memory", _TEXT, "any",
               ("any", "none", "hostRearrangeOnly")),
    *_accepted("autoReport.outputSerializedGraph autoReport.outputDebugInfo "
               "autoReport.outputLoweredVars", "a report always holds names, lines and variables"),
    *_accepted("autoReport.streamAtEachRun",
               "a report is written after the first run and when the engine is done"),
    *_accepted("debug.instrumentCompute debug.instrumentControlFlow "
               "debug.instrumentExternalExchange", "the model instruments everything or nothing"),
    *_accepted("debug.computeInstrumentationLevel", "the model knows every vertex", _TEXT,
               choices=("tile", "vertex", "ipu")),
    *_accepted("debug.outputAllSymbols debug.verify debug.runtimeVerify debug.trace "
               "debug.branchRecordFlush", "there is no device code to look into"),
    *_accepted("debug.traceFile debug.loweredVarDumpFile", "there is no device code to look into",
               _TEXT),
    *_accepted("debug.workerStackSizeInBytes", "stacks have the size the chip states", _INT),
    *_accepted("profiler.includeCycleEstimates profiler.includeFlopEstimates "
               "profiler.blocks.implicitFlush", "the profile always holds what is known"),
    *_accepted("profiler.programs.filter profiler.blocks.filter profiler.format",
               "the profile always holds what is known", _TEXT),
    *_accepted("opt.enableInlining opt.useAutoloader", "there is no device code to optimise"),
    *_accepted("opt.internalExchangeOptimisationTarget", "exchange code has one form", _TEXT),
    *_accepted("opt.maxComputeSetsPerLoweredCopy", "a copy is one step", _INT),
    *_accepted("opt.maxCompilationThreads", "see tremula.threads", _INT, 0),
    *_accepted("exchange.multicastPolicy", "multicast is always used", _TEXT),
    *_accepted("target.syncReplicasIndependently target.extendedMemory "
               "streamCallbacks.numaAware", "a property of real machines"),
    *_accepted("target.saveArchive", "executables are saved with their own method", _TEXT),
    *_accepted("target.numberRuntimeReplica target.firstRuntimeReplica",
               "one process runs all replicas", _INT),
    *_accepted("target.syncMethod", "a property of real machines", _TEXT, "default",
               ("polling", "hybrid", "default")),
    *_accepted("target.syncPollPeriodUs", "a property of real machines", _INT, 0),
    *_accepted("target.exceptionPollPeriodUs", "a property of real machines", _INT, 250000),
    *_accepted("target.hostSyncTimeout", "a property of real machines", _NUMBER, 300.0),
    *_accepted("streamCallbacks.multiThreadMode", "callbacks run on the thread that runs the "
               "program", _TEXT, None, ("singleThread", "collaborative", "dedicated")),
    *_accepted("streamCallbacks.numWorkerThreads", "see streamCallbacks.multiThreadMode", _INT, 0),
    *_accepted("streamCallbacks.maxLookahead", "the prefetch depth is the stream's own", _TEXT),
)  # fmt: skip

OPTIONS: Mapping[str, OptionSpec] = MappingProxyType({spec.name: spec for spec in _TABLE})

# Names Poplar used to have, and what to do instead.
FORMER_NAMES = {
    "target.workerStackSizeInBytes": "it is now called 'debug.workerStackSizeInBytes'",
    "target.textSectionSizeInBytes": "leave it out: the text section has the size it needs",
}


_PLAIN = (str, Real, os.PathLike)  # Python types a value may have


@dataclass(frozen=True, slots=True)
class OptionValues:
    """The value of every option. `names_set` lists those that were set."""

    values: Mapping[str, OptionValue | None]
    names_set: tuple[str, ...]

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), f"option {name} is not a flag"
        return value

    def whole(self, name: str) -> int:
        value = self.values[name]
        assert type(value) is int, f"option {name} is not a whole number"
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), f"option {name} is not text"
        return value

    def without_effect(self) -> tuple[str, ...]:
        """Options that were set but change nothing here."""
        return tuple(name for name in self.names_set if not OPTIONS[name].is_acted_on)

    def to_dict(self) -> dict[str, str]:
        """The options given, as text; `parse_options` reads them back."""
        return {name: _as_text(self.values[name]) for name in self.names_set}


def parse_options(
    mapping: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> OptionValues:
    """Options from code, overridden by those in the environment; `environ` is for tests."""
    values: dict[str, OptionValue | None] = {spec.name: spec.default for spec in _TABLE}
    names_set: dict[str, None] = {}
    source = user_source()
    for name, value in (mapping or {}).items():
        values[name] = _checked(name, value, "", source)
        names_set[name] = None
    outside = os.environ if environ is None else environ
    for variable in ENVIRONMENT_VARIABLES:
        for name, value in _from_json(variable, outside.get(variable, "")).items():
            values[name] = _checked(name, value, f" in {variable}", None)
            names_set[name] = None
    return OptionValues(MappingProxyType(values), tuple(names_set))


def _from_json(variable: str, text: str) -> dict[str, object]:
    if not text.strip():
        return {}
    example = f"""write {variable}='{{"debug.strict": "true"}}'"""
    try:
        parsed = strict_json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{variable} is not valid JSON: {error}.", hint=example) from None
    if not isinstance(parsed, dict):
        raise InvalidOption(
            f"{variable} must hold a JSON object, got {type(parsed).__name__}: {text}.",
            hint=example,
        )
    return parsed


def _checked(name: str, value: object, where: str, source: Source | None) -> OptionValue:
    spec = OPTIONS.get(name)
    if spec is None:
        hint = FORMER_NAMES.get(name) or suggest(name, OPTIONS)
        raise InvalidOption(f"Unrecognised option '{name}'{where}", source=source, hint=hint)
    parsed = _parsed(spec, _as_text(value)) if isinstance(value, _PLAIN) else None
    if parsed is None:
        raise InvalidOption(
            f"option '{name}'{where} must be {spec.form}; got {value!r}.",
            source=source,
            hint=f"{name}: {spec.about}",
        )
    return parsed


def _as_text(value: object) -> str:
    """A value as Poplar writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _parsed(spec: OptionSpec, text: str) -> OptionValue | None:
    """The value a text means, or None if this option cannot have it."""
    if spec.choices:
        return text if text in spec.choices else None
    if spec.kind is OptionKind.TEXT:
        return text
    if spec.kind is OptionKind.BOOL:
        return {"true": True, "false": False}.get(text)
    number = _number(text, is_whole=spec.kind is OptionKind.INT)
    if number is None or (spec.minimum is not None and number < spec.minimum):
        return None
    return number


def _number(text: str, is_whole: bool) -> int | float | None:
    try:
        if text.lower().startswith("0x"):
            return int(text, 16)
        number = int(text) if is_whole else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def options_markdown() -> str:
    """The page docs/options.md."""
    rows = [_row(spec) for spec in _TABLE]
    acted = [row for row, spec in zip(rows, _TABLE, strict=True) if spec.is_acted_on]
    accepted = [row for row, spec in zip(rows, _TABLE, strict=True) if not spec.is_acted_on]
    former = [f"| `{name}` | {advice} |" for name, advice in FORMER_NAMES.items()]
    return "\n".join(
        [
            "# Options",
            "",
            "Made from the table in `src/tremula/base/options.py`; `make docs` renews it.",
            "",
            "Options are given to the engine as a mapping of names to values. JSON objects in the",
            "environment variables `POPLAR_ENGINE_OPTIONS` and `POPLAR_RUNTIME_OPTIONS` override",
            "what the code says. Numbers may be decimal or 0x-hex. An unknown name is an error.",
            "",
            "## Acted on",
            "",
            "| option | value | default | what it does |",
            "|---|---|---|---|",
            *acted,
            "",
            "## Accepted without effect",
            "",
            "Programs written for Poplar may set these; the last column says why nothing changes.",
            "",
            "| option | value | default | why |",
            "|---|---|---|---|",
            *accepted,
            "",
            "## Former names",
            "",
            "| option | now |",
            "|---|---|",
            *former,
            "",
        ]
    )


def _row(spec: OptionSpec) -> str:
    if spec.default is None:
        default = "unset"
    else:
        default = f"`{_as_text(spec.default)}`" if spec.default != "" else "empty"
    return f"| `{spec.name}` | {spec.form} | {default} | {spec.about} |"
