"""Pictures of bars: the data set of a trainer."""

import torch

SIZE = 32


def bars(n: int, seed: int = 0) -> list[dict]:
    """Bright bars somewhere in noise, lying (0) and standing (1) in turn."""
    draw = torch.Generator().manual_seed(seed)
    return [_picture(i % 2, draw) for i in range(n)]


def _picture(kind: int, draw: torch.Generator) -> dict:
    image = torch.randn(3, SIZE, SIZE, generator=draw) * 0.3
    at = int(torch.randint(4, SIZE - 8, (1,), generator=draw))
    bar, along = slice(at, at + 4), slice(4, SIZE - 4)
    rows, columns = (bar, along) if kind == 0 else (along, bar)
    image[:, rows, columns] += 2
    return {"pixel_values": image, "labels": kind}
