"""popxl.utils: types of host data."""

from tremula.frontends.popxl.dtypes import downcast_np_dtypes
from tremula.frontends.popxl.dtypes import to_array as to_numpy
