"""The picture of docs/science-stencils.md: potential vorticity of two jets."""

from tremula.garden.application import Settings
from tremula.garden.applications.shallow_water.main import run
from tremula.garden.models.science.pictures import field_svg


def svg() -> str:
    picture = run(Settings()).picture
    assert picture is not None
    return field_svg(picture)
