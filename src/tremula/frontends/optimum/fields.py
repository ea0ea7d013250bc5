"""Fields of an IPUConfig: their types, and pairs of one value for training, one for inference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError

Check = Callable[[object], bool]


def is_whole(value: object) -> TypeGuard[int]:
    """Whether this is a number that counts things; True is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_positive(value: object) -> bool:
    """Whether this counts at least one thing."""
    return is_whole(value) and value > 0


def is_share(value: object) -> bool:
    """Whether this is a part of a whole."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def is_flag(value: object) -> bool:
    """Whether this is yes or no."""
    return isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether this is text."""
    return isinstance(value, str)


def is_mapping(value: object) -> bool:
    """Whether this is a dict with names as keys."""
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def list_of(check: Check) -> Check:
    """A check of lists with at least one item, each of which passes `check`."""
    return lambda value: isinstance(value, list) and bool(value) and all(map(check, value))


def either(*checks: Check) -> Check:
    """A check that passes what one of `checks` does."""
    return lambda value: any(check(value) for check in checks)


def is_layer_count(value: object) -> bool:
    """Whether this says how many layers an IPU has; -1 means "the rest"."""
    return is_whole(value) and value >= -1


@dataclass(frozen=True)
class ConfigEntry:
    """One setting: what it may be, in words and as a check, and its default."""

    name: str
    expected: str
    check: Check
    default: object = None
    is_twin: bool = False  # also exists as inference_<name>
    inference_default: object = None  # None: the same as for training
    may_be_none: bool = False

    def checked(self, value: object, *, name: str | None = None) -> object:
        """The value itself, or an error that says what it should be."""
        may_be_none = self.may_be_none or (name or "").startswith("inference_")
        if (value is None and may_be_none) or self.check(value):
            return list(value) if isinstance(value, list) else value
        raise IncompatibleIPUConfigError(
            f"IPUConfig.{name or self.name} must be {self.expected}, got {value!r}"
        )


_COUNTS = "a list of whole numbers, one per IPU"
_SPLITS = list_of(lambda value: is_whole(value) and value >= 0)

FIELDS: dict[str, ConfigEntry] = {
    field.name: field
    for field in (
        ConfigEntry(
            "layers_per_ipu",
            "a list of layers per IPU, in which -1 means the rest",
            list_of(is_layer_count),
            [-1],
            is_twin=True,
        ),
        ConfigEntry("ipus_per_replica", "1 or more", is_positive, is_twin=True, may_be_none=True),
        ConfigEntry(
            "matmul_proportion",
            "a share between 0 and 1, or a list of them, one per IPU",
            either(is_share, list_of(is_share)),
            0.2,
            is_twin=True,
        ),
        *(
            ConfigEntry(
                f"{what}_serialization_factor", "1 or more", is_positive, None, True, None, True
            )
            for what in ("embedding", "projection")
        ),
        *(
            ConfigEntry(
                f"serialized_{what}_splits_per_ipu", _COUNTS, _SPLITS, None, True, None, True
            )
            for what in ("embedding", "projection")
        ),
        ConfigEntry("replication_factor", "1 or more", is_positive, 1, True, 1),
        ConfigEntry("device_iterations", "1 or more", is_positive, 1, True, 1),
        ConfigEntry(
            "parallelize_kwargs", "a dict of arguments", is_mapping, None, True, None, True
        ),
        ConfigEntry("gradient_accumulation_steps", "1 or more", is_positive, 1),
        ConfigEntry("optimizer_state_offchip", "True or False", is_flag, False),
        ConfigEntry("replicated_tensor_sharding", "True or False", is_flag, False),
        ConfigEntry("enable_half_partials", "True or False", is_flag, True),
        ConfigEntry("recompute_checkpoint_every_layer", "True or False", is_flag, False),
        ConfigEntry(
            "output_mode",
            "'all', 'sum', 'final' or 'default'",
            lambda value: value in ("all", "sum", "final", "default"),
            "final",
        ),
        ConfigEntry("seed", "a whole number", is_whole, None, may_be_none=True),
        ConfigEntry("auto_loss_scaling", "True or False", is_flag, False),
        ConfigEntry("executable_cache_dir", "a folder's name", is_text, ""),
        ConfigEntry("explicit_ir_inference", "True or False", is_flag, False),
    )
}
NAMES: tuple[str, ...] = tuple(
    name
    for field in FIELDS.values()
    for name in ((field.name, f"inference_{field.name}") if field.is_twin else (field.name,))
)


def field_of(name: str) -> ConfigEntry:
    """The field a name belongs to; `inference_x` is the other half of `x`."""
    return FIELDS[name.removeprefix("inference_")]


def default_of(name: str) -> object:
    """The default of a field."""
    field = field_of(name)
    value = field.inference_default if name.startswith("inference_") else field.default
    return list(value) if isinstance(value, list) else value
