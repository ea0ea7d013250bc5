"""Options that PopTorch hands to PopART by name, and the check of all names and values."""

import copy
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Self

from tremula.base.errors import suggest
from tremula.base.options import parse_options
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.options.table import OPTIONS, set_option
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.logging import LOGGER

# The names of PopTorch's own options in `Options.toDict`, by the kind of their value.
_POPTORCH_NAMES = {
    "bool": """
        auto_round_num_ipus broadcast_buffers module_namescope_enabled
        relax_optimizer_checks separate_backward_phase serial_phases_execution
        show_compilation_progress_bar use_model
    """,
    "uint64": """
        accumulation_and_replication_reduction_type connection_type device_iterations
        distributed_process_id execution_mode gradient_accumulation half_float_casting input_cgt
        input_group_size ipu_id ipu_version max_repeat_logs num_distributed_processes output_mode
        output_return_period patterns_level random_seed replication_factor sync_pattern
        tensors_liveness
    """,
    "string": "log_dir model_name",
    "set / vector": "source_location_excludes",
    "map": """
        anchored_tensors available_memory_proportion location_accumulator location_activation
        location_optimizer location_weight patterns
    """,
}


def _known_options() -> dict[str, frozenset[str]]:
    """All names by the kind of their value; kinds have the names that error messages use."""
    result = {kind: set(names.split()) for kind, names in _POPTORCH_NAMES.items()}
    for option in OPTIONS.values():
        if option.is_set_by_name:
            result.setdefault(option.kind, set()).add(option.name)
    return {kind: frozenset(names) for kind, names in result.items()}


KNOWN_OPTIONS = _known_options()


class _PopartOptions:
    """Session options by name, `options.Popart`. Names are checked when a model is compiled."""

    def __init__(self) -> None:
        self._is_frozen = False
        self.options: dict[str, Any] = {}
        self.patterns: dict[str, bool] = {}
        self.patterns_level = 2
        self.set("instrumentWithHardwareCycleCounter", False)
        self.set("rearrangeAnchorsOnHost", False)

    def set(self, key: str, value: object) -> Self:
        """Set one value. A choice such as `popart.RecomputationType.Standard` is its number."""
        self.checkIsFrozen()
        self.options[key] = _plain(value)
        return self

    def get(self, key: str) -> Any:  # noqa: ANN401
        """The value of an option; PopART's default unless it was set."""
        return self.options[key] if key in self.options else copy.copy(OPTIONS[key].default)

    def session_options(self) -> SessionOptions:
        """PopART's session options, with the values that were set by name."""
        result = SessionOptions()
        for name, value in self.options.items():
            set_option(result, name, value)
        return result

    def setEngineOptions(self, engine_options: dict[str, str]) -> Self:  # noqa: N802
        """Options of the engine that runs the program."""
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> Self:  # noqa: N802
        """Switch rewrites of the graph on and off, starting from a level 0 (none) … 3 (all)."""
        self.checkIsFrozen()
        assert level in (0, 1, 2, 3), f"level must be 0 … 3, got {level!r}"
        self.patterns, self.patterns_level = dict(patterns), int(level)
        return self

    def checkIsFrozen(self) -> None:  # noqa: N802
        """Raise if the options are in use and may no longer change."""
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def set_frozen(self, is_frozen: bool) -> None:
        """Make every further change an error, or allow changes again."""
        self._is_frozen = is_frozen

    def __deepcopy__(self, memory: dict) -> Self:
        made = object.__new__(type(self))
        memory[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memory))
        made._is_frozen = False
        return made

    def toDict(self) -> dict[str, Any]:  # noqa: N802
        """All values, with the patterns."""
        return {
            **self.options,
            "patterns": dict(self.patterns),
            "patterns_level": self.patterns_level,
        }

    def __repr__(self) -> str:
        return f"_PopartOptions({dict(sorted(self.toDict().items()))!r})"


def validate_options(options: Mapping[str, object]) -> None:
    """Raise for an option that neither PopART nor the engine knows; log the others."""
    for name, value in options.items():
        kind = _kind_of(name, value)
        if name not in KNOWN_OPTIONS[kind]:
            raise createPoptorchError(f"Unknown {kind} option {name}: {_advice(name, kind)}")
        _check_choice(name, value)
        _log_option(name, value)
    engine_options = options.get("engineOptions", {})
    assert isinstance(engine_options, Mapping), "its kind was checked above"
    with poptorch_errors():
        parse_options(engine_options)


def _plain(value: object) -> Any:  # noqa: ANN401
    """Enumeration members as integers, also inside a container."""
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_plain(item) for item in value)
    return value


def _check_choice(name: str, value: object) -> None:
    choices = OPTIONS[name].choices if name in OPTIONS else None
    if choices is not None and value not in set(choices):
        known = ", ".join(f"{choice} = {int(choice)}" for choice in choices)
        raise createPoptorchError(
            f"Value for {choices.__name__} out of range: {name} is {value}, expected {known}"
        )


def _kind_of(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        # An integer is a valid value for a floating point option.
        return "floating point" if name in KNOWN_OPTIONS["floating point"] else "uint64"
    if isinstance(value, float):
        return "floating point"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list | tuple | set | frozenset):
        return "set / vector"
    if isinstance(value, Mapping):
        return "map"
    raise createPoptorchError(f"Unknown value type {type(value)} for option {name}")


def _advice(name: str, kind: str) -> str:
    for other, names in KNOWN_OPTIONS.items():
        if name in names and other != kind:
            return f"its value must be of kind {other}"
    return suggest(name, _all_names())


def _all_names() -> Iterable[str]:
    return (name for names in KNOWN_OPTIONS.values() for name in names)


def _log_option(name: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            LOGGER.debug("poptorch.Options set %s[%s] to %s", name, key, _shown(item))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            LOGGER.debug("poptorch.Options added %s to %s", _shown(item), name)
    else:
        LOGGER.debug("poptorch.Options set %s to value %s", name, _shown(value))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)
