"""Embeddings of knowledge graphs, trained with entities sharded over replicas (BESS-KGE).

What rows do not state is that of the measured notebooks (graphcore-research/bess-kge, notebooks 1
to 3): which entities are made false, the loss, the negatives that triples share.
"""

from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import FAMILY, ModelCall, time_call
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

if TYPE_CHECKING:
    import torch

# Entities and kinds of relations of a data set.
DATASETS = {
    "ogbl-biokg": (93_773, 51),
    "YAGO3-10": (123_182, 37),
    "ogbl-wikikg2": (2_500_604, 535),
}
MOST_ROWS = 200_000  # of a chip, whose layout we can handle


@workload("KGE training step", FAMILY)
def training_step(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The time of a call; the clock of the notebooks runs around it, not around the loader."""
    time = time_call(_call(row), chip_name)
    return ModelledValue(time.seconds * time.clock_hz, time.clock_hz)


def _call(row: MeasuredRow) -> ModelCall:
    import torch

    import poptorch
    from poptorch.optim import SGD, AdamW
    from tremula.garden.models.knowledge_graphs.model import Embeddings, ScorerSizes

    score = row.workload.partition(" ")[0]
    if score not in ("TransE", "RotatE", "ComplEx"):
        raise NoWorkload(f"of models for knowledge graphs, {score} was not written", hint="")
    n_entities, n_relations = _sizes(row)
    n_shards = row.number("shards")
    is_half = row.parameters.get("dtype") == "fp16"
    shape = ScorerSizes(
        score=score,
        n_entities=n_entities,
        n_relations=n_relations,
        size=row.number("embedding"),
        n_shards=n_shards,
        corrupts_tails_only="flat" in row.text("n_negative"),
        dtype=torch.half if is_half else torch.float,
    )
    if shape.n_rows > MOST_ROWS:
        raise NoWorkload(
            f"its table of {shape.n_rows:,} rows a chip takes more than 16 GB to compile", hint=""
        )
    optimizer = {
        "AdamW": lambda parameters: AdamW(parameters, lr=1e-3),
        "SGDM": lambda parameters: SGD(
            parameters, lr=1e-3, momentum=0.95, velocity_accum_type=shape.dtype
        ),
    }[row.text("opt")]
    kind, mode = poptorch.CommGroupType.NoGrouping, poptorch.VariableRetrievalMode.OnePerGroup
    return ModelCall(
        model=Embeddings(shape),
        micro_batch=_triples(row, shape.corrupts_tails_only),
        optimizer=optimizer,
        device_iterations=row.number("device_iters"),
        gradient_accumulation=row.number("grad_accum"),
        replication_factor=n_shards,
        is_timed_without_loader=True,
        choose=lambda options: options.Precision.enableStochasticRounding(is_half),
        prepare=lambda wrapped: wrapped.entities.replicaGrouping(kind, 0, mode),
    )


def _sizes(row: MeasuredRow) -> tuple[int, int]:
    for name, sizes in DATASETS.items():
        if name in row.workload:
            return sizes
    raise NoWorkload("its data set is none of " + ", ".join(DATASETS), hint="")


def _triples(row: MeasuredRow, is_flat: bool) -> "tuple[torch.Tensor, ...]":
    """Heads, relations, tails and negatives of one replica's micro-batch."""
    import torch

    n_shards, n_triples = row.number("shards"), row.number("shard_bs")
    n_negatives = int(row.text("n_negative").split()[0])
    n_sets = 1 if is_flat else n_triples
    triples = torch.zeros(1, n_shards, n_triples // n_shards, dtype=torch.int32)
    negatives = torch.zeros(1, n_shards, n_sets, n_negatives, dtype=torch.int32)
    return triples, triples, triples, negatives
