"""The PopXL API: explicit graphs, remote memory and collectives; `popxl` names its parts."""

from tremula.base.requirements import require

require("PopXL", "popxl")
