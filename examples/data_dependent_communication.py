"""Communication that depends on data: particles travel from tile to tile until all are at home.

What is sent where is fixed when a program is compiled, so every tile has an outbox of fixed size
that always goes to its right neighbour on a ring. How often this happens depends on the data: the
loop runs until a flag, reduced over all tiles, says that no particle belongs elsewhere.
"""

import numpy as np

import tremula as tr

N_TILES = 16
N_PARTICLES = 400
N_SLOTS = 128  # room for particles on a tile
N_BOX = 8  # particles sent at a time
EMPTY = -1.0


class Pack(tr.Vertex):
    """Moves particles that belong elsewhere to the outbox, as many as it holds."""

    slots: tr.InOut[tr.Vector[tr.float32]]
    outbox: tr.Output[tr.Vector[tr.float32]]
    must_send: tr.Output[bool]
    home: tr.int32

    def compute(self):
        n_packed = 0
        for i in range(len(self.slots)):
            position = self.slots[i]
            if position >= 0 and int(position) != self.home and n_packed < len(self.outbox):
                self.outbox[n_packed] = position
                self.slots[i] = EMPTY
                n_packed += 1
        self.must_send = n_packed > 0
        for k in range(n_packed, len(self.outbox)):
            self.outbox[k] = EMPTY


class Unpack(tr.Vertex):
    """Puts what arrived into free slots; False if there is no room."""

    inbox: tr.Input[tr.Vector[tr.float32]]
    slots: tr.InOut[tr.Vector[tr.float32]]

    def compute(self):
        i = 0
        for position in self.inbox:
            if position >= 0:
                while i < len(self.slots) and self.slots[i] >= 0:
                    i += 1
                if i == len(self.slots):
                    return False
                self.slots[i] = position
        return True


class AnyOf(tr.Vertex):
    """The reduction: true if any tile must send. Counts how often that was so."""

    flags: tr.Input[tr.Vector[bool]]
    any: tr.Output[bool]
    n_true: tr.InOut[tr.int32]

    def compute(self):
        result = False
        for flag in self.flags:
            result = result or flag
        self.any = result
        self.n_true += int(result)


device = tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device()
graph = tr.Graph(device)
slots = graph.add_variable(tr.FLOAT, [N_TILES, N_SLOTS], "slots")
outboxes = graph.add_variable(tr.FLOAT, [N_TILES, N_BOX], "outboxes")
inboxes = graph.add_variable(tr.FLOAT, [N_TILES, N_BOX], "inboxes")
must_send = graph.add_variable(tr.BOOL, [N_TILES], "must send")
for tensor in (slots, outboxes, inboxes, must_send):
    for tile in range(N_TILES):
        graph.set_tile_mapping(tensor[tile], tile)
goes_on = graph.add_variable(tr.BOOL, [], "goes on", mapping=0)
has_room = graph.add_variable(tr.BOOL, [], "has room", mapping=0)
n_rounds = graph.add_variable(tr.INT, [], "rounds", mapping=0)
graph.set_initial_value(n_rounds, 0)

pack, reduce, unpack = (graph.add_compute_set(name) for name in ("pack", "reduce", "unpack"))
for tile in range(N_TILES):
    fields = {"slots": slots[tile], "outbox": outboxes[tile], "must_send": must_send[tile]}
    graph.add_vertex(pack, Pack, {**fields, "home": tile}, tile=tile)
    graph.add_vertex(unpack, Unpack, {"inbox": inboxes[tile], "slots": slots[tile]}, tile=tile)
graph.add_vertex(reduce, AnyOf, {"flags": must_send, "any": goes_on, "n_true": n_rounds}, tile=0)

# The condition runs first: it packs, and reduces the tiles' flags to the one the loop looks at.
to_the_right = tr.concat([outboxes[-1:], outboxes[:-1]])
program = tr.RepeatWhileTrue(
    tr.Sequence(tr.Execute(pack), tr.Execute(reduce)),
    goes_on,
    tr.Sequence(
        tr.Copy(to_the_right, inboxes),
        tr.Execute(unpack, has_room),
        tr.If(has_room, tr.Sequence(), tr.Abort("a tile has no room for a particle")),
    ),
)
graph.create_host_write("slots", slots)
graph.create_host_read("slots", slots)
graph.create_host_read("rounds", n_rounds)

# Particles start anywhere; one at position x belongs to tile int(x).
random = np.random.default_rng(17)
positions = random.uniform(0, N_TILES, N_PARTICLES).astype(np.float32)
start = np.full((N_TILES, N_SLOTS), EMPTY, np.float32)
start[:, : N_PARTICLES // N_TILES] = positions.reshape(N_TILES, -1)

engine = tr.Engine(graph, program)
engine.load(device)
engine.write_tensor("slots", start)
engine.run()

end = engine.read_tensor("slots")
for tile in range(N_TILES):
    here = end[tile][end[tile] >= 0]
    assert np.all(here.astype(int) == tile)
assert np.array_equal(np.sort(end[end >= 0]), np.sort(positions))
print(f"{N_PARTICLES} particles, all at home after {engine.read_tensor('rounds')} rounds")
print("Particles conserved")
print("Program complete")
