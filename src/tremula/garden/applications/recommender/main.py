"""Trains tables of users and items with PopART, kept beside the chips, and ranks new pairs."""

import numpy as np

import popart
from tremula.garden.application import Findings, Modelled, Settings
from tremula.garden.applications.recommender.clicks import Clicks, area_under_roc, clicks
from tremula.hardware import CHIPS

N_BATCH, N_REPLICAS, N_ACCUMULATED, WIDTH = 64, 2, 2, 4
PER_STEP = N_BATCH * N_REPLICAS * N_ACCUMULATED


def run(settings: Settings) -> Findings:
    sizes = (60, 40, 8192, 6) if settings.tiny else (5000, 2000, 2**20, 4)
    n_users, n_items, n_seen, n_epochs = sizes
    builder, names = network(n_users, n_items)
    session = training_session(builder, names, settings)
    anchors = session.initAnchorArrays()
    known, new = clicks(n_seen, n_users, n_items, 1), clicks(2048, n_users, n_items, 2)
    settings.show(f"{n_users} users, {n_items} items, {n_seen:,} pairs seen")
    losses = []
    for epoch in range(n_epochs):
        for begin in range(0, n_seen, PER_STEP):
            session.run(step_io(known, slice(begin, begin + PER_STEP), names, anchors))
            losses.append(float(anchors[names["loss"]].mean()))
        settings.show(f"  epoch {epoch + 1}: loss {np.mean(losses[-32:]):.3f}")
    scores = []
    for begin in range(0, len(new.users), PER_STEP):  # the step returns scores before it learns
        session.run(step_io(new, slice(begin, begin + PER_STEP), names, anchors))
        scores.append(anchors[names["score"]].reshape(-1).copy())
    area = area_under_roc(np.concatenate(scores), new.is_click)
    settings.show(f"area under ROC on new pairs: {area:.3f}")
    return Findings(
        results={"area_under_roc": area},
        modelled=modelled_session(session),
        curves={"loss": losses},
    )


def network(n_users: int, n_items: int) -> tuple[popart.Builder, dict[str, str]]:
    """The product of two rows, through a sigmoid; the builder, and ids of tensors by name."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    users = builder.addInputTensor("INT32", [N_BATCH], "users")
    items = builder.addInputTensor("INT32", [N_BATCH], "items")
    truth = builder.addInputTensor("FLOAT", [N_BATCH], "truth")
    rows = []
    for name, n, places in (("user", n_users, users), ("item", n_items, items)):
        first = rng.normal(0, 0.5, (n, WIDTH)).astype(np.float32)
        table = builder.addInitializedInputTensor(first, f"{name}_table")
        rows.append(builder.aiOnnx.gather([table, places]))
    agreement = str(builder.aiOnnx.reducesum([builder.aiOnnx.mul(rows)], [1], 0))
    # The loss of a click is -log σ(x), of none -log σ(-x): softplus of -x or x.
    one, two = (builder.aiOnnx.constant(np.array(v, np.float32)) for v in (1.0, 2.0))
    sign = builder.aiOnnx.sub([one, builder.aiOnnx.mul([two, truth])])
    each = builder.aiOnnx.softplus([builder.aiOnnx.mul([sign, agreement])])
    loss = builder.aiGraphcore.identityloss([each], popart.ReductionType.Mean)
    builder.addOutputTensor(agreement)
    ids = {"users": users, "items": items, "truth": truth, "score": agreement, "loss": loss}
    return builder, ids


def training_session(
    builder: popart.Builder, names: dict[str, str], settings: Settings
) -> popart.TrainingSession:
    options = popart.SessionOptions()
    if settings.report is not None:
        options.engineOptions = {"autoReport.directory": str(settings.report)}
    options.enableReplicatedGraphs = True
    options.replicatedGraphCount = N_REPLICAS
    options.enableGradientAccumulation = True
    options.accumulationFactor = N_ACCUMULATED
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    options.instrumentWithHardwareCycleCounter = True
    beside = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip))
    options.weightTensorLocationSettings = beside
    options.optimizerStateTensorLocationSettings = beside
    everything = popart.AnchorReturnType("All")
    session = popart.TrainingSession(
        builder.getModelProto(),
        dataFlow=popart.DataFlow(1, {names["loss"]: everything, names["score"]: everything}),
        loss=names["loss"],
        optimizer=popart.Adam({"defaultLearningRate": (0.02, False)}),
        deviceInfo=popart.DeviceManager().acquireAvailableDevice(N_REPLICAS),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session


def step_io(data: Clicks, part: slice, names: dict[str, str], anchors: dict) -> popart.PyStepIO:
    inputs = {"users": data.users, "items": data.items, "truth": data.is_click}
    return popart.PyStepIO({names[name]: array[part] for name, array in inputs.items()}, anchors)


def modelled_session(session: popart.TrainingSession) -> Modelled:
    """A step of all replicas, from the session's own report."""
    cycles, report = session.getCycleCount(), session.getReport()
    fullest = report.compilation.memoryByTile()["includingGaps"].max()
    chip = CHIPS["bow"]
    return Modelled(
        machine=f"{N_REPLICAS} × {chip.name}",
        cycles=cycles,
        bytes_on_fullest_tile=int(fullest),
        rate=PER_STEP * chip.clock_hz / cycles,
        unit="pairs/s",
    )
