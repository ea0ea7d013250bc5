"""Host execution: the captured step on this computer's own processor or GPU."""
