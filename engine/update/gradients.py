"""The gradients of an optimizer: computed, read and changed by handlers, and used.

`backward` and `step_by` do the same as torch's, with less Python, which takes a tenth of a small
step: torch's Python looks for subclasses of tensors, for hooks and for profilers. These functions
look for them at less cost; if there may be one, or torch's internals differ, they make torch's
public call. The same kernels run either way.

An `ExecutionTraceObserver` without a profiler cannot be detected: its trace has all kernels of an
optimizer's step, but not the step's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from operator import attrgetter, is_
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor, autograd
from torch.autograd import graph
from torch.linalg import vector_norm
from torch.optim import Optimizer
from torch.overrides import has_torch_function_unary

from .. import ranks
from ..events import Events
from ..modules import (
    are_spread,
    local,
    locals_of,
    moved,
    multiply_each,
    norm,
    norm_of_each,
    optimizers_in,
)
from ..signals import label

if TYPE_CHECKING:
    from torch.amp import GradScaler

    from ..compiling import CompiledStep
    from ..state import State

Function = TypeVar("Function", bound=Callable[..., Any])
KIND = attrgetter("__class__", "device", "dtype", "layout", "requires_grad")

REAL = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))
BACKWARD = Tensor.backward
PASS = autograd.backward
OPTIMIZERS = import_module("torch.optim.optimizer")
RUN: Any = getattr(graph, "_engine_run_backward", None)
INSIDE: Any = getattr(torch, "_C", None)
IN_TRANSFORM: Any = getattr(INSIDE, "_are_functorch_transforms_active", None)
IS_PROFILED: Any = getattr(autograd, "_profiler_enabled", None)
PRE_HOOKS: Any = getattr(OPTIMIZERS, "_global_optimizer_pre_hooks", None)
POST_HOOKS: Any = getattr(OPTIMIZERS, "_global_optimizer_post_hooks", None)
SEEN = (Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY)
"""The events at which gradients may change before a step."""
HAS_ENGINE = None not in (RUN, IN_TRANSFORM)
STEP_CODE: Any = getattr(Optimizer, "_optimizer_step_code", None)  # does nothing, after a step
HAS_HOOKS = None not in (IS_PROFILED, PRE_HOOKS, POST_HOOKS, STEP_CODE)


def _wrapper() -> Any:
    """The code of the wrapper that torch puts around the `step` of each optimizer class."""

    def step(optimizer: Optimizer) -> None:
        pass

    wrapped = Optimizer.profile_hook_step(step)
    return wrapped.__code__ if isinstance(wrapped, FunctionType) else None


WRAPPER = _wrapper()


def clear(optimizer: Optimizer) -> None:
    """Set all gradients to None; `optimizer.zero_grad()` takes several times as long."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def backward(loss: Tensor, retain_graph: bool = False) -> None:
    """Do what `loss.backward(retain_graph=retain_graph)` does.

    >>> weight = torch.nn.Parameter(torch.tensor(3.0))
    >>> backward(weight**2)
    >>> weight.grad
    tensor(6.)
    """
    if (
        HAS_ENGINE
        and type(loss) is Tensor  # a mistake may have made it a number
        and loss.ndim == 0
        and loss.dtype in REAL
        and getattr(loss.backward, "__func__", None) is BACKWARD  # nor one of this loss alone
        and autograd.backward is PASS
        and not has_torch_function_unary(loss)  # a subclass, or a mode that is on
        and not IN_TRANSFORM()
    ):
        one = torch.ones_like(loss, memory_format=torch.preserve_format)
        RUN((loss,), (one,), retain_graph, False, (), allow_unreachable=True, accumulate_grad=True)
    elif retain_graph:
        loss.backward(retain_graph=True)
    else:
        loss.backward()


def step_by(optimizer: Any) -> None:
    """Do what `optimizer.step()` does."""
    function = type(optimizer).step
    if (
        HAS_HOOKS
        and getattr(function, "__code__", None) is WRAPPER
        and "step" not in vars(optimizer)  # as schedulers of torch put it there
        and getattr(optimizer._optimizer_step_code, "__func__", None) is STEP_CODE
        and not optimizer._optimizer_step_pre_hooks
        and not optimizer._optimizer_step_post_hooks
        and not PRE_HOOKS
        and not POST_HOOKS
        and not IS_PROFILED()
    ):
        function.__wrapped__(optimizer)
    else:
        optimizer.step()


class Gradients:
    """The gradients of an optimizer at a step, as handlers look at them and change them.

    An `Update` has one, and hands it to the handlers of each step by `state.step_under_way`.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> gradients = Gradients(torch.optim.SGD([weight], lr=0.1)).look()
    >>> gradients.scale(2.0)
    >>> gradients.norm()
    tensor(10.)
    """

    __slots__ = ("compiled", "is_plain", "norms", "optimizer", "tensors")

    def __init__(self, optimizer: Optimizer, compiled: CompiledStep | None = None) -> None:
        self.optimizer: Optimizer = optimizer
        self.compiled: CompiledStep | None = compiled
        """The compiled step of the optimizer; None if it is not compiled."""
        self.tensors: Sequence[Tensor] = ()
        """The gradients that were not None at the last look; empty again after the step."""
        self.is_plain: bool = False
        """True if one call handles all gradients together: see `are_plain`."""
        self.norms: dict[float, Tensor] = {}
        """By kind: norms of these gradients, while nobody changes them."""

    def look(self) -> Self:
        """Look the gradients up again, since a handler may have replaced them."""
        found = [
            gradient
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if (gradient := parameter.grad) is not None
        ]
        known = self.tensors
        if not found or len(found) != len(known) or not all(map(is_, found, known)):
            self.tensors = found
            self.is_plain = are_plain(found)
            self.norms.clear()
        return self

    def norm(self, kind: float = 2.0) -> Tensor:
        """The norm of all gradients together, over all ranks that hold them; on their device."""
        if kind not in self.norms:
            find = _norm_of_plain if self.is_plain else norm_of
            self.norms[kind] = find(self.tensors, kind)
        return self.norms[kind]

    def total(self, number: Tensor, kind: float | None, *, judged: bool = False) -> Tensor:
        """The sum of a number over all ranks, in the message of a norm that a handler reads too.

        If the norm is `judged`, the sum is larger where that is not finite.
        """
        if kind is None or not are_spread(self.tensors):
            return torch.as_tensor(ranks.total(number))
        self.norms[kind] = norm(self.tensors, kind, beside=number, judged=judged)
        return number

    def scale(self, factor: Tensor | float) -> None:
        """Scale the gradients in place."""
        self.norms.clear()
        if self.is_plain:
            multiply_each(self.tensors, factor)
            return
        parts = locals_of(self.tensors)
        for place in {each.device for each in parts}:
            here = moved(factor, place) if isinstance(factor, Tensor) else factor
            multiply_each([each for each in parts if each.device == place], here)

    def change_by(self, function: Function) -> Function:
        """A function of parameters that changes their gradients; compiled, if the step is."""
        self.norms.clear()
        return function if self.compiled is None else self.compiled.of(function)


def ready_gradients(
    state: State[Any, Any], only: Optimizer | str | None, kind: str
) -> Gradients | None:
    """The gradients that are ready; None if they are of another optimizer than `only`.

    Raises:
        RuntimeError: The script has fired the event itself, and `only` is None.
        ValueError: `only` is no optimizer, and no name of one among the engine's objects.
    """
    gradients = state.step_under_way.gradients
    if only is not None and not isinstance(only, Optimizer):
        only = _named(state, only, kind)
    if gradients is None:  # an event that the script has fired itself
        if only is None:
            raise RuntimeError(
                f"{kind} does not know whose gradients are ready: make the step with Update, or "
                f"pass optimizer= to {kind}"
            )
        gradients = Gradients(only)
    if only is None or gradients.optimizer is only:
        if gradients.norms and not _norms_hold(state, gradients):
            gradients.norms.clear()
        return gradients.look()
    if any(each is only for each in optimizers_in(gradients.optimizer)):
        gradients.norms.clear()  # a part of these gradients may be changed by its own Gradients
        return Gradients(only, gradients.compiled).look()
    return None


def _norms_hold(state: State[Any, Any], gradients: Gradients) -> bool:
    """True if nobody can have changed the gradients since their norms were computed.

    Ranks ask one another only where a norm is a message; else each rank knows by itself.
    """
    return (
        shares_norms(state) if are_spread(gradients.tensors) else not _silent(state, _seen(state))
    )


def _named(state: State[Any, Any], name: str, kind: str) -> Optimizer:
    known = {n: each for n, each in state.engine.objects.items() if isinstance(each, Optimizer)}
    if name not in known:
        names = ", ".join(map(repr, known)) or "no optimizer among its objects"
        raise ValueError(
            f"{kind}(optimizer={name!r}): needs an optimizer, or the name of one; the engine has "
            f"{names}"
        )
    return known[name]


def shares_norms(state: State[Any, Any]) -> bool:
    """True if, on all ranks, only handlers that tell of their changes see gradients before a step.

    The ranks ask one another once a run, since a rank cannot know when functions or handlers of
    other ranks come or go.

    Raises:
        RuntimeError: A function or handler that does not tell has come since.
    """
    step, seen = state.step_under_way, _seen(state)
    if step.seen_by != seen:
        silent = _silent(state, seen)
        if step.seen_by is None or ranks.world_size() == 1:
            step.shares_norms = not ranks.any_rank(bool(silent))
        elif silent and step.shares_norms:
            raise RuntimeError(
                f"{label(silent[0])}() was attached to an event of the gradients in mid-run, and "
                "handlers of this run share one message for the norm of gradients on several "
                "ranks: the other ranks cannot know that the function may change them. Attach it "
                "before engine.run(...); it can return at once until it is needed"
            )
        step.seen_by = seen
    return step.shares_norms


def _seen(state: State[Any, Any]) -> list[Any]:
    """The functions and methods that see gradients before a step."""
    return [each for event in SEEN for each in state.engine.signal(event).receivers.values()]


def _silent(state: State[Any, Any], seen: list[Any]) -> list[Any]:
    """Those of them that may change gradients and do not tell."""
    handlers = state.engine.handlers
    return [each for each in seen if not _tells(handlers.get(getattr(each, "handler", "")))]


def _tells(handler: object) -> bool:
    """True if it changes gradients by `Gradients` alone: its class says `shares_norm = True`."""
    return bool(vars(type(handler)).get("shares_norm"))  # a derived class may do more


def norm_read_by_all(state: State[Any, Any]) -> float | None:
    """The kind of norm that handlers of all ranks read in this run and may share; else None."""
    engine = state.engine
    shared = (e for name, e in engine.handlers.items() if name not in engine.local and _tells(e))
    kind = next(filter(None, (getattr(each, "norm_type", None) for each in shared)), None)
    return kind if kind is not None and shares_norms(state) else None


def are_plain(gradients: Sequence[Tensor]) -> bool:
    """True for dense tensors of one device and type, which one call handles all together.

    No Python runs for each of them.

    >>> are_plain([torch.ones(2), torch.ones(3)]), are_plain([torch.ones(2), torch.ones(3).half()])
    (True, False)
    """
    kinds = set(map(KIND, gradients))
    if len(kinds) != 1:
        return False
    ((kind, device, _, layout, has_graph),) = kinds
    is_dense = kind is Tensor and layout is torch.strided and not has_graph
    return is_dense and device.type in ("cpu", "cuda")


def norm_of(gradients: Sequence[Tensor], kind: float = 2.0) -> Tensor:
    """The norm of all gradients together, over all ranks that hold them; it stays on the device.

    >>> norm_of([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    if not gradients:
        return torch.zeros(())
    if are_plain(gradients):
        return _norm_of_plain(gradients, kind)
    if are_spread(gradients):
        return norm(gradients, kind)
    # Uncoalesced, a sparse gradient names an element several times, and means their sum.
    dense = [each.coalesce().values() if each.is_sparse else each for each in gradients]
    place = dense[0].device
    are_half = any(each.dtype is torch.float16 for each in dense)
    norms = (_norms_of_half if are_half else norm_of_each)(dense, kind)
    gathered = [moved(each, place) for each in norms]
    return torch.as_tensor(vector_norm(torch.stack(gathered), kind))


def _norm_of_plain(gradients: Sequence[Tensor], kind: float) -> Tensor:
    are_half = gradients[0].dtype is torch.float16
    norms = (_norms_of_half if are_half else norm_of_each)(gradients, kind)  # as torch's clipping
    return torch.as_tensor(vector_norm(torch.stack([*norms]), kind))


def _norms_of_half(gradients: Sequence[Tensor], kind: float) -> list[Tensor]:
    """In float32, since squares overflow float16: clipping by infinity makes gradients zero."""
    kinds = ((each, torch.float32 if each.dtype is torch.float16 else None) for each in gradients)
    return [vector_norm(each, kind, dtype=dtype) for each, dtype in kinds]


def non_finite(gradients: Sequence[Tensor]) -> Tensor:
    """1.0 if this rank's parts of the gradients have NaN or infinity, else 0.0; on their device.

    >>> non_finite([torch.zeros(3), torch.tensor([1.0, float("nan")])])
    tensor(1.)
    """
    # The largest magnitude, unlike a sum of squares, is finite wherever all elements are.
    filled = [each for each in map(local, gradients) if each.numel()]
    if gradients and not filled:
        return torch.zeros((), device=gradients[0].device)
    largest = norm_of(filled, float("inf"))
    return (largest * 0).ne(0).float()  # NaN; two operations, where isfinite() makes four


def has_overflowed(scaler: GradScaler, gradients: Gradients, *, alike: bool) -> bool:
    """True if unscaling found gradients that are not finite, on this rank or on another.

    This is the only time that a step with a scaler waits for the device. Where gradients are alike
    on all ranks, nothing is sent.
    """
    # The scaler checks in its step(), which is too late, since clipping comes before. It has no
    # public way to ask. Later, optimizer.step() is called directly, so there is no second check.
    ask: Any = getattr(scaler, "_found_inf_per_device", None)
    if ask is not None:
        overflow = bool(sum(infinite.item() for infinite in ask(gradients.optimizer).values()))
    else:
        overflow = bool(non_finite(gradients.look().tensors))
    return overflow if alike else ranks.any_rank(overflow)
