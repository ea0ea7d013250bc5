"""A model's random numbers, while other threads of the script use PyTorch's generators."""

import threading

import torch

import poptorch
from tremula.ir.run.generators import HostRandom


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
