"""Whole models, as PopTorch builds them: read as what they get done per second."""
