"""Commands that need a checkout: what they run is not part of the installed package."""
