"""The picture of docs/science-stencils.md: vorticity behind a cylinder."""

from tremula.garden.application import Settings
from tremula.garden.applications.lattice_boltzmann.main import run
from tremula.garden.models.science.pictures import field_svg


def svg() -> str:
    picture = run(Settings()).picture
    assert picture is not None
    return field_svg(picture)
