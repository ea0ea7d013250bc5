"""Which backend runs a step: one that waits for the CPU in the middle cannot be a CUDA graph."""

from tremula.base.errors import InvalidOption
from tremula.ir.bodies import all_nodes
from tremula.ir.host.programs.distributed import share_gpus
from tremula.ir.nodes import schema_name
from tremula.ir.settings import HostSettings
from tremula.ir.step import CapturedStep

# Operations that read values or run code of the script in the middle of a step.
WAITS_FOR_CPU = frozenset(
    {
        "tremula::print_tensor",
        "tremula::host_call",
        "tremula::custom_op",
        "tremula::cond",
        "tremula::ctc_beam_search",
    }
)


def backend_for(step: CapturedStep, settings: HostSettings, n_processes: int = 1) -> str:
    """The backend of the settings; "auto" on a GPU is the "fastest" that can run the step."""
    backend = settings.backend()
    if "cuda-graph" not in backend:
        return backend
    waiting = sorted(
        {name for node in all_nodes(step) if (name := schema_name(node)) in WAITS_FOR_CPU}
    )
    if n_processes > 1 and share_gpus():
        waiting.append("sums over processes that share a GPU")
    if not waiting:
        return "fastest" if settings.host == "auto" else backend
    if settings.host == "auto":
        return "eager"
    raise InvalidOption(
        f"host = {settings.host!r}, but the model has operations that wait for the CPU:"
        f" {', '.join(waiting)}.",
        hint="use host='eager' or 'auto'",
    )
