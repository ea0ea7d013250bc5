"""popxl.module: parts of programs."""

from tremula.frontends.popxl.core.module import Module
