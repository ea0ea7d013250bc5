"""A constant with its provenance; how a record of constants is declared, checked and changed."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from tremula.base.errors import InvalidMachineModel, suggest
from tremula.base.provenance import CONSTANT_PROVENANCES, ConstantProvenance

Value = int | float | str

RecordType = TypeVar("RecordType", bound="Record")


class Record(Protocol):
    """A frozen dataclass of constants, with one fact for each in order of declaration."""

    @property
    def name(self) -> str: ...

    @property
    def provenance(self) -> "tuple[Fact, ...]": ...


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """One constant: its value, and how far it can be trusted.

    `stated` is said by the source, `derived` follows from what it says, `guessed` is our guess, and
    `yours` was changed by you. The unit comes from the field that the fact is given to.
    """

    value: Value
    provenance: ConstantProvenance
    source: str
    unit: str = ""

    def __post_init__(self) -> None:
        if self.provenance not in CONSTANT_PROVENANCES:
            raise InvalidMachineModel(
                f"unknown provenance {self.provenance!r} of a fact.",
                hint=suggest(str(self.provenance), CONSTANT_PROVENANCES),
            )
        if not isinstance(self.source, str) or not self.source.strip():
            raise InvalidMachineModel(
                f"the value {self.value!r} has no source.",
                hint="say in a few words where it comes from",
            )


def stated(value: Value, source: str) -> Fact:
    """A fact that `source` states."""
    return Fact(value, "stated", source)


def derived(value: Value, source: str) -> Fact:
    """A fact computed from what `source` states."""
    return Fact(value, "derived", source)


def guessed(value: Value, source: str) -> Fact:
    """A guess, and what it rests on."""
    return Fact(value, "guessed", source)


def quantity(
    unit: str,
    meaning: str,
    *,
    group: str = "",
    may_be_zero: bool = False,
    at_most: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401 - as dataclasses.field: stands for a value of the field's type
    """Declare a field that holds a constant: its unit, meaning, and what values are possible."""
    metadata = {
        "unit": unit,
        "meaning": meaning,
        "group": group,
        "may_be_zero": may_be_zero,
        "at_most": at_most,
        "choices": choices,
    }
    return dataclasses.field(metadata=metadata)


@cache
def quantities(record: type) -> Mapping[str, dataclasses.Field[Any]]:
    """The fields of a record that hold constants, in order of declaration."""
    declared = {f.name: f for f in dataclasses.fields(record) if "unit" in f.metadata}
    return MappingProxyType(declared)


def make_record(
    record: type[RecordType], name: str, facts: Mapping[str, Fact], **others: object
) -> RecordType:
    """Make a record from one fact per constant; a missing or unknown one is an error."""
    known = quantities(record)
    check_names(record, name, facts)
    missing = [field for field in known if field not in facts]
    if missing:
        raise InvalidMachineModel(
            f"{record.__name__} {name!r} lacks {_listed(missing)}.",
            hint="give each a value and a source, or start from a known one and change it",
        )
    checked = {key: _checked(name, field, facts[key]) for key, field in known.items()}
    values = {key: fact.value for key, fact in checked.items()}
    make = cast(Callable[..., RecordType], record)
    return make(name=name, provenance=tuple(checked.values()), **values, **others)


def check_names(record: type, name: str, names: Iterable[str]) -> None:
    """Refuse a name that is not a constant of the record."""
    known = quantities(record)
    for key in names:
        if key not in known:
            raise InvalidMachineModel(
                f"{record.__name__} {name!r} has no constant {key!r}.", hint=suggest(key, known)
            )


def check_provenance(owner: Record) -> None:
    """Refuse a record whose constants and facts disagree; every constructor ends here."""
    known = quantities(type(owner))
    facts = owner.provenance
    if len(facts) != len(known):
        raise InvalidMachineModel(
            f"{type(owner).__name__} {owner.name!r} has {len(known)} constants but "
            f"{len(facts)} facts about them.",
            hint="make one with replace() or from a TOML file, so that each has a source",
        )
    for key, fact in zip(known, facts, strict=True):
        if getattr(owner, key) != fact.value:
            raise InvalidMachineModel(
                f"{owner.name!r} has {key} = {getattr(owner, key)!r}, but its source says "
                f"{fact.value!r}.",
                hint=f"change it with replace({key}=...)",
            )


def facts_of(owner: Record) -> dict[str, Fact]:
    """Each constant of a record with its provenance, by name."""
    return dict(zip(quantities(type(owner)), owner.provenance, strict=True))


class ChangedRecord(NamedTuple):
    """What `replace` makes of a record: changed facts, and a name that says whether it differs."""

    facts: dict[str, Fact]  # those that were given
    name: str


def changed_facts(
    owner: Record, changes: Mapping[str, object], is_new: bool = False
) -> ChangedRecord:
    """A record's constants with some changed; a `*` marks the name of one that differs."""
    base = owner.name.rstrip("*")
    check_names(type(owner), owner.name, changes)
    facts = {key: _as_changed(value, base) for key, value in changes.items()}
    is_new = is_new or any(fact.value != getattr(owner, key) for key, fact in facts.items())
    return ChangedRecord(facts, base + "*" * is_new)


def _as_changed(value: object, base: str) -> Fact:
    """The fact that a user's new value is, unless it comes with its own provenance."""
    if isinstance(value, Fact):
        return value
    return Fact(value, "yours", f"changed from {base}")  # pyright: ignore[reportArgumentType]


def _checked(name: str, field: dataclasses.Field[Any], fact: Fact) -> Fact:
    value = _typed(name, field, fact.value)
    rules = field.metadata
    if rules["choices"] and value not in rules["choices"]:
        raise InvalidMachineModel(
            f"{field.name} of {name!r} is {value!r}, expected one of {_listed(rules['choices'])}.",
            hint=suggest(str(value), rules["choices"]),
        )
    if not isinstance(value, str):
        _check_range(name, field, value)
    if value is fact.value and fact.unit == rules["unit"]:
        return fact  # most are those of another record
    return Fact(value, fact.provenance, fact.source, rules["unit"])


def _typed(name: str, field: dataclasses.Field[Any], value: Value) -> Value:
    wanted = field.type
    if wanted is float and type(value) is int:
        return float(value) if abs(value) < 1 << 1000 else math.inf
    if type(value) is not wanted:
        kind = {int: "a whole number", float: "a number", str: "a text"}[wanted]
        raise InvalidMachineModel(
            f"{field.name} of {name!r} must be {kind}, got {value!r} "
            f"of type {type(value).__name__}.",
            hint=f"it means: {field.metadata['meaning']} ({field.metadata['unit']})",
        )
    return value


LARGEST = 1 << 100  # of whole numbers: beyond it they overflow in arithmetic


def _check_range(name: str, field: dataclasses.Field[Any], value: int | float) -> None:
    rules = field.metadata
    is_low = value < 0 or (value == 0 and not rules["may_be_zero"])
    is_high = value > rules["at_most"] or abs(value) == math.inf or value > LARGEST
    if is_low or is_high or value != value:  # noqa: PLR0124 - the last is NaN
        expected = "zero or more" if rules["may_be_zero"] else "more than zero"
        if math.isfinite(rules["at_most"]):
            expected += f" and at most {rules['at_most']:g}"
        raise InvalidMachineModel(
            f"{field.name} of {name!r} is {_shown(value)} {rules['unit']}, expected {expected}.",
            hint=f"it means: {rules['meaning']}",
        )


def _shown(value: int | float) -> str:
    """A number as text; Python does not write numbers of thousands of digits."""
    return repr(value) if isinstance(value, float) or abs(value) <= LARGEST else "beyond 2^100"


def _listed(names: Iterable[str]) -> str:
    shown = [repr(n) for n in names]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")
