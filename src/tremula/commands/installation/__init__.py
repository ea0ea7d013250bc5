"""Commands about the installation: its versions, and what of it works."""
