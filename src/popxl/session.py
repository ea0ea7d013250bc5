"""popxl.session: programs on devices."""

from tremula.frontends.popxl.run.session import Session
