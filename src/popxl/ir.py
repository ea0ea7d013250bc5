"""popxl.ir: programs."""

from tremula.frontends.popxl.core.ir import Ir
