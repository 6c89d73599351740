"""Torch's backward pass and optimizer step, without the Python around them that has nothing to do.

Of a small step this Python takes a tenth. It looks for subclasses of tensors, for hooks and for
profilers; here they are looked for at less cost, and where there may be one, or where torch is
another than expected, its public call is made. The same kernels run either way.

An `ExecutionTraceObserver` without a profiler cannot be asked for: its trace has all kernels of an
optimizer's step, and not the step's name.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, autograd
from torch.autograd import graph
from torch.optim import Optimizer
from torch.overrides import has_torch_function_unary

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
HAS_ENGINE = None not in (RUN, IN_TRANSFORM)
STEP_CODE: Any = getattr(Optimizer, "_optimizer_step_code", None)  # does nothing, after a step
HAS_HOOKS = None not in (IS_PROFILED, PRE_HOOKS, POST_HOOKS, STEP_CODE)


def _wrapper() -> Any:
    """The code of what torch wraps the `step` of each class of optimizers in."""

    def step(optimizer: Optimizer) -> None:
        pass

    wrapped = Optimizer.profile_hook_step(step)
    return wrapped.__code__ if isinstance(wrapped, FunctionType) else None


WRAPPER = _wrapper()


def backward(loss: Tensor) -> None:
    """Do what `loss.backward()` does.

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
        RUN((loss,), (one,), False, False, (), allow_unreachable=True, accumulate_grad=True)
    else:
        loss.backward()


def step(optimizer: Any) -> None:
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
