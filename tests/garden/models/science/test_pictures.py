"""Pictures of fields: size, and colours from low to high."""

import base64
import re
import struct

import numpy as np

from tremula.garden.models.science.pictures import coloured, field_svg


def test_colours_go_from_blue_to_red():
    """The least value is blue, the greatest red; a flat field is drawn, too."""
    low, high = coloured(np.array([[0.0, 2.0]]))[0].astype(int)
    assert low[2] > low[0]
    assert high[0] > high[2]
    assert coloured(np.ones((2, 3))).shape == (2, 3, 3)


def test_the_picture_has_the_fields_size():
    """A cell is a pixel of the PNG inside, and n_pixels of the drawing."""
    text = field_svg(np.zeros((4, 5)), n_pixels=2)
    assert 'viewBox="0 0 10 8"' in text
    match = re.search(r"base64,([^\"]*)", text)
    assert match
    assert struct.unpack(">II", base64.b64decode(match[1])[16:24]) == (5, 4)
