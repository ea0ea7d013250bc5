"""compile_graph: the named passes from a graph to an executable, one after another."""
from collections.abc import Callable
Progress = Callable[[int, int], None]
def compile_graph(graph, programs, options=None, progress=None):
    from tremula.compiler.lower import lower
    from tremula.compiler.emit import emit
    import numpy as np
    from types import SimpleNamespace as N
    low = lower(graph, programs)
    n=len(low.steps); c=graph.target.n_ipus
    z=np.zeros((n,c),np.int64)
    costs=N(sync=z,exchange=z,compute=z+10,joins=np.zeros(n,bool),is_active=np.ones((n,c),bool),needs_count=np.zeros(n,bool))
    return emit(low, N(costs=costs), {})
