"""Loss curves of a language model on a GPU in bfloat16: ours and plain PyTorch's, several seeds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

_N_STEPS, _N_LAST, _SEEDS = 200, 20, (0, 1, 2)
_N_BATCH, _LENGTH = 8, 512


def loss_curves(plain_step: Callable[..., Callable[..., object]]) -> Iterator[Figure]:
    """The loss at the end of 200 steps: how far ours is from PyTorch's, and its seeds apart."""
    import torch

    if not torch.cuda.is_available():
        return
    from benchmarks.poptorch.models import in_bfloat16, large_cases

    case, ends = in_bfloat16(large_cases()["gpt2-small"]), []
    for seed in _SEEDS:
        batches = list(_batches(seed))
        ours = _our_losses(seed, batches)
        step = plain_step(case, "cuda", seed=seed)
        plain = [float(step(batch.to("cuda"))) for batch in batches]  # pyright: ignore[reportArgumentType]
        print(f"seed {seed}: ours {ours[::40]} …, PyTorch {plain[::40]} …")
        ends.append([sum(losses[-_N_LAST:]) / _N_LAST for losses in (ours, plain)])
    differences = [abs(a - b) for a, b in ends]
    plain_ends = [b for _, b in ends]
    spread = max(plain_ends) - min(plain_ends)
    yield Figure.of("gpu-curves-gpt2-bf16", max(differences), "of loss", "<= 0.1")
    yield Figure.of("gpu-curves-gpt2-bf16-spread", spread, "of loss, PyTorch's seeds", ">= 0")


def _our_losses(seed: int, batches: "list[torch.Tensor]") -> list[float]:
    import torch

    import poptorch
    from benchmarks.poptorch.models import in_bfloat16, large_cases
    from tremula.ir.settings import configured

    case = in_bfloat16(large_cases()["gpt2-small"])
    torch.manual_seed(seed)
    model = case.make()
    options = poptorch.Options().randomSeed(seed)
    with configured(host="inductor-cuda-graph", device="cuda"):
        training = poptorch.trainingModel(model, options, case.optimizer(model.parameters()))
        return [training(batch).item() for batch in batches]


def _batches(seed: int) -> "Iterator[torch.Tensor]":
    """Pieces of this project's pages, as bytes."""
    import torch

    root = Path(__file__).parents[2]
    text = b"".join(path.read_bytes() for path in sorted((root / "docs").glob("*.md")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    random = torch.Generator().manual_seed(seed)
    for _ in range(_N_STEPS):
        starts = torch.randint(len(data) - _LENGTH, (_N_BATCH,), generator=random)
        yield torch.stack([data[start : start + _LENGTH] for start in starts.tolist()])
