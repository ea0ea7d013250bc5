"""popart._internal.ir.patterns: patterns by level, as scripts pass them to a program."""

from tremula.frontends.popart.enums import PatternsLevel
from tremula.frontends.popart.options.patterns import Patterns
