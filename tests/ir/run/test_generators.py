"""A model's random numbers, while other threads of the script use PyTorch's generators."""

import threading

import pytest
import torch

import poptorch
from tremula.ir.run.generators import HostRandom
from tremula.ir.torch_generators import random_state


def test_loaders_wait_while_a_model_draws():
    """A data loader draws a seed when it begins; in another thread it waits for the model."""
    loader = poptorch.DataLoader(poptorch.Options(), torch.utils.data.TensorDataset(torch.ones(4)))
    random = HostRandom(torch.device("cpu"), 7, is_used=True)
    script = torch.get_rng_state()
    began = threading.Event()

    def load():
        began.set()
        list(loader)

    thread = threading.Thread(target=load)
    with random.drawing():
        first = torch.rand(3)
        thread.start()
        began.wait()
        thread.join(0.2)
        assert thread.is_alive()
        second = torch.rand(3)
    thread.join()
    generator = torch.Generator().manual_seed(7)
    assert first.equal(torch.rand(3, generator=generator))
    assert second.equal(torch.rand(3, generator=generator))
    torch.set_rng_state(script)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_model_draws_its_numbers_while_pytorch_traces(
    device: str, monkeypatch: pytest.MonkeyPatch
):
    """PyTorch's compiler disables the setters of states for all threads while it traces."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    for owner in (torch, torch.random, torch.cuda):
        monkeypatch.setattr(owner, "set_rng_state", lambda *_: None)
    random = HostRandom(torch.device(device), 7, is_used=True)
    script = random_state(torch.device(device))
    with random.drawing():
        first = torch.rand(3, device=device)
    with random.drawing():
        second = torch.rand(3, device=device)
    generator = torch.Generator(device).manual_seed(7)
    assert first.equal(torch.rand(3, device=device, generator=generator))
    assert second.equal(torch.rand(3, device=device, generator=generator))
    assert random_state(torch.device(device)).equal(script)
