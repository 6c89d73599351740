"""A recorder for the CPU: it does what CUDA graphs do, with their limits."""

from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.is_nonzero.default)


class Tape:
    """Records the operations of a part, and does them again with the tensors of then.

    As with a CUDA graph: numbers of Python, sizes and addresses stay those of the recording; a
    recording changes nothing, and leaves NaN where its results will be; what reads a value on the
    host is an error; Python is not called again.
    """

    def __init__(self):
        self.recordings = 0
        self.launches = []
        """The recordings that were launched, by their numbers, in turn."""

    def aside(self):
        return nullcontext()

    def record(self, launch):
        number, self.recordings = self.recordings, self.recordings + 1
        generator = torch.get_rng_state()
        with Recording() as recording:
            made = launch()
        torch.set_rng_state(generator)
        recording.undo()

        def replay():
            self.launches.append(number)
            recording.play()

        return replay, made


class Recording(TorchDispatchMode):
    """The operations of a part, below autograd: those of its backward pass too."""

    def __init__(self):
        super().__init__()
        self.operations = []
        self.before = {}
        """By address: storages that were there before, and their contents."""
        self.new = {}
        """By address: the tensors that operations made."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in READS:
            raise RuntimeError(f"{function} is not permitted while a device records")
        for each in tensors((args, kwargs)):
            storage = each.untyped_storage()
            if storage._cdata not in self.before and storage._cdata not in self.new:
                self.before[storage._cdata] = storage, storage.clone()
        made = function(*args, **kwargs)
        returns = [each.alias_info for each in function._schema.returns]
        is_new = bool(returns) and not any(returns)
        if is_new:
            known = {each.untyped_storage()._cdata for each in tensors((args, kwargs))}
            for each in tensors(made):
                if each.untyped_storage()._cdata not in known:
                    self.new[each.untyped_storage()._cdata] = each.detach()
        kept = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs, made))
        self.operations.append((function, *kept[:2], kept[2] if is_new else None))
        return made

    def undo(self):
        for storage, content in self.before.values():
            storage.copy_(content)
        for each in self.new.values():
            if each.is_floating_point():
                each.fill_(float("nan"))

    def play(self):
        with torch.no_grad():
            for function, args, kwargs, made in self.operations:
                again = function(*args, **kwargs)
                if made is not None:  # in other operations, arguments are what was made
                    for into, value in zip(tensors(made), tensors(again), strict=True):
                        into.copy_(value)


def tensors(nested):
    return [each for each in tree_leaves(nested) if isinstance(each, torch.Tensor)]
