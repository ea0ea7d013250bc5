"""The modules of poptorch_geometric, which only redirect: one row each."""

_CODE = "tremula.frontends.geometric"
_LAYERS = f"{_CODE}.ops.static_layers"
_NEIGHBOURS = f"{_CODE}.ops.neighbours"
_STRATEGIES = f"{_CODE}.fixed_size.options: FixedSizeStrategy OverSizeStrategy"
_BATCHES = f"{_CODE}.common: DataBatch HeteroDataBatch"

MODULES: dict[str, str | tuple[str, ...]] = {
    "cluster_loader": f"{_CODE}.loaders.cluster: FixedSizeClusterLoader",
    "collate": (
        f"{_CODE}.fixed_size.collate: CombinedBatchingCollater FixedSizeCollater make_exclude_keys",
        f"{_CODE}.fixed_size.trimming: create_slices_and_preserve_mask data_slice_gen",
    ),
    "columns": (
        f"{_CODE}.feeding.columns: Column GraphColumns",
        f"{_CODE}.feeding.radius: with_radius_graph",
    ),
    "common": f"{_CODE}.common: DataBatch HeteroDataBatch call_once",
    "dataloader": (f"{_CODE}.loaders.poptorch: DataLoader FixedSizeDataLoader", _STRATEGIES),
    "fixed_size_options": f"{_CODE}.fixed_size.options: FixedSizeOptions validate_num_graphs",
    "histogram_packing_sampler": f"{_CODE}.packing.histogram: HistogramPackingSampler",
    "masker": f"{_CODE}.masker: Entries Layer LayerMasker Masker NoMasker PreLayerMasker",
    "neighbor_loader": (
        f"{_CODE}.loaders.neighbor: FixedSizeNeighborLoader PyGFixedSizeNeighborLoader"
    ),
    "ops": (
        f"{_LAYERS}: Aggregation ClusterGCNConv HeteroLinear InstanceNorm MFConv",
        f"{_NEIGHBOURS}: knn knn_graph knn_interpolate radius radius_graph",
        "tremula.frontends.poptorch.ops.points: nearest",
    ),
    "ops.aggregation_base": f"{_LAYERS}: Aggregation",
    "ops.cluster_gcn_conv": f"{_LAYERS}: ClusterGCNConv",
    "ops.hetero_linear": f"{_LAYERS}: HeteroLinear",
    "ops.instance_norm": f"{_LAYERS}: InstanceNorm",
    "ops.knn": f"{_NEIGHBOURS}: knn",
    "ops.knn_graph": f"{_NEIGHBOURS}: knn_graph",
    "ops.knn_interpolate": f"{_NEIGHBOURS}: knn_interpolate",
    "ops.mf_conv": f"{_LAYERS}: MFConv",
    "ops.nearest": "tremula.frontends.poptorch.ops.points: nearest",
    "ops.radius": f"{_NEIGHBOURS}: radius radius_graph",
    "override": (
        f"{_CODE}.overrides: FUNCTIONS METHODS Overrides register_overrides "
        "registerOptionalOverrides=register_torch_cluster"
    ),
    "pyg_cluster_loader": (
        f"{_CODE}.loaders.cluster: FixedSizeClusterLoader=PyGFixedSizeClusterLoader"
    ),
    "pyg_collate": f"{_CODE}.fixed_size.collate: Collater",
    "pyg_dataloader": (f"{_CODE}.loaders.plain: DataLoader FixedSizeDataLoader", _STRATEGIES),
    "stream_packing_sampler": f"{_CODE}.packing.stream: StreamPackingSampler",
    "types": (f"{_CODE}.args_parser: PyGArgsParser registerCustomArgParsers=register_args_parsers"),
    "utils": (f"{_CODE}.training: TrainingStepper set_aggregation_dim_size", _BATCHES),
}
