"""From a model's forward to a captured step: recording, and what torch's calls mean meanwhile."""
