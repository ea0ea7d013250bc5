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
    n_molecules: int  # real ones
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


@workload("SchNet HydroNet-4.5M training ablation", FAMILY)
def water_clusters(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """7 clusters of up to 96 atoms, whose positions are halves."""
    if row.text("step") != "baseline padded":
        raise NoWorkload("of this ablation only the padded baseline has a workload", hint="")
    return _graphs_per_second(
        MoleculeBatch(n_atoms=7 * 96, n_places=7, n_molecules=7, has_half_positions=True),
        chip_name,
        device_iterations=4,
        gradient_accumulation=32,
        replication_factor=row.n_ipus,
    )


def _graphs_per_second(
    batch: MoleculeBatch,
    chip_name: str,
    *,
    writes_out_softplus: bool = False,
    **how: Any,  # noqa: ANN401
) -> ModelledValue:
    call = _call(batch, writes_out_softplus=writes_out_softplus, **how)
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
        choose=_merge_sums,
        **how,
    )


def _merge_sums(options: "Options") -> None:
    """The measured program asked for this."""
    options.Popart.set("replicatedCollectivesSettings.mergeAllReduceCollectives", True)
