"""The garden: models and data sets, applications made of them, and their catalogue."""

from tremula.base.names import install as install_names

install_names()  # applications are scripts as people write them, with the original names
