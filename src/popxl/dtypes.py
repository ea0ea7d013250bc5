"""popxl.dtypes: the types of elements."""

from tremula.frontends.popxl.dtypes import *
from tremula.frontends.popxl.dtypes import dtype
