"""The tile programs that stand for measured rows: one file per family, found by `table`."""

from tremula.base.names import install as install_names

install_names()  # models of the garden are written against PopTorch's names
