"""Which results activation checkpointing keeps beside the inputs of a part, by torch's contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tag
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

Policy = Callable[..., CheckpointPolicy | bool]
"""What torch asks about each operation: `policy(context, operation, *inputs, **options)`."""
Keep = Literal["matmul"] | Sequence[Any] | Policy
"""A word, operations such as `torch.ops.aten.mm.default`, or a policy."""

PRODUCTS = [
    *("mm", "addmm", "bmm", "baddbmm", "linear"),
    *("_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"),
    "_flash_attention_forward",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_fused_attention_overrideable",
]
"""The operations of `keep="matmul"`: names in `torch.ops.aten`, some in some versions only."""
CAST = torch.ops.aten._to_copy.default


class Selection:
    """What is kept: `contexts()` for torch's `checkpoint`, and `compiled` where it is compiled."""

    def __init__(self, keep: Keep) -> None:
        """Check what was given."""
        self._chosen = _chosen_by(keep)
        self.compiled: partial[tuple[Any, Any]] = partial(
            create_selective_checkpoint_contexts, partial(_answer, self._chosen, keep)
        )
        """A partial of functions, as torch.compile needs it."""

    def contexts(self) -> tuple[TorchDispatchMode, TorchDispatchMode]:
        """Those of the forward pass, and of the one that computes again."""
        first, again = self.compiled()
        return _Asked(first, self._chosen), _Asked(again, self._chosen)


class _Asked(TorchDispatchMode):
    """A mode of torch's that sees what may be kept, and nothing else.

    It counts operations, and the second pass may have others: autocast had cast a weight already,
    or FSDP still holds the whole one. Torch would fail, or take the result of another call.
    """

    supports_higher_order_operators = True

    def __init__(self, mode: TorchDispatchMode, chosen: frozenset[Any] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode, self._chosen, self._is_used = mode, chosen, False

    def __enter__(self) -> Self:
        if self._is_used:
            raise RuntimeError(
                "checkpoint_activations(keep=...): what is kept serves one backward pass, and this "
                "is the second one through the same graph (retain_graph=True or "
                "create_graph=True); leave keep= out"
            )
        self._is_used = True
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        if _may_be_kept(self._chosen, operation, args, options):
            return self._mode.__torch_dispatch__(operation, types, args, options)
        return operation(*args, **options)


def _chosen_by(keep: Any) -> frozenset[Any] | None:
    """The operations whose results are kept; None if a policy says so of each."""
    if isinstance(keep, str):
        if keep != "matmul":
            raise ValueError(
                f"checkpoint_activations(keep={keep!r}): the only word is 'matmul'; else give a "
                "list of operations, such as [torch.ops.aten.mm.default], or a policy"
            )
        packets = [getattr(torch.ops.aten, name, None) for name in PRODUCTS]
        return frozenset(getattr(each, n) for each in packets if each for n in each.overloads())
    is_one = isinstance(keep, OpOverload | OpOverloadPacket | HigherOrderOperator)
    if callable(keep) and not is_one:
        return None
    several: Any = keep if isinstance(keep, Sequence) else [keep]
    for each in several:
        if not isinstance(each, OpOverload | HigherOrderOperator):
            raise TypeError(
                f"checkpoint_activations(keep={keep!r}): needs 'matmul', a list of overloads such "
                f"as [torch.ops.aten.mm.default], or a policy; {each!r} is none of them"
            )
    return frozenset(several)


def _answer(
    chosen: frozenset[Any] | None,
    keep: Any,
    context: Any,
    operation: Any,
    /,
    *inputs: Any,
    **options: Any,
) -> CheckpointPolicy | bool:
    """What torch is told about an operation."""
    if not _may_be_kept(chosen, operation, inputs, options):
        return CheckpointPolicy.PREFER_RECOMPUTE
    said = True if chosen is not None else keep(context, operation, *inputs, **options)
    if not isinstance(said, CheckpointPolicy | bool):
        raise TypeError(
            f"checkpoint_activations(keep={keep!r}): the policy returned {said!r} for {operation}; "
            "it has to return True, False or a torch.utils.checkpoint.CheckpointPolicy"
        )
    return said


def _may_be_kept(
    chosen: frozenset[Any] | None, operation: Any, inputs: Any, options: dict[str, Any]
) -> bool:
    """False for what was not chosen, draws random numbers, or changes a tensor in place.

    What is kept does not run again: the next operation that draws would draw other numbers than
    in the forward pass, and a tensor would stay unchanged.
    """
    if chosen is not None and operation not in chosen:
        return False
    if not isinstance(operation, OpOverload):
        return True
    schema: Any = operation._schema  # pyright: ignore[reportPrivateUsage]
    if operation is CAST or schema.is_mutable:
        return False
    if Tag.nondeterministic_seeded not in operation.tags:
        return True
    names = [each.name for each in schema.arguments]
    given = {**dict(zip(names, inputs, strict=False)), **options}
    return "dropout_p" in names and given.get("dropout_p", 0.0) == 0.0
