"""The configuration of a GPT: sizes, how replicas share the work, training; read from TOML."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from tremula.base.errors import FileLoadError, InvalidOption, suggest
from tremula.base.storage import strict_toml

N_BYTES = {"float16": 2, "float32": 4}
# Rows of the word table that a replica holds are a multiple of this, so that rows spread evenly.
_ROWS_TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """What the network is, whatever it runs on."""

    hidden: int
    n_layers: int
    n_heads: int
    sequence: int
    vocabulary: int
    dtype: str = "float16"
    dropout: float = 0.0
    epsilon: float = 1e-5  # of layer norms

    @property
    def n_bytes(self) -> int:
        """Of one weight or activation."""
        return N_BYTES[self.dtype]

    @property
    def head_size(self) -> int:
        return self.hidden // self.n_heads


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How replicas share the work: replica r = (dp · tp1 + tp1's place) · tp2 + tp2's place."""

    data: int = 1
    tensor_1: int = 1
    tensor_2: int = 1

    @property
    def tensor(self) -> int:
        return self.tensor_1 * self.tensor_2

    @property
    def n_replicas(self) -> int:
        return self.data * self.tensor


@dataclass(frozen=True, kw_only=True)
class GptTraining:
    """Batches and Adam's settings."""

    global_batch: int
    micro_batch: int = 1
    loss_scaling: float = 1.0
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-5
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0  # 0: gradients are not clipped
    seed: int = 0  # of dropout


@dataclass(frozen=True, kw_only=True)
class GptMachine:
    """The chips, and choices that change memory and time but no result."""

    chip: str = "bow"
    attention_serialisation: int = 1  # number of parts in which queries are computed
    n_io_tiles: int = 0
    io_mode: Literal["compute", "io", "io_overlapped"] = "compute"  # of activations


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Everything a GPT of this package is built from."""

    name: str
    model: ModelSizes
    parallel: Parallelism = field(default_factory=Parallelism)
    training: GptTraining
    machine: GptMachine = field(default_factory=GptMachine)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def accumulation(self) -> int:
        """Micro-batches of a replica for each update."""
        return self.training.global_batch // (self.parallel.data * self.training.micro_batch)

    @property
    def n_rows(self) -> int:
        """Tokens of a micro-batch."""
        return self.training.micro_batch * self.model.sequence

    @property
    def n_tokens_per_step(self) -> int:
        return self.training.global_batch * self.model.sequence

    @property
    def n_layer_parameters(self) -> int:
        h = self.model.hidden
        return 12 * h * h + 13 * h

    @property
    def n_embedding_parameters(self) -> int:
        return (self.model.vocabulary + self.model.sequence) * self.model.hidden

    @property
    def n_parameters(self) -> int:
        """Of the dense model, without padding; the head shares the word table."""
        layers = self.model.n_layers * self.n_layer_parameters
        return layers + self.n_embedding_parameters + 2 * self.model.hidden

    @property
    def word_rows(self) -> int:
        """Rows of the word table on one replica, padded: tp1 shares the vocabulary out."""
        rows = -(-self.model.vocabulary // self.parallel.tensor_1)
        return _ROWS_TOGETHER * -(-rows // _ROWS_TOGETHER)


def load_config(path: str | os.PathLike[str]) -> GPTConfig:
    """A configuration from a TOML file with tables [model], [parallel], [training], [machine]."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileLoadError(
            f"the configuration {path} cannot be read: {error.strerror}.",
            hint="name a file such as tiny.toml of examples/popxl/gpt3_175b",
        ) from error
    except UnicodeDecodeError as error:
        raise FileLoadError(
            f"the configuration {path} is not text.",
            hint="name a file such as tiny.toml of examples/popxl/gpt3_175b",
        ) from error
    return config_from_toml(text, name=path.stem)


def config_from_toml(text: str, name: str = "GPT") -> GPTConfig:
    """A configuration from the text of a TOML file."""
    try:
        tables = strict_toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileLoadError(
            f"{name} is not TOML: {error}", hint="[model]\n  hidden = 64"
        ) from error
    kinds = {
        "model": ModelSizes,
        "parallel": Parallelism,
        "training": GptTraining,
        "machine": GptMachine,
    }
    known = {"name", *kinds}
    for key in tables:
        if key not in known:
            raise InvalidOption(f"{name} has no table {key!r}.", hint=suggest(key, known))
    parts = {key: _part(kind, tables.get(key, {}), name, key) for key, kind in kinds.items()}
    return GPTConfig(name=str(tables.get("name", name)), **parts)


_Part = TypeVar("_Part")


def _part(kind: type[_Part], values: Mapping[str, Any], name: str, table: str) -> _Part:
    known = {f.name: f for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    for key in values:
        if key not in known:
            raise InvalidOption(f"{name}: [{table}] has no {key!r}.", hint=suggest(key, known))
        _check_type(f"{name}: {key} of [{table}]", values[key], known[key].type)
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidOption(f"{name}: [{table}] is incomplete: {error}.", hint="add them") from None


def _check_type(what: str, value: object, kind: object) -> None:
    if not isinstance(kind, type) or kind not in (int, bool, str, float):
        return
    is_right = isinstance(value, int | float if kind is float else kind)
    if not is_right or (isinstance(value, bool) and kind is not bool):
        raise InvalidOption(
            f"{what} is {value!r}, expected {kind.__name__}.",
            hint=f"write a value of type {kind.__name__}",
        )


def _check(config: GPTConfig) -> None:
    model, parallel, training = config.model, config.parallel, config.training
    _check_name("dtype", model.dtype, N_BYTES)
    _check_name("io_mode", config.machine.io_mode, ("compute", "io", "io_overlapped"))
    divisions = (
        ("hidden", model.hidden, "n_heads", model.n_heads),
        ("n_heads", model.n_heads, "tensor_1", parallel.tensor_1),
        ("hidden", model.hidden, "tensor_2", parallel.tensor_2),
        ("sequence", model.sequence, "tensor_1", parallel.tensor_1),
        ("sequence", model.sequence, "attention_serialisation",
         config.machine.attention_serialisation),
        ("global_batch", training.global_batch, "data × micro_batch",
         parallel.data * training.micro_batch),
    )  # fmt: skip
    for what, size, by, parts in divisions:
        if parts < 1 or size < 1 or size % parts:
            raise InvalidOption(
                f"{config.name}: {what} is {size}, expected a multiple of {by} = {parts}.",
                hint=f"change {what}, or {by}",
            )


def _check_name(what: str, value: str, known: Mapping | tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOption(f"{what} {value!r} is not known.", hint=suggest(value, known))
