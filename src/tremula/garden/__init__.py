"""Applications: models and data that examples, figures and users share."""
