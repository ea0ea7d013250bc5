"""The served classifier: answers over HTTP are those of the network."""

import numpy as np
import pytest
import torch

from tremula.garden.applications.served_digits.main import Digits, asked, compiled
from tremula.serving.server import serving


@pytest.mark.slow
def test_answers_are_the_networks():
    """Twenty pictures from eight clients, in batches of 16: each gets its own answer."""
    torch.manual_seed(3)
    network = Digits().eval()
    images = np.random.default_rng(4).standard_normal((20, 1, 28, 28)).astype(np.float32)
    _, program = compiled(network)
    with serving(program) as port:
        answers = asked(f"http://127.0.0.1:{port}", images)
    with torch.no_grad():
        assert np.allclose(answers, network(torch.from_numpy(images)).numpy(), atol=1e-5)
