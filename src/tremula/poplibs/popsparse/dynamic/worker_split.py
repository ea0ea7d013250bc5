"""How the workers of a tile share a grid of rows and columns."""

from functools import cache

Part = tuple[int, int, int, int]  # first row, row after the last, first column, column after


@cache
def split_between_workers(n_rows: int, n_columns: int, n_workers: int) -> tuple[Part, ...]:
    """At most n_workers rectangles of about equal area; the largest are halved while some idle."""
    if not n_rows or not n_columns:
        return ()
    area = -(-n_rows * n_columns // n_workers)
    rows = min(-(-area // n_columns), n_rows)
    columns = min(-(-area // rows), n_columns)
    parts = [
        (i * rows, n_rows if i == n_rows // rows - 1 else (i + 1) * rows,
         j * columns, n_columns if j == n_columns // columns - 1 else (j + 1) * columns)
        for i in range(n_rows // rows) for j in range(n_columns // columns)
    ]  # fmt: skip
    while len(parts) < n_workers:
        parts.sort(key=lambda p: -(p[1] - p[0]) * (p[3] - p[2]))
        r0, r1, c0, c1 = parts[0]
        if (r1 - r0) * (c1 - c0) < 2:
            break
        if r1 - r0 > c1 - c0:
            middle = r0 + -(-(r1 - r0) // 2)
            parts.append((r0, middle, c0, c1))
            parts[0] = (middle, r1, c0, c1)
        else:
            middle = c0 + -(-(c1 - c0) // 2)
            parts.append((r0, r1, c0, middle))
            parts[0] = (r0, r1, middle, c1)
    return tuple(parts)
