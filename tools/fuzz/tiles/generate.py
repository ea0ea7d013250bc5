"""Random tile programs that are legal: every step is free of races and every loop ends."""

from itertools import pairwise
from random import Random

import numpy as np

from tools.fuzz.case import Case
from tools.fuzz.tiles.operations import (
    CASTS,
    COPIED_TYPES,
    ELEMENT_RULES,
    REDUCTIONS,
)
from tools.fuzz.tiles.views import Layout, View, joined, then, whole

CONTROL_TYPES = ("BOOL", "INT", "UNSIGNED_CHAR", "LONGLONG", "UNSIGNED_INT")
SYNCS = ("INTERNAL", "EXTERNAL", "GLOBAL")
CHECKS = ("report", "rebuild", "executable", "forecast")
MOST_STEPS = {"small": 6, "large": 12}
LARGE_SHARE = 0.2  # small programs find most; some need many types and steps


def generate(random: Random) -> Case:
    """A machine, its variables, and one or two programs with an order of runs."""
    chips = random.choice((1, 1, 1, 2, 2, 4))
    replicas = random.choice((1, 1, 1, 1, 2, 3)) if chips < 4 else 1
    tiles = random.choice((2, 3, 4, 8)) if chips * replicas < 4 else 2
    size = "large" if random.random() < LARGE_SHARE else "small"
    return Writer(random, chips, tiles, replicas, size).case()


class Writer:
    """Writes one case; `choose` are its random numbers."""

    def __init__(self, random: Random, chips: int, tiles: int, replicas: int, size: str):
        self.random, self.is_large = random, size == "large"
        self.n_tiles = chips * tiles
        self.replicas = replicas
        self.by_type: dict[str, list[int]] = {}
        self.head = {"chips": chips, "tiles": tiles, "replicas": replicas}
        self.variables: list[Case] = []
        self.sets: list[list[Case]] = []
        self.functions: list[Case] = []
        self.n_steps, self.most_steps = 0, MOST_STEPS[size]
        self._add_variables()
        self.layout = Layout(self.variables)

    def case(self) -> Case:
        random = self.random
        n_programs, most = (random.choice((1, 1, 2)), 4) if self.is_large else (1, 3)
        programs = [self.steps(2, random.randint(most - 2, most)) for _ in range(n_programs)]
        return {
            **self.head,
            "strict": random.random() < 0.7,
            "variables": self.variables,
            "sets": self.sets,
            "functions": self.functions,
            "programs": programs,
            "runs": [random.randrange(n_programs) for _ in range(random.randint(1, 3))],
            "checks": [name for name in CHECKS if random.random() < 0.07],
        }

    # -- variables ---------------------------------------------------------------------------------

    def _add_variables(self) -> None:
        random = self.random
        least, most = (2, 4) if self.is_large else (0, 2)
        types = random.sample(COPIED_TYPES, random.randint(least, most))
        for type in sorted({"INT", "BOOL", random.choice(("FLOAT", "HALF")), *types}):
            for _ in range(2):
                self._add_variable(type)

    def _add_variable(self, type: str) -> None:
        shape = self.random.choice(([12], [2, 3], [7], [2, 2, 3], [1], [5, 2]))
        n = int(np.prod(shape))
        pieces = [
            [start, stop, step, self.tile()]
            for start, stop, step in self._cuts(n, allows_empty=True)
        ]
        rows = self.replicas if self.replicas > 1 and type in ("FLOAT", "HALF") else 1
        values = [[self._value(type) for _ in range(n)] for _ in range(rows)]
        self.by_type.setdefault(type, []).append(len(self.variables))
        self.variables.append({"type": type, "shape": shape, "map": pieces, "values": values})

    def _value(self, type: str) -> int:
        if type == "BOOL":
            return self.random.randrange(2)
        return self.random.randrange(0 if type.startswith("UNSIGNED") else -8, 8)

    def tile(self) -> int:
        return self.random.randrange(self.n_tiles)

    # -- views -------------------------------------------------------------------------------------

    def _cuts(self, n: int, *, allows_empty: bool = False) -> list[tuple[int, int, int]]:
        """Disjoint slices of n elements: ranges, or every k-th element."""
        random = self.random
        if random.random() < 0.4:
            k = random.randint(1, 3)
            slices = [(start, n, k) for start in range(min(k, n))]
        else:
            ends = [0, *sorted(random.randint(0, n) for _ in range(random.randint(0, 2))), n]
            slices = [(a, b, 1) for a, b in pairwise(ends)]
        return [s for s in slices if allows_empty or s[0] < s[1]]

    def flips(self, view: View) -> View:
        return then(view, ["reverse"]) if self.random.random() < 0.3 else view

    def disjoint_views(self, numbers: list[int]) -> list[View]:
        """Views that share no element: parts of variables, some reversed, some joined."""
        parts = [
            self.flips(then(whole(number), ["slice", *cut]))
            for number in numbers
            for cut in self._cuts(self.layout.variable(number).size)
        ]
        self.random.shuffle(parts)
        if len(parts) > 1 and self.random.random() < 0.3:
            return [joined([parts[0], parts[-1]]), *parts[1:-1]]
        return parts

    def any_view(self, numbers: list[int]) -> View:
        """A view that may repeat elements and join variables; not empty."""
        random, parts = self.random, []
        for number in random.choices(numbers, k=random.choice((1, 1, 2))):
            view = whole(number)
            if len(self.layout.shapes[number]) > 1 and random.random() < 0.4:
                view = then(view, ["swap"])
            view = then(view, ["slice", *random.choice(self._cuts(self.size(view)))])
            parts.append(then(view, ["repeat", 2]) if random.random() < 0.2 else view)
        return self.flips(joined(parts))

    def size(self, view: View) -> int:
        return self.layout.indices(view).size

    def fitted(self, view: View, n: int) -> View:
        return then(view, ["fit", n])

    def scalar(self, types: tuple[str, ...]) -> View:
        type = self.random.choice([t for t in types if t in self.by_type])
        number = self.random.choice(self.by_type[type])
        return then(whole(number), ["at", self.random.randrange(self.layout.variable(number).size)])

    def split(self, type: str) -> tuple[list[int], list[int]]:
        """(variables to write, variables to read) of a type."""
        first, second = self.random.sample(self.by_type[type], 2)
        return [first], [second]

    def some(self, views: list) -> list:
        return views[: self.random.randint(1, 3)]

    # -- vertices ----------------------------------------------------------------------------------

    def compute_set(self) -> int:
        makers = [("INT", self._collects), ("INT", self._spreads), ("FLOAT", self._blends),
                  ("HALF", self._mirrors), ("UNSIGNED_CHAR", self._marks)]  # fmt: skip
        usable = [(type, maker) for type, maker in makers if type in self.by_type]
        chosen = dict(self.random.sample(usable, self.random.randint(1, min(2, len(usable)))))
        self.sets.append([vertex for maker in chosen.values() for vertex in maker()])
        return len(self.sets) - 1

    def _vertex(self, codelet: str, edges: Case, **state: object) -> Case:
        return {"codelet": codelet, "tile": self.tile(), "edges": edges, "state": state}

    def _blends(self) -> list[Case]:
        targets, sources = self.split("FLOAT")
        result = []
        for y in self.some(self.disjoint_views(targets)):
            x = self.any_view(sources)
            x = then(x, ["slice", 0, self.random.randint(0, min(5, self.size(x))), 1])
            shift = self.random.randint(-4, 4)
            result.append(self._vertex("Blend", {"x": x, "y": y}, shift=shift))
        return result

    def _mirrors(self) -> list[Case]:
        targets, sources = self.split("HALF")
        return [
            self._vertex("Mirror", {"x": x, "centre": then(self.any_view(sources), ["at", 0])})
            for x in self.some(self.disjoint_views(targets))
        ]

    def _marks(self) -> list[Case]:
        views = self.some(self.disjoint_views(self.by_type["BOOL"]))
        data = self.by_type["UNSIGNED_CHAR"]
        return [
            self._vertex("Mark", {"bytes": self.any_view(data), "flags": flags}, calls=0)
            for flags in views
        ]

    def _collects(self) -> list[Case]:
        targets, sources = self.split("INT")
        result = []
        for total in self.some(self.disjoint_views(targets)):
            rows = [self.any_view(sources) for _ in range(self.random.randint(0, 2))]
            edges = {"rows": rows, "total": then(total, ["at", 0])}
            result.append(self._vertex("Collect", edges))
        return result

    def _spreads(self) -> list[Case]:
        targets, sources = self.split("INT")
        result = []
        for out in self.some(self.disjoint_views(targets)):
            steps = [self.random.randint(-9, 9) for _ in range(self.random.randint(1, 3))]
            first = then(self.any_view(sources), ["at", 0])
            edges = {"first": first, "out": {"each": out}}
            result.append(self._vertex("Spread", edges, steps=steps))
        return result

    # -- programs ----------------------------------------------------------------------------------

    def node(self, depth: int) -> Case:
        self.n_steps += 1
        leaves = [self.execute, self.execute, self.copy, self.copy, self.operate, self.operate,
                  self.reduce, self.cast, self.sync, self.undef, self.feed, self.fetch]  # fmt: skip
        if self.replicas > 1:
            leaves.append(self.across)
        if depth > 0 and self.n_steps < self.most_steps and self.random.random() < 0.55:
            branches = [self.repeat, self.loop, self.choice, self.switch, self.call, self.block,
                        self.sequence]  # fmt: skip
            return self.random.choice(branches)(depth - 1)
        return self.random.choice(leaves)()

    def steps(self, depth: int, n: int) -> Case:
        return {"do": "sequence", "steps": [self.node(depth) for _ in range(n)]}

    def sequence(self, depth: int) -> Case:
        return self.steps(depth, self.random.randint(0, 3))

    def block(self, depth: int) -> Case:
        return {"do": "block", "body": self.node(depth)}

    def repeat(self, depth: int) -> Case:
        return {"do": "repeat", "times": self.random.randint(0, 3), "body": self.node(depth)}

    def loop(self, depth: int) -> Case:
        by = self.random.choice(("flag", "until", "result"))
        count, tile = self.random.randint(0, 3), self.tile()
        return {"do": "while", "by": by, "count": count, "tile": tile, "body": self.node(depth)}

    def choice(self, depth: int) -> Case:
        node = {"do": "if", "on": self.scalar(CONTROL_TYPES), "then": self.node(depth)}
        return {**node, "else": self.node(depth)} if self.random.random() < 0.5 else node

    def switch(self, depth: int) -> Case:
        control = self.scalar(("INT", "UNSIGNED_CHAR", "BOOL", "UNSIGNED_INT"))
        low, high = (0, 1) if self.layout.type_of(control) == "BOOL" else (0, 4)
        values = sorted({self.random.randint(low, high) for _ in range(self.random.randint(1, 3))})
        node = {"do": "switch", "on": control, "cases": [[v, self.node(depth)] for v in values]}
        return {**node, "default": self.node(depth)} if self.random.random() < 0.5 else node

    def call(self, depth: int) -> Case:
        if not self.functions or self.random.random() < 0.5:
            body = self.node(depth)  # complete before the function exists: no recursion
            self.functions.append(body)
        return {"do": "call", "function": self.random.randrange(len(self.functions))}

    def execute(self) -> Case:
        reuses = self.sets and self.random.random() < 0.5
        number = self.random.randrange(len(self.sets)) if reuses else self.compute_set()
        node = {"do": "execute", "set": number}
        if self.random.random() < 0.5:
            return node
        return {**node, "result": self.scalar(("BOOL", "INT", "UNSIGNED_CHAR"))}

    def copy(self) -> Case:
        """Any view to any view without repetition, of the same variables or not."""
        numbers = self.by_type[self.random.choice(list(self.by_type))]
        destination = self.random.choice(self.disjoint_views(numbers))
        source = self.fitted(self.any_view(numbers), self.size(destination))
        return {"do": "copy", "from": source, "to": destination}

    def across(self) -> Case:
        """A copy to another replica."""
        node = self.copy()
        targets = list(range(self.replicas))
        self.random.shuffle(targets)
        return {**node, "do": "across", "replicas": targets}

    def sync(self) -> Case:
        return {"do": "sync", "kind": self.random.choice(SYNCS)}

    def undef(self) -> Case:
        numbers = self.by_type[self.random.choice(list(self.by_type))]
        return {"do": "undef", "what": self.any_view(numbers)}

    def feed(self) -> Case:
        """A stream from the host, which counts upwards."""
        numbers = self.by_type[self.random.choice(list(self.by_type))]
        return {"do": "feed", "to": self.random.choice(self.disjoint_views(numbers))}

    def fetch(self) -> Case:
        """A stream to the host."""
        numbers = self.by_type[self.random.choice(list(self.by_type))]
        return {"do": "fetch", "from": self.any_view(numbers)}

    def operate(self) -> Case:
        rules = {
            (name, type)
            for name, rule in ELEMENT_RULES.items()
            for type in rule.types
            if type in self.by_type
        }
        name, type = self.random.choice(sorted(rules))
        rule = ELEMENT_RULES[name]
        if rule.gives_bool and type == "BOOL":
            targets, sources = self.split("BOOL")
        elif rule.gives_bool:
            targets, sources = self.by_type["BOOL"], self.by_type[type]
        else:
            targets, sources = self.split(type)
        to = self.random.choice(self.disjoint_views(targets))
        n, form = self.size(to), self.random.choice(("output", "new", "in place"))
        ins = [self.fitted(self.any_view(sources), n) for _ in range(rule.n_operands)]
        if rule.has_condition:
            flags = sources if type == "BOOL" else self.by_type["BOOL"]
            ins[-1] = self.fitted(self.any_view(flags), n)
        if form == "in place" and not rule.gives_bool:
            ins[0] = to
        return {"do": "operate", "op": name, "form": form, "ins": ins, "to": to}

    def reduce(self) -> Case:
        pairs = [(n, t) for n, (types, _) in REDUCTIONS.items() for t in types if t in self.by_type]
        name, type = self.random.choice(pairs)
        targets, sources = self.split(type)
        to = self.random.choice(self.disjoint_views(targets))
        n, along = self.size(to), self.random.randint(1, 4)
        axis = self.random.randrange(2)
        shape = [along, n] if axis == 0 else [n, along]
        source = then(self.fitted(self.any_view(sources), n * along), ["shape", shape])
        return {"do": "reduce", "op": name, "axis": axis, "from": source, "to": to}

    def cast(self) -> Case:
        pairs = [pair for pair in CASTS if all(type in self.by_type for type in pair)]
        if not pairs:
            return self.copy()
        source, target = self.random.choice(pairs)
        to = self.random.choice(self.disjoint_views(self.by_type[target]))
        view = self.fitted(self.any_view(self.by_type[source]), self.size(to))
        return {"do": "cast", "from": view, "to": to}


def features(case: Case) -> set[str]:
    """What a case covers, as `group:item`."""
    result = {f"chips:{case['chips']}", f"replicas:{case['replicas']}", f"strict:{case['strict']}"}
    result |= {f"type:{variable['type']}" for variable in case["variables"]}
    result |= {f"check:{name}" for name in case["checks"]}
    result |= {f"codelet:{vertex['codelet']}" for rows in case["sets"] for vertex in rows}
    layout = Layout(case["variables"])
    for node in _nodes([*case["functions"], *case["programs"]]):
        result.add(f"program:{node['do']}")
        if node["do"] in ("operate", "reduce"):
            view = node["ins"][0] if node["do"] == "operate" else node["from"]
            result.add(f"operation:{node['op']} {layout.type_of(view)}")
        if node["do"] == "cast":
            result.add(
                f"operation:cast {layout.type_of(node['from'])} {layout.type_of(node['to'])}"
            )
    return result


def _nodes(part: object) -> list[Case]:
    """All nodes of program trees."""
    if isinstance(part, list):
        return [node for inner in part for node in _nodes(inner)]
    if not isinstance(part, dict) or "do" not in part:
        return []
    return [part, *(node for inner in part.values() for node in _nodes(inner))]
