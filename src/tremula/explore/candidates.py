"""A candidate: how a model could be spread over chips, as plain numbers, options and code."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:  # lazy: the front end is slow to import
    from tremula.frontends.poptorch.options.options import Options

MERGES = tuple(
    f"replicatedCollectivesSettings.merge{what}Collectives"
    for what in ("AllReduce", "ReduceScatter")
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a model on a system. `cuts` are modules with which stages 1, 2, … begin."""

    cuts: tuple[str, ...] = ()
    n_replicas: int = 1
    accumulation: int = 1
    device_iterations: int = 1
    recomputes: bool | None = None  # None: as PopTorch does, in pipelines alone
    memory_proportion: float | None = None
    states_off_chip: bool = False
    least_off_chip: int | None = None  # elements: only states of weights this large leave
    shards_states: bool = False  # each replica keeps and updates its share of optimiser states
    merges_sums: bool = False  # of gradients over replicas: all weights of a chip in one go
    home: str | None = None  # a module that goes back to chip 0, where its weights are

    def __post_init__(self) -> None:
        if self.recomputes is None:
            object.__setattr__(self, "recomputes", bool(self.cuts))

    @property
    def n_stages(self) -> int:
        return len(self.cuts) + 1

    @property
    def n_pipeline_stages(self) -> int:
        """One more where the last part goes back to chip 0."""
        return self.n_stages + (bool(self.cuts) and self.home is not None)

    @property
    def n_chips(self) -> int:
        return self.n_stages * self.n_replicas

    @property
    def label(self) -> str:
        """In a few words, for tables."""
        parts = [f"{self.n_stages} stage{'s' * (self.n_stages > 1)}"]
        parts += [f"× {self.n_replicas} replicas"] * (self.n_replicas > 1)
        if self.cuts or self.recomputes:
            parts.append("recomputed" if self.recomputes else "kept")
        if self.memory_proportion is not None:
            parts.append(f"memory {self.memory_proportion:g}")
        whose = "states" if self.least_off_chip is None else "states of tables"
        parts += [f"{whose} off chip"] * self.states_off_chip
        parts += ["states sharded"] * self.shards_states
        parts += ["sums merged"] * self.merges_sums
        return ", ".join(parts)

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "cuts": list(self.cuts)}


def place(model: nn.Module, candidate: Candidate) -> None:
    """Begin a block on the next chip at each cut; chip 0 has what comes before."""
    from tremula.frontends.poptorch.blocks import BeginBlock  # lazy: slow to import

    for chip, name in enumerate(candidate.cuts, start=1):
        BeginBlock(model.get_submodule(name), user_id=f"stage{chip}", ipu_id=chip)
    if candidate.cuts and candidate.home is not None:
        BeginBlock(model.get_submodule(candidate.home), user_id="home", ipu_id=0)


def options_of(candidate: Candidate, base: "Options | None" = None) -> "Options":
    """The script's options changed to the candidate's choices."""
    from tremula.frontends.poptorch.enums import AutoStage  # all of these load slowly
    from tremula.frontends.poptorch.options.groups import TensorLocationSettings
    from tremula.frontends.poptorch.options.options import Options
    from tremula.frontends.poptorch.options.strategies import PipelinedExecution

    options = Options() if base is None else base.clone()
    options.unfreeze()
    options.replicationFactor(candidate.n_replicas)
    options.deviceIterations(candidate.device_iterations)
    options.Training.gradientAccumulation(candidate.accumulation)
    if candidate.cuts:
        options.setExecutionStrategy(PipelinedExecution(AutoStage.SameAsIpu))
    if candidate.cuts or candidate.recomputes:
        options.Popart.set("autoRecomputation", _recomputation(candidate))
    if candidate.memory_proportion is not None:
        share = dict.fromkeys((f"IPU{i}" for i in range(candidate.n_stages)), 0.0)
        options.setAvailableMemoryProportion(dict.fromkeys(share, candidate.memory_proportion))
    if candidate.states_off_chip or candidate.shards_states:
        where = TensorLocationSettings().useOnChipStorage(not candidate.states_off_chip)
        where.useReplicatedTensorSharding(candidate.shards_states)
        if candidate.least_off_chip is not None:
            where.minElementsForOffChip(candidate.least_off_chip)
        options.TensorLocations.setOptimizerLocation(where)
    if candidate.merges_sums:
        for name in MERGES:
            options.Popart.set(name, True)
    return options


def _recomputation(candidate: Candidate) -> int:
    """PopART's mode: `Pipeline` keeps what enters a stage, `Standard` some values in between."""
    pipeline, standard = 3, 1
    return (pipeline if candidate.cuts else standard) if candidate.recomputes else 0


def _proportions(candidate: Candidate) -> dict[str, float]:
    assert candidate.memory_proportion is not None, "asked for only if there is one"
    return {f"IPU{i}": candidate.memory_proportion for i in range(candidate.n_stages)}


def code_of(candidate: Candidate, why: str = "") -> str:
    """A module that a script can import: `options()` and `place(model)`."""
    lines = [
        '"""How to spread the model over chips, as `tremula plan` found it."""',
        "",
        "import poptorch",
        "",
        *(f"# {line}" for line in why.splitlines()),
        *([""] if why else []),
        f"STAGES_BEGIN_AT = {list(candidate.cuts)!r}",
        "",
        "",
        "def place(model):",
        '    """Put the model\'s stages on their chips; call it before making a PopTorch model."""',
        "    for chip, name in enumerate(STAGES_BEGIN_AT, start=1):",
        "        module = model.get_submodule(name)",
        '        poptorch.BeginBlock(module, user_id=f"stage{chip}", ipu_id=chip)',
        *_home_lines(candidate),
        "    return model",
        "",
        "",
        "def options(base=None):",
        '    """The options that go with it; `base` may hold others."""',
        "    options = poptorch.Options() if base is None else base",
        f"    options.replicationFactor({candidate.n_replicas})",
        f"    options.deviceIterations({candidate.device_iterations})",
        f"    options.Training.gradientAccumulation({candidate.accumulation})",
        *(f"    {line}" for line in _option_lines(candidate)),
        "    return options",
    ]
    return "\n".join(lines) + "\n"


def _home_lines(candidate: Candidate) -> list[str]:
    if not candidate.cuts or candidate.home is None:
        return []
    module = f"model.get_submodule({candidate.home!r})"
    return [f'    poptorch.BeginBlock({module}, user_id="home", ipu_id=0)  # it shares weights']


def _option_lines(candidate: Candidate) -> list[str]:
    lines = []
    if candidate.cuts:
        lines += [
            "stages = poptorch.AutoStage.SameAsIpu",
            "options.setExecutionStrategy(poptorch.PipelinedExecution(stages))",
        ]
    if candidate.cuts or candidate.recomputes:
        lines.append(f'options._Popart.set("autoRecomputation", {_recomputation(candidate)})')
    if candidate.memory_proportion is not None:
        lines.append(f"options.setAvailableMemoryProportion({_proportions(candidate)!r})")
    if candidate.states_off_chip or candidate.shards_states:
        on_chip = not candidate.states_off_chip
        lines += [
            f"where = poptorch.TensorLocationSettings().useOnChipStorage({on_chip})",
            f"where.useReplicatedTensorSharding({candidate.shards_states})",
            *_threshold_lines(candidate),
            "options.TensorLocations.setOptimizerLocation(where)",
        ]
    if candidate.merges_sums:
        lines += [f"options._Popart.set({name!r}, True)" for name in MERGES]
    return lines


def _threshold_lines(candidate: Candidate) -> list[str]:
    if candidate.least_off_chip is None:
        return []
    return [f"where.minElementsForOffChip({candidate.least_off_chip})"]
