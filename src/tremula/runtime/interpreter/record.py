"""The *record* of a machine: the column of addresses and numbers that the interpreter reads.

`runtime/machine.py` fills it. Columns are int64 unless they are said to be bytes.
"""

# Why the interpreter came back.
DONE, AT_STEP, BUDGET_SPENT, DIVERGED, BAD_CALL_DEPTH, LOG_FULL = range(6)

# Slots of the `registers` array.
PC, CALL_DEPTH, STOP, N_REGISTERS = 0, 1, 2, 3
MAX_CALL_DEPTH = 64

# A copy of fewer bytes than this stays on one thread.
PARALLEL_COPY_BYTES = 1 << 18
# Into how many parts a large copy is cut; more than threads, so that they stay busy.
COPY_CHUNKS = 64

# Slots of the record: addresses of columns, and numbers.
(
    REGISTERS,
    COUNTERS,
    CALL_STACK,
    CODE,  # [n, CODE_WORDS]
    CODE_WORDS,
    STEP_OF,
    CASES,  # [n, 2]: value, target
    ARENAS,
    N_REPLICAS,
    KERNEL,
    COLUMNS,  # [n_replicas, n_tables]
    N_TABLES,
    N_ROWS,
    CHUNK_FIRST,
    N_CHUNKS,
    BOUNDS,
    SETS,  # [n, 6]: tables, gathers and scatters of a compute set, first and last of each
    COPY_ROWS,  # [n, 5]: source, destination, count, both strides, in items
    COPY_INFO,  # [n, 5]: first row, last row, item bytes, overlaps, total bytes
    BUFFER,  # bytes, for copies whose sides overlap
    CLOCK,
    N_CHIPS,
    EXECUTED,
    CYCLES,  # [n_steps, n_chips]
    JOINS,  # bytes
    IS_ACTIVE,  # bytes [n_steps, n_chips]
    STOPS,  # bytes
    CHIP_TILES,
    COMPUTE,  # [n_steps, n_chips]
    SLOT_OF_STEP,  # of steps that are counted; -1: the cost is known
    COUNTING,  # the columns of counted steps, listed below
    N_WORKERS,
    COUNT_STEP,  # the address of `counting.count_step`
    RUN_PARTS,  # the address of `thread_pool._run`, or 0: no threads
    POOL,  # its first three arguments
    N_THREADS,
    RUN_PART,
    # What `threads.run_part` is to do: rows of a table (a kernel), or of a copy (no kernel).
    PART_KERNEL,
    PART_ARENA,
    PART_COLUMNS,
    PART_FIRST,
    PART_N_ROWS,
    PART_ITEM_BYTES,
    PART_RESULTS,
    PART_COUNTER,  # the kernel that counts, or 0
    PART_CYCLES,  # of the first row
    LOG,  # where branches go and what counted steps take: see runtime/history.py
    LOG_SIZE,  # 0: nothing is recorded
    LOG_AT,
    N_SLOTS,
) = range(50)

# Columns of counted steps, in the order of CountedSteps.columns. A slot is such a step.
(
    COUNT_KERNEL,
    ROW_FIRST,
    KNOWN,
    PLACE,
    ROW_CYCLES,
    IS_WORKER,
    WORKERS,  # [n, N_WORKERS]
    ALONE,
    TILE_FIRST,
    TILE,
    COPIES,
    TABLE_FIRST,
    TIMES,
    CHIPS,  # [n_slots, n_chips]
    LAST,
    TOTAL,
    BUSY,
    TABLE_TOTALS,
) = range(18)
