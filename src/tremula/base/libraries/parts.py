"""Parts of Tremula with separate wheels: where each comes from, and the error without it.

A checkout has all of them, and so has what pip installs from one. The wheel `tremula` of a release
leaves out the packages of this table, which `tremula-garden` and `tremula-frontends` install beside
it (docs/release.md; tools/divide.py).
"""

import os.path
from typing import NamedTuple


class MissingPackage(NamedTuple):
    """What is missing, and the command that installs it."""

    what: str
    hint: str


class WheelPart(NamedTuple):
    """A distribution that installs a package of ours, and the extra that requires it."""

    distribution: str
    extra: str


PARTS = {
    "tremula.garden": WheelPart("tremula-garden", "garden"),
    "tremula.validate": WheelPart("tremula-garden", "garden"),
    "tremula.frontends.geometric": WheelPart("tremula-frontends", "geometric"),
    "tremula.frontends.jax": WheelPart("tremula-frontends", "jax"),
    "tremula.frontends.keras": WheelPart("tremula-frontends", "keras"),
    "tremula.frontends.optimum": WheelPart("tremula-frontends", "optimum"),
    "tremula.frontends.popxl": WheelPart("tremula-frontends", "popxl"),
    "tremula.frontends.popxl_addons": WheelPart("tremula-frontends", "popxl"),
}
# Extras that need parts which other extras are named after.
_MORE_PARTS = {
    "dft": ("tremula.garden", "tremula.frontends.jax"),
    "fit": ("tremula.validate",),
}
_SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def install_hint(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'tremula[{extra}]'"


def is_installed(package: str) -> bool:
    """Whether a package of the table is there."""
    return os.path.isfile(os.path.join(_SOURCE, *package.split("."), "__init__.py"))


def parts_of(extra: str) -> list[str]:
    """The packages of the table that an extra installs."""
    own = [name for name, part in PARTS.items() if part.extra == extra]
    return own + list(_MORE_PARTS.get(extra, ()))


def missing_distributions(extra: str) -> list[str]:
    """Distributions with parts of an extra that are not there."""
    return sorted({PARTS[name].distribution for name in parts_of(extra) if not is_installed(name)})


class PartsFinder:
    """The last finder: it finds nothing, but says how to install a part that is missing."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        del path, target
        part = PARTS.get(fullname)
        if part is None or is_installed(fullname):
            return
        what = f"{fullname} is a part of {part.distribution}, which is not installed"
        missing = MissingPackage(what, install_hint(part.extra))
        error = ModuleNotFoundError(f"{missing.what}: {missing.hint}", name=fullname)
        error.missing = missing  # pyright: ignore[reportAttributeAccessIssue]
        raise error
