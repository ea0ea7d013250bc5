"""Modules: classes whose `build` makes a part of a graph."""

from typing import Any


class Module:
    """A part of a program: calling it adds to the graph that is open; `create_graph` makes one."""

    def __call__(self, *args, **kwargs) -> Any:
        return self.build(*args, **kwargs)

    def build(self, *args, **kwargs) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no `build`: a popxl.Module must define it"
        )
