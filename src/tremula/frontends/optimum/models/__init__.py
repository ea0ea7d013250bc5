"""Models of transformers spread over IPUs."""
