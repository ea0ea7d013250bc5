"""What a run leaves behind: report files, queries, advice, system traces, the analyser page."""
