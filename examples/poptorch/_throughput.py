"""What a Bow would do, from the tile program's cycles."""

import tremula as tr


def print_throughput(model, n_samples, what="images"):
    """A call of `model` takes `n_samples`; its cycles are those of the program for the tiles."""
    cycles = model.cycleCount()
    seconds = cycles / tr.chip("bow").clock_hz
    rate = n_samples / seconds
    print(f"On a Bow, modelled: {cycles:,} cycles per call, {rate:,.0f} {what} per second")
