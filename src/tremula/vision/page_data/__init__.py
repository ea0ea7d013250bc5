"""What the analyser page fetches, view by view."""
