"""The PopXL API: explicit graphs, remote memory and collectives; `popxl` names its parts."""
