"""popxl.errors: exceptions."""

from tremula.frontends.popxl.errors import UndefinedValue
