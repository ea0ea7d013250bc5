"""popdist: processes started by PopRun or torchrun, and their options."""

import copy

import pytest

import popdist
import popdist.poptorch
import poptorch

VARIABLES = """
    POPDIST_NUM_TOTAL_REPLICAS POPDIST_NUM_LOCAL_REPLICAS POPDIST_NUM_IPUS_PER_REPLICA
    POPDIST_REPLICA_INDEX_OFFSET POPDIST_LOCAL_INSTANCE_INDEX OMPI_COMM_WORLD_SIZE
    OMPI_COMM_WORLD_RANK RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR
""".split()


@pytest.fixture(autouse=True)
def environ(monkeypatch):
    """An environment without variables of a launcher."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def set_all(**values):
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return set_all


def test_a_lone_process():
    """Without a launcher there is one process with one replica."""
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (0, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (1, 1)
    assert (popdist.getNumIpusPerReplica(), popdist.getReplicaIndexOffset()) == (1, 0)
    popdist.init()
    popdist.synchronize()
    popdist.finalize()


def test_poprun(environ):
    """PopRun's variables say which process this is, with MPI's or without."""
    environ(
        POPDIST_NUM_TOTAL_REPLICAS=8,
        POPDIST_NUM_LOCAL_REPLICAS=2,
        POPDIST_NUM_IPUS_PER_REPLICA=4,
        POPDIST_REPLICA_INDEX_OFFSET=6,
        POPDIST_LOCAL_INSTANCE_INDEX=1,
    )
    assert popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (3, 4)
    assert popdist.getLocalInstanceIndex() == 1
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (8, 2)
    assert (popdist.getNumIpusPerReplica(), popdist.getReplicaIndexOffset()) == (4, 6)
    environ(OMPI_COMM_WORLD_RANK=2, OMPI_COMM_WORLD_SIZE=5)
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (2, 5)


def test_torchrun(environ):
    """torchrun's variables mean one replica a process, unless more are asked for."""
    environ(RANK=3, WORLD_SIZE=4, LOCAL_RANK=1)
    assert popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (3, 4)
    assert popdist.getLocalInstanceIndex() == 1
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (4, 1)
    assert popdist.getReplicaIndexOffset() == 3
    environ(POPDIST_NUM_LOCAL_REPLICAS=2)
    assert (popdist.getNumTotalReplicas(), popdist.getReplicaIndexOffset()) == (8, 6)
    environ(RANK="three")
    with pytest.raises(RuntimeError, match="RANK must be a whole number, got 'three'"):
        popdist.getInstanceIndex()


def test_processes_must_know_where_they_meet(environ):
    """Several processes without a meeting place are an error that says what to do."""
    environ(POPDIST_NUM_TOTAL_REPLICAS=2, POPDIST_NUM_LOCAL_REPLICAS=1)
    with pytest.raises(RuntimeError, match=r"MASTER_ADDR is not set.*torchrun"):
        popdist.init()


def test_execute_on_instances(environ):
    """A function runs in the processes that are named."""
    environ(RANK=1, WORLD_SIZE=2)
    assert popdist.execute_on_instances({1}, max, 3, 4) == 4
    assert popdist.execute_on_instances({0}, max, 3, 4) is None


def test_options(environ):
    """Options take replicas and processes from the environment, and keep them in copies."""
    environ(RANK=1, WORLD_SIZE=4, POPDIST_NUM_LOCAL_REPLICAS=2)
    opts = popdist.poptorch.Options(ipus_per_replica=2)
    assert isinstance(opts, poptorch.Options)
    for options in (opts, opts.clone(), copy.deepcopy(opts)):
        assert options.replication_factor == 2
        assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 4)
    opts.outputMode(poptorch.OutputMode.All)
    poptorch.poptorch_core._validateOptions(opts.toDict())
    opts.freeze()
    opts.toDict()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.checkIsFrozen()


def test_options_of_a_lone_process():
    """Without a launcher the options describe one process with one replica."""
    opts = popdist.poptorch.Options()
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (0, 1)
    assert opts.replication_factor == 1


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("useIpuId", lambda o: o.useIpuId(1)),
        ("replicationFactor", lambda o: o.replicationFactor(1)),
        ("Distributed.disable", lambda o: o.Distributed.disable()),
        ("Distributed.setEnvVarNames", lambda o: o.Distributed.setEnvVarNames("A", "B")),
        ("Distributed.configureProcessId", lambda o: o.Distributed.configureProcessId(1)),
    ],
)
def test_what_the_launcher_decides(name, call):
    """Setters of what the launcher decides are rejected."""
    with pytest.raises(RuntimeError) as caught:
        call(popdist.poptorch.Options(ipus_per_replica=2))
    assert f"Cannot call `{name}` with popdist.poptorch.Options" in str(caught.value)


def test_size_of_a_replica(environ):
    """A replica has the number of chips that the launcher reserved for it."""
    environ(POPDIST_NUM_TOTAL_REPLICAS=1, POPDIST_NUM_IPUS_PER_REPLICA=4)
    popdist.poptorch.Options(ipus_per_replica=4)
    with pytest.raises(ValueError, match="started for 4 IPUs per replica"):
        popdist.poptorch.Options(ipus_per_replica=2)
