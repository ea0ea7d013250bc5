"""The vision suite: reports, traces and the analyser page."""
