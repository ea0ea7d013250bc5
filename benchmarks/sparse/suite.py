"""The suite `sparse`: sparse products and small numbers."""

from collections.abc import Iterator

from benchmarks.figures import Figure, Suite

SUITE = Suite("sparse")


@SUITE.measurement("tiles")
def tiles() -> Iterator[Figure]:
    """A static product run vertex by vertex, against torch.sparse."""
    from benchmarks.sparse.products import tile_figures

    yield from tile_figures()


@SUITE.measurement("patterns")
def patterns() -> Iterator[Figure]:
    """A new pattern for a program with dynamic sparsity."""
    from benchmarks.sparse.products import pattern_figures

    yield from pattern_figures()


@SUITE.measurement("casts")
def casts() -> Iterator[Figure]:
    """8-bit casts of 10⁷ numbers on this computer, against a copy of them."""
    from benchmarks.sparse.casts import cast_figures

    yield from cast_figures()


@SUITE.measurement("host")
def host() -> Iterator[Figure]:
    """Products of fixed sparsity here, against torch.sparse or, on a GPU, dense ones."""
    from benchmarks.sparse.host import host_figures

    yield from host_figures()


@SUITE.measurement("validate")
def validation() -> Iterator[Figure]:
    """The cost model against published sparse products."""
    from benchmarks.sparse.products import validation_figures

    yield from validation_figures()
