"""The suite `sparse`: sparse products and small numbers."""

from collections.abc import Iterator

from tremula.bench.figures import Figure, Suite

SUITE = Suite("sparse")


@SUITE.measurement("casts")
def casts() -> Iterator[Figure]:
    """8-bit casts of 10⁷ numbers on this computer, against a copy of them."""
    from tremula.bench.sparse.casts import cast_figures

    yield from cast_figures()


@SUITE.measurement("host")
def host() -> Iterator[Figure]:
    """Products of fixed sparsity here, against torch.sparse or, on a GPU, dense ones."""
    from tremula.bench.sparse.host import host_figures

    yield from host_figures()
