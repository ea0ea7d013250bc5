"""Training steps that the PopTorch figures compare: as a compiled model, and as plain PyTorch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import poptorch
    from benchmarks.poptorch.models import Case


def plain_step(
    case: "Case", device: str = "cpu", compiled: str = "", seed: int = 0
) -> Callable[..., object]:
    """The step as a PyTorch script writes it: zero, forward, backward, update."""
    import torch

    torch.manual_seed(seed)
    model = case.make().to(device)
    optimizer = case.optimizer(model.parameters())
    run = model
    if compiled:
        mode = None if compiled == "default" else compiled
        run = torch.compile(model, mode=mode, dynamic=False)

    def step(*batch: torch.Tensor) -> object:
        optimizer.zero_grad()
        result = run(*batch)
        loss = result if isinstance(result, torch.Tensor) else result[-1]
        loss.backward()
        optimizer.step()
        return loss

    return step


def our_model(
    case: "Case", n_iterations: int = 1, **settings: object
) -> "tuple[poptorch.PoplarExecutor, tuple]":
    """A training model that has run once, and its batch."""
    import torch

    import poptorch
    from tremula.ir.settings import configured

    torch.manual_seed(0)
    model = case.make()
    options = poptorch.Options().deviceIterations(n_iterations)
    wrapped = poptorch.trainingModel(model, options, case.optimizer(model.parameters()))
    batch = case.batch(case.n_batch * n_iterations)
    with configured(**settings):
        wrapped(*batch)
    return wrapped, batch
