"""All figures of a GPU in one run: cases compile side by side and are timed one at a time.

    python -m tools.gpu_table --seconds 560 --out build/gpu-table
    python -m tools.gpu_table --list
    python -m tools.gpu_table --rehearse --only gpu-epoch      # on a CPU; the values mean nothing

Each case is a process (`tremula bench SUITE --only NAME:CASE`) with a time limit, and reports each
figure as soon as it is measured. A case that fails, hangs or is cut off loses only what it had not
measured yet. A process that measures asks for a turn (`benchmarks/gpu_turns.py`): the processes of
all other cases are stopped until its turn ends, so it is timed alone on the GPU and the CPU.
"""
