"""The catalogue of applications: their manifests, finding one, running it, figures, the page."""
