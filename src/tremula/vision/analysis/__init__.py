"""Questions asked of reports: summary, operations, advice, comparison, budgets, what-if."""
