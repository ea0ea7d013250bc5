"""The base of all option objects: named values that can be read, set with a check, and frozen."""

import copy
from typing import Any, Protocol, Self, runtime_checkable

from tremula.base.errors import suggest

# Setters of PopTorch 1 and 2 that scripts may still call.
RENAMED = {
    "anchorMode": "outputMode",
    "accumulationReductionType": "accumulationAndReplicationReductionType",
    "setMeanAccumulationReductionStrategy": "setMeanAccumulationAndReplicationReductionStrategy",
}


@runtime_checkable
class Freezable(Protocol):
    """Options, or a group of them, that can be made read-only."""

    def set_frozen(self, is_frozen: bool) -> None: ...


class _SealedWhenMade(type):
    """Seals an object after its construction: a typo cannot add a new private attribute."""

    def __call__(cls, *args, **kwargs) -> Any:  # noqa: ANN401
        made = super().__call__(*args, **kwargs)
        object.__setattr__(made, "_is_sealed", True)
        return made


class OptionsDict(metaclass=_SealedWhenMade):
    """Values by name. A value has the type of its default; unknown names are errors."""

    def __init__(self, **defaults) -> None:
        object.__setattr__(self, "_is_sealed", False)
        object.__setattr__(self, "_is_frozen", False)
        object.__setattr__(self, "_values", dict(defaults))

    def __getattr__(self, option: str) -> Any:  # noqa: ANN401
        # Only called if there is no real attribute. An unfinished copy has no values yet.
        values = self.__dict__.get("_values")
        if option.startswith("_") or values is None or option not in values:
            near = f": {self._advice(option)}" if values and not option.startswith("_") else ""
            raise AttributeError(f"Invalid attribute {option!r} of {type(self).__name__}{near}")
        return values[option]

    def _advice(self, option: str) -> str:
        """The setter or value that may have been meant, including names of old versions."""
        if option in RENAMED:
            return f"it is now called {RENAMED[option]!r}"
        setters = [name for name in dir(type(self)) if not name.startswith("_")]
        return suggest(option, [*setters, *self._values])

    def __setattr__(self, option: str, value: object) -> None:
        if option == "_is_frozen" or option.startswith("__"):
            object.__setattr__(self, option, value)  # popdist replaces __class__
        elif option.startswith("_"):
            self.checkIsFrozen(option)
            is_new = option not in self.__dict__ and self.__dict__.get("_is_sealed", False)
            assert not is_new, f"Invalid option {option}: {type(self).__name__} does not have it"
            object.__setattr__(self, option, value)
        else:
            self.set(**{option: value})

    def set(self, **values) -> Self:
        """Set options that exist, to values of the type they have."""
        for option, value in values.items():
            self.checkIsFrozen(option)
            near = suggest(option, self._values)
            assert option in self._values, f"Invalid option {option}: {near}"
            expected = type(self._values[option])
            assert isinstance(value, expected), (
                f"Unexpected type {type(value)} for option {option}: expected {expected}"
            )
            self._values[option] = value
        return self

    def createOrSet(self, **values) -> Self:  # noqa: N802
        """Set options, whether they exist or not."""
        for option, value in values.items():
            if option in self._values:
                self.set(**{option: value})
            else:
                self.checkIsFrozen(option)
                self._values[option] = value
        return self

    def exists(self, option: str) -> bool:
        """Whether an option has a value."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:  # noqa: N802
        """Remove an option."""
        self.checkIsFrozen(option)
        self._values.pop(option, None)

    def __call__(self, option: str) -> Any:  # noqa: ANN401
        """The value of an option."""
        assert option in self._values, f"Invalid option {option}: {suggest(option, self._values)}"
        return self._values[option]

    def toDict(self) -> dict[str, Any]:  # noqa: N802
        """The values as a new plain dictionary."""
        return dict(self._values)

    def checkIsFrozen(self, option: str | None = None) -> None:  # noqa: N802, ARG002
        """Raise if the options are in use and may no longer change."""
        if self.__dict__.get("_is_frozen", False):
            raise AttributeError("Can't modify frozen Options")

    def freeze(self) -> None:
        """Make every further change an error, also in the groups of these options."""
        self.set_frozen(True)

    def unfreeze(self) -> None:
        """Allow changes again."""
        self.set_frozen(False)

    _freeze, _unfreeze = freeze, unfreeze  # PopTorch's names, which scripts may call

    def set_frozen(self, is_frozen: bool) -> None:
        """Freeze or unfreeze these options and the groups in them."""
        object.__setattr__(self, "_is_frozen", is_frozen)
        for value in self.__dict__.values():
            if isinstance(value, Freezable):
                value.set_frozen(is_frozen)

    def __deepcopy__(self, memory: dict) -> Self:
        made = object.__new__(type(self))
        memory[id(self)] = made
        for name, value in self.__dict__.items():
            object.__setattr__(made, name, copy.deepcopy(value, memory))
        object.__setattr__(made, "_is_frozen", False)
        return made

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, object]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        lines = [f"{name}={value!r}" for name, value in self._shown()]
        if not lines:
            return f"{type(self).__name__}()"
        body = ",\n".join(lines).replace("\n", "\n    ")
        return f"{type(self).__name__}(\n    {body})"

    def _shown(self) -> list[tuple[str, object]]:
        """The names and values that `repr` lists; equal options have equal text."""
        return sorted(self._values.items())
