"""Commands of the system around the machine: server, vipu, device tools, poprun."""
