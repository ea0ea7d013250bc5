"""Shims for scripts written for older PyTorch, torchvision, transformers, JAX and Keras."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tremula.commands.port.shims import ModuleShim, NameShim, Shim, elsewhere, names


def _load(module: ModuleType, _name: str) -> Callable[..., Any]:
    original = module.load

    @functools.wraps(original)
    def load(*args: object, **options: object) -> Any:  # noqa: ANN401
        return original(*args, **{"weights_only": False, **options})

    return load


def _symeig(torch: ModuleType, _name: str) -> Callable[..., Any]:
    """Values in ascending order; zeros for vectors that were not requested, as before."""

    def symeig(matrix: Any, eigenvectors: bool = False, upper: bool = True) -> Any:  # noqa: ANN401
        half = "U" if upper else "L"
        if eigenvectors:
            return torch.return_types.linalg_eigh(torch.linalg.eigh(matrix, UPLO=half))
        values = torch.linalg.eigvalsh(matrix, UPLO=half)
        return torch.return_types.linalg_eigh((values, matrix.new_zeros(0)))

    return symeig


def _solve(torch: ModuleType, _name: str) -> Callable[..., Any]:
    def solve(right: object, matrix: object) -> Any:  # noqa: ANN401
        return torch.linalg.solve(matrix, right), torch.linalg.lu_factor(matrix).LU

    return solve


def _updated(method: str) -> Callable[[ModuleType, str], object]:
    """`jax.ops.index_update(x, index, y)` as `x.at[index].set(y)`."""
    return lambda *_: lambda x, index, y: getattr(x.at[index], method)(y)


_OF_CORE = names("ClosedJaxpr Jaxpr JaxprEqn Literal Primitive Var jaxpr_as_fun")
_TREE = {
    "tree_map": "map", "tree_multimap": "map", "tree_leaves": "leaves", "tree_flatten": "flatten",
    "tree_unflatten": "unflatten", "tree_structure": "structure", "tree_reduce": "reduce",
    "tree_transpose": "transpose",
}  # fmt: skip
_BERT_LIKE = names("albert bart bert ctrl distilbert electra gpt2 longformer roberta t5 xlnet")


def _moved_models() -> list[Shim]:
    """`transformers.modeling_bert` and its kind, of version 3."""
    return [
        ModuleShim(
            f"transformers.{kind}_{model}",
            "transformers 4 has each model in a folder",
            package=f"transformers.models.{model}.{kind}_{model}",
        )
        for model in _BERT_LIKE
        for kind in ("modeling", "configuration", "tokenization")
    ]


SHIMS: tuple[Shim, ...] = (
    NameShim(
        "torch", ("load",), _load,
        "PyTorch 2.6 loads plain weights only: files with other objects load, as before; load only"
        " files you trust",
        replaces=True,
    ),
    NameShim(
        "torch", ("symeig",), _symeig, "PyTorch 2 has linalg.eigh only", replaces=True,
    ),
    NameShim("torch", ("solve",), _solve, "PyTorch 2 has linalg.solve only", replaces=True),
    NameShim(
        "torch", ("set_deterministic",), elsewhere(
            {"set_deterministic": "torch.use_deterministic_algorithms"}),
        "PyTorch 1.11 has use_deterministic_algorithms only",
    ),
    ModuleShim(
        "torch._six", "PyTorch 2 needs no names for Python 2",
        ("math.inf", "math.nan", "string_classes=builtins.str", "int_classes=builtins.int",
         "container_abcs=collections.abc"),
    ),
    ModuleShim(
        "torchvision.models.utils", "torchvision 0.13 takes it from PyTorch",
        ("torch.hub.load_state_dict_from_url",),
    ),
    ModuleShim(
        "torchvision.transforms.functional_tensor", "torchvision 0.17 hides the module",
        package="torchvision.transforms._functional_tensor",
    ),
    *(
        NameShim(module, ("AdamW",), elsewhere({"AdamW": "torch.optim.AdamW"}),
                 "transformers 5 leaves optimisers to PyTorch")
        for module in ("transformers", "transformers.optimization")
    ),
    NameShim(
        "transformers", ("AutoModelWithLMHead",),
        elsewhere({"AutoModelWithLMHead": "transformers.AutoModelForCausalLM"}),
        "transformers 5 has a class for each kind of language model",
    ),
    NameShim(
        "transformers.modeling_utils", names("apply_chunking_to_forward prune_linear_layer Conv1D"),
        elsewhere({n: f"transformers.pytorch_utils.{n}" for n in names(
            "apply_chunking_to_forward prune_linear_layer Conv1D")}),
        "transformers 4.17 has them in pytorch_utils",
    ),
    NameShim(
        "transformers.models.bert.modeling_bert", ("BertLayerNorm",),
        elsewhere({"BertLayerNorm": "torch.nn.LayerNorm"}),
        "transformers 4 uses PyTorch's layer",
    ),
    *_moved_models(),
    NameShim(
        "jax", tuple(_TREE), elsewhere({old: f"jax.tree.{new}" for old, new in _TREE.items()}),
        "JAX 0.4.26 has them in jax.tree",
    ),
    NameShim("jax.ops", ("index_update",), _updated("set"), "JAX 0.3 has x.at[index].set only"),
    NameShim("jax.ops", ("index_add",), _updated("add"), "JAX 0.3 has x.at[index].add only"),
    NameShim("jax.ops", ("index_mul",), _updated("multiply"), "JAX 0.3 has x.at[index] only"),
    NameShim("jax.ops", ("index_min",), _updated("min"), "JAX 0.3 has x.at[index].min only"),
    NameShim("jax.ops", ("index_max",), _updated("max"), "JAX 0.3 has x.at[index].max only"),
    NameShim(
        "jax.ops", ("index",), lambda *_: _Index(), "JAX 0.3 has x.at[index] only",
    ),
    NameShim(
        "jax.numpy", ("DeviceArray",), elsewhere({"DeviceArray": "jax.Array"}),
        "JAX 0.4 has one class of arrays",
    ),
    NameShim(
        "jax.core", tuple(_OF_CORE), elsewhere({n: f"jax.extend.core.{n}" for n in _OF_CORE}),
        "JAX 0.7 has them in jax.extend.core",
    ),
    NameShim(
        "jax", ("ShapedArray",), elsewhere({"ShapedArray": "jax.core.ShapedArray"}),
        "JAX 0.4 has it in jax.core",
    ),
    NameShim(
        "jax.interpreters.xla", ("DeviceArray",), elsewhere({"DeviceArray": "jax.Array"}),
        "JAX 0.4 has one class of arrays",
    ),
    *(
        ModuleShim(old, "TessellateIPU had this name before", package="tessellate_ipu")
        for old in names("jax_ipu_experimental_addons jax_ipu_experimental_addons.tile")
    ),
    ModuleShim("jax.config", "JAX 0.4.25 has an object of this name", ("jax.config",)),
    ModuleShim(
        "jax.experimental.stax", "JAX 0.3.16 has it in example_libraries",
        package="jax.example_libraries.stax",
    ),
    ModuleShim(
        "jax.experimental.optimizers", "JAX 0.3.16 has it in example_libraries",
        package="jax.example_libraries.optimizers",
    ),
    ModuleShim(
        "jax.linear_util", "JAX 0.4.24 has it in extend", package="jax.extend.linear_util",
    ),
    ModuleShim(
        "keras.utils.np_utils", "Keras 3 has them in keras.utils",
        ("keras.utils.to_categorical", "keras.utils.normalize"),
    ),
    *(
        ModuleShim(f"keras.layers.{old}", "Keras 3 has all layers in keras.layers",
                   package="keras.layers")
        for old in names("core convolutional embeddings merge normalization pooling recurrent")
    ),
)  # fmt: skip


class _Index:
    """`jax.ops.index[...]`: the index itself."""

    def __getitem__(self, index: object) -> object:
        return index
