"""SchNet, trained on molecules that are padded to one size, or packed, as hydronet-gnn does.

Sizes that rows do not state are those of the measured program's configuration files
(graphcore-research/hydronet-gnn: configs, sweeps, `dataset_factory.py`, `packing.py`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import FAMILY, ModelCall, time_call
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

if TYPE_CHECKING:
    from tremula.frontends.poptorch.options.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class MoleculeBatch:
    """The molecules of one micro-batch."""

    n_atoms: int
    n_places: int  # for molecules, those of padding included
    n_molecules: float  # real ones, in the mean
    has_half_positions: bool = False


@workload("SchNet training QM9 packed", FAMILY)
def packed(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Packs of 36 atoms and up to 3 molecules; those of the training split hold two each."""
    n_packs = row.number("packs_per_batch")
    batch = MoleculeBatch(n_atoms=36 * n_packs, n_places=3 * n_packs, n_molecules=2 * n_packs)
    return _graphs_per_second(
        batch,
        chip_name,
        writes_out_softplus=True,
        device_iterations=row.number("device_iters"),
        gradient_accumulation=row.number("grad_accum"),
        replication_factor=row.n_ipus,
        uses_made_up_data="synthetic" in row.workload,
    )


@workload("SchNet training QM9 padded", FAMILY)
def padded(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """16 molecules of up to 32 atoms; a call has 128 micro-batches on any number of replicas."""
    return _graphs_per_second(
        MoleculeBatch(n_atoms=16 * 32, n_places=16, n_molecules=16),
        chip_name,
        device_iterations=64 // row.n_ipus,
        gradient_accumulation=2,
        replication_factor=row.n_ipus,
    )


_CYCLES = ("softplus", "merge", "cycle", "device", "optimi")
# HydroNet-4.5M in the measured program (packing.py, hydronet_packed.yml, perf_ablation.yml):
# 4,464,740 clusters of 9 to 90 atoms, 70.7 in the mean. Micro-batches have 7 clusters padded to 96
# atoms, or 7 packs of up to 154 atoms and 5 places; filled longest first, a pack holds 2.12.
WATER_BATCH, WATER_ATOMS = 7, 96
PACK_ATOMS, PACK_PLACES, CLUSTERS_PER_PACK = 154, 5, 2.12
# What the steps add, one after the other; each has all those before it.
ABLATION = (("padd", "baseline"), ("pack",), ("async",), _CYCLES, ("prefetch", "depth"))


@workload("SchNet HydroNet-4.5M training ablation", FAMILY)
def water_clusters(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Clusters padded or packed, their positions halves; later steps save cycles."""
    level = _ablation_level(row.text("step"))
    has_cycle_savings = level >= ABLATION.index(_CYCLES)
    return _graphs_per_second(
        _water_batch(is_packed=level > 0),
        chip_name,
        writes_out_softplus=has_cycle_savings,
        merges_sums=has_cycle_savings,
        device_iterations=4,
        gradient_accumulation=32,
        replication_factor=row.n_ipus,
    )


def _ablation_level(step: str) -> int:
    """How many of the steps a row has: the last that its words name."""
    named = [i for i, words in enumerate(ABLATION) if any(w in step.lower() for w in words)]
    if not named:
        raise NoWorkload(f"its step {step!r} is none of that ablation", hint="")
    return max(named)


def _water_batch(*, is_packed: bool) -> MoleculeBatch:
    if not is_packed:
        return MoleculeBatch(
            n_atoms=WATER_ATOMS * WATER_BATCH,
            n_places=WATER_BATCH,
            n_molecules=WATER_BATCH,
            has_half_positions=True,
        )
    return MoleculeBatch(
        n_atoms=WATER_BATCH * PACK_ATOMS,
        n_places=WATER_BATCH * PACK_PLACES,
        n_molecules=WATER_BATCH * CLUSTERS_PER_PACK,
        has_half_positions=True,
    )


def _graphs_per_second(
    batch: MoleculeBatch,
    chip_name: str,
    *,
    writes_out_softplus: bool = False,
    merges_sums: bool = True,
    **how: Any,  # noqa: ANN401
) -> ModelledValue:
    choose = {"choose": _merge_sums} if merges_sums else {}
    call = _call(batch, writes_out_softplus=writes_out_softplus, **choose, **how)
    time = time_call(call, chip_name)
    value = batch.n_molecules * call.n_micro_batches / time.seconds
    return ModelledValue(time.cycles, time.clock_hz, value=value)


def _call(batch: MoleculeBatch, *, writes_out_softplus: bool, **how: Any) -> ModelCall:  # noqa: ANN401
    try:
        import torch

        from poptorch.optim import Adam
        from tremula.garden.models.nearest_schnet import NearestSchNet
    except ImportError:
        raise NoWorkload(
            "it needs PyTorch Geometric: pip install 'tremula[geometric]'", hint=""
        ) from None
    positions = torch.half if batch.has_half_positions else torch.float
    micro_batch = (
        torch.zeros(batch.n_atoms, dtype=torch.int32),
        torch.zeros(batch.n_atoms, 3, dtype=positions),
        torch.zeros(batch.n_places - 1, dtype=torch.int32),
        torch.ones(batch.n_places),
    )
    model = NearestSchNet(
        batch.n_places, writes_out_softplus=writes_out_softplus, keeps_blocks_apart=True
    )
    return ModelCall(
        model=model,
        micro_batch=micro_batch,
        optimizer=lambda parameters: Adam(parameters, lr=1e-3),
        **how,
    )


def _merge_sums(options: "Options") -> None:
    """The measured program asked for this."""
    options.Popart.set("replicatedCollectivesSettings.mergeAllReduceCollectives", True)
