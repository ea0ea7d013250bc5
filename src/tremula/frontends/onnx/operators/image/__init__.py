"""Images: resizing, sampling, regions."""
