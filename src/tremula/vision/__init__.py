"""What a run leaves behind: report files, queries, advice, the system trace."""
