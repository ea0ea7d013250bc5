"""IPUConfig: how a model of transformers is spread over IPUs, in training and in inference."""

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch

import poptorch
from tremula.base.errors import suggest
from tremula.base.storage import strict_json
from tremula.base.storage.atomic_file import write_text
from tremula.frontends.optimum.errors import IncompatibleIPUConfigError
from tremula.frontends.optimum.fields import FIELDS, NAMES, default_of, field_of
from tremula.frontends.optimum.published_configs import published_config

IPU_CONFIG_NAME = "ipu_config.json"
_EXCLUSIVE = tuple(
    (f"{what}_serialization_factor", f"serialized_{what}_splits_per_ipu")
    for what in ("embedding", "projection")
)


class IPUConfig:
    """Settings by name. After `.eval()`, a field with a twin is `inference_<field>`.

    A twin that is None is the same as in training.
    """

    def __init__(self, **fields: object):
        self._mode = "training"
        self._values: dict[str, Any] = {name: default_of(name) for name in NAMES}
        for name, value in fields.items():
            if name not in NAMES:
                raise IncompatibleIPUConfigError(
                    f"IPUConfig has no field {name!r}", hint=suggest(name, NAMES)
                )
            self._values[name] = field_of(name).checked(value, name=name)
        for for_inference in (False, True):
            self._check(for_inference)

    # -- fields ------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """Which half of the twins is in force: "training" or "inference"."""
        return self._mode

    def train(self) -> Self:
        """Let fields with a twin be those of training."""
        self._mode = "training"
        return self

    def eval(self) -> Self:
        """Let fields with a twin be those of inference."""
        self._mode = "inference"
        return self

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a type for each field
        if name.startswith("_") or name not in NAMES:
            raise AttributeError(f"IPUConfig has no field {name!r}: {suggest(name, NAMES)}")
        return self.value(name, for_inference=self._mode == "inference")

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if name not in NAMES:
            raise AttributeError(f"IPUConfig has no field {name!r}: {suggest(name, NAMES)}")
        if self._mode == "inference" and name in FIELDS and FIELDS[name].is_twin:
            name = f"inference_{name}"
        before = self._values[name]
        self._values[name] = field_of(name).checked(value, name=name)
        try:
            self._check(name.startswith("inference_"))
        except IncompatibleIPUConfigError:
            self._values[name] = before
            raise

    def value(self, name: str, *, for_inference: bool) -> Any:  # noqa: ANN401 - a type for each field
        """A field as it is in training or inference, whatever the mode."""
        field = field_of(name)
        if field.is_twin and (for_inference or name.startswith("inference_")):
            result = self._values[f"inference_{field.name}"]
            if result is not None or name.startswith("inference_"):
                return result
        result = self._values[field.name]
        if field.name == "ipus_per_replica" and result is None:
            return len(self.value("layers_per_ipu", for_inference=for_inference))
        if field.name == "parallelize_kwargs" and result is None:
            return {}
        return result

    def _check(self, for_inference: bool) -> None:
        """Raise if fields contradict each other."""

        def value(name: str) -> Any:  # noqa: ANN401
            return self.value(name, for_inference=for_inference)

        prefix = "inference_" if for_inference else ""
        n_ipus, layers = value("ipus_per_replica"), value("layers_per_ipu")
        if len(layers) not in (1, n_ipus) or (len(layers) == 1 != n_ipus and layers != [-1]):
            raise IncompatibleIPUConfigError(
                f"{prefix}layers_per_ipu={layers} speaks of {len(layers)} IPUs, but "
                f"{prefix}ipus_per_replica is {n_ipus}",
                hint=f"give {n_ipus} numbers, or leave {prefix}ipus_per_replica out",
            )
        for factor, splits in _EXCLUSIVE:
            if value(factor) is not None and value(splits) is not None:
                raise IncompatibleIPUConfigError(
                    f"only one of {prefix}{factor} and {prefix}{splits} can be set, got "
                    f"{value(factor)} and {value(splits)}"
                )
            self._check_length(f"{prefix}{splits}", value(splits), n_ipus)
        self._check_length(f"{prefix}matmul_proportion", value("matmul_proportion"), n_ipus)

    @staticmethod
    def _check_length(name: str, value: object, n_ipus: int) -> None:
        if isinstance(value, list) and len(value) != n_ipus:
            raise IncompatibleIPUConfigError(
                f"{name}={value} has {len(value)} items, expected one for each of {n_ipus} IPUs"
            )

    # -- what follows from them --------------------------------------------------------------------

    def batch_size_factor(self, for_inference: bool = False) -> int:
        """How many micro-batches one call takes."""

        def value(name: str) -> int:
            return self.value(name, for_inference=for_inference)

        once = value("replication_factor") * value("device_iterations")
        return once if for_inference else once * self._values["gradient_accumulation_steps"]

    def to_options(
        self, for_inference: bool = False, compile_only: bool = False
    ) -> poptorch.Options:
        """These settings as options of PopTorch."""

        def value(name: str) -> Any:  # noqa: ANN401
            return self.value(name, for_inference=for_inference)

        options = poptorch.Options().autoRoundNumIPUs(True)
        if compile_only:
            options.useOfflineIpuTarget()
        options.replicationFactor(value("replication_factor"))
        options.deviceIterations(value("device_iterations"))
        if for_inference:
            options.outputMode(poptorch.OutputMode.All)
            options.setExecutionStrategy(poptorch.ShardedExecution())
        else:
            self._set_training(options)
        self._set_memory(options, value("ipus_per_replica"), value("matmul_proportion"))
        if value("seed") is not None:
            options.randomSeed(value("seed"))
        if value("executable_cache_dir"):
            options.enableExecutableCaching(value("executable_cache_dir"))
        options.Precision.enableStochasticRounding(not for_inference)
        if value("enable_half_partials"):
            options.Precision.setPartialsType(torch.float16)
        return options

    def _set_training(self, options: poptorch.Options) -> None:
        values = self._values
        options.Training.gradientAccumulation(values["gradient_accumulation_steps"])
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
        modes = {mode.name.lower(): mode for mode in poptorch.OutputMode}
        if values["output_mode"] != "default":
            options.outputMode(modes[values["output_mode"]])
        is_sharded = values["replicated_tensor_sharding"] and values["replication_factor"] > 1
        options.TensorLocations.setOptimizerLocation(
            poptorch.TensorLocationSettings()
            .useOnChipStorage(not values["optimizer_state_offchip"])
            .useReplicatedTensorSharding(is_sharded)
        )
        if values["auto_loss_scaling"]:
            options.Training.setAutomaticLossScaling(True)
        options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))

    @staticmethod
    def _set_memory(options: poptorch.Options, n_ipus: int, shares: float | list[float]) -> None:
        every = shares if isinstance(shares, list) else [shares] * n_ipus
        options.setAvailableMemoryProportion({f"IPU{i}": share for i, share in enumerate(every)})

    # -- files -------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, values: Mapping[str, object], **changes: object) -> Self:
        """A configuration from a dict as `to_dict` returns it, with changes."""
        saved = {k: v for k, v in values.items() if k not in ("optimum_version", "model_type")}
        return cls(**{**saved, **changes})

    @classmethod
    def from_pretrained(cls, name_or_path: str | os.PathLike[str], **changes: object) -> Self:
        """The configuration in a folder or file, or one of those published as Graphcore/….

        Nothing is ever fetched: the published ones come with this package.
        """
        path = Path(name_or_path)
        path = path / IPU_CONFIG_NAME if path.is_dir() else path
        if not path.is_file():
            return cls.from_dict(published_config(os.fspath(name_or_path)), **changes)
        try:
            values = strict_json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise IncompatibleIPUConfigError(f"{path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise IncompatibleIPUConfigError(f"{path} must hold an object, got {values!r:.60}")
        return cls.from_dict(values, **changes)

    def save_pretrained(self, folder: str | os.PathLike[str], **_: object) -> None:
        """Write `ipu_config.json` into a folder."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.to_json_file(Path(folder) / IPU_CONFIG_NAME)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return copy.deepcopy(self._values)

    def to_json_string(self) -> str:
        """All fields as JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_json_file(self, path: str | os.PathLike[str]) -> None:
        """Write all fields as JSON."""
        write_text(path, self.to_json_string())

    def update_from_string(self, text: str) -> None:
        """Change fields as a command line does: `a=1,b=[1 2],c=true`."""
        for assignment in filter(None, text.split(",")):
            name, equals, value = assignment.partition("=")
            if not equals:
                raise IncompatibleIPUConfigError(
                    f"{assignment!r} in {text!r} is not of the form field=value"
                )
            setattr(self, name.strip(), _parsed(value.strip()))

    def clone(self) -> Self:
        """A copy that can change."""
        other = type(self)(**copy.deepcopy(self._values))
        other._mode = self._mode
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IPUConfig) and self._values == other._values

    __hash__ = None  # pyright: ignore[reportAssignmentType] - fields change

    def __repr__(self) -> str:
        changed = {n: v for n, v in self._values.items() if v != default_of(n)}
        return f"IPUConfig({', '.join(f'{n}={v!r}' for n, v in changed.items())})"


def _parsed(text: str) -> bool | float | str | list | None:
    """A value in the command line's spelling: lists have blanks between items, text no quotes."""
    if text.startswith("[") and text.endswith("]"):
        return [_parsed(item) for item in text[1:-1].split()]
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
