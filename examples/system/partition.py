"""A program on a partition, or on its own Pod16 if there is none.

tremula vipu-server &
export VIPU_CLI_CONFIG=~/.tremula-vipu/admin.hcl
vipu create partition p1 --size 4 --reconfigurable
IPUOF_CONFIG_PATH=~/.ipuof.conf.d/p1_gcd0.conf python partition.py
"""

import numpy as np

import tremula as tr
from tremula.poplibs import popops

device = tr.DeviceManager().acquire_available_device(2)
print(f"{device.target.n_ipus} IPUs of {device.target.chip.name}")
graph, sequence = tr.Graph(device), tr.Sequence()
x = graph.add_variable(tr.FLOAT, [8], "x", mapping="linear")
popops.add_in_place(graph, x, x, sequence)
graph.create_host_write("x", x)
graph.create_host_read("x", x)
engine = tr.Engine(graph, [sequence]).load(device)
engine.write_tensor("x", np.arange(8))
engine.run()
print(engine.read_tensor("x"))
device.detach()
