"""The order of a pass's samples over all ranks, and its continuation on another number of ranks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import ranks
from ..state import Dealing, Position

if TYPE_CHECKING:
    from .sources import Source

logger: logging.Logger = logging.getLogger("camshaft")


class Order:
    """The order of the samples of a pass, and how ranks share them.

    This class is the order of data without indices: it is unknown which samples a rank has.
    """

    name = ""
    """The sampler that draws the order, with its settings; the same on all ranks."""
    batch: int | None = None
    """The samples of a batch over all ranks, if known; 0 if the batches differ in size."""
    samples: int | None = None
    """The samples of a pass over all ranks, if known."""
    splits_anywhere = False
    """True if a pass can continue with batches of another size after any sample."""
    shares: dict[int, float] | None = None
    """By the number of a coming batch: its weight in a mean over ranks, if the weight is not 1;
    None if all weights are 1."""

    def __init__(self, *, fits_any_ranks: bool = False) -> None:
        self.ranks: int = ranks.data_world_size()
        self.fits_any_ranks = fits_any_ranks
        """True if a position in this order may be valid on another number of ranks."""

    def dealing(self) -> Dealing:
        """How ranks share the samples, for a checkpoint."""
        return Dealing(self.ranks, self.name, self.batch)

    def __str__(self) -> str:
        """The text that ranks compare: their shared order; empty if unknown."""
        if self.batch is None or self.ranks == 1:
            return ""
        size = f", {self.batch} samples a batch" if self.batch else ""
        return f"{self.name} on {self.ranks} ranks{size}"


def go_on(position: Position, source: Source[Any], consumed: int, epoch: int) -> None:
    """Apply the position of a pass to this data and these ranks; warn of changes.

    A position counts samples over all ranks: with the same batch size over all ranks, the coming
    batches are the same on any number of ranks.

    Raises:
        ValueError: Samples would come twice or never, or in another order.
    """
    was, now, sizes = position.dealing, source.order.dealing(), source.sizes()
    assert was is not None  # in a pass that has begun
    _check_order(was, now, epoch)
    is_known = was.batch is not None and now.batch is not None
    has_other_batches = is_known and was.batch != now.batch
    if was.ranks != now.ranks and consumed:
        _check_ranks(was, now, is_known, source)
    if has_other_batches:
        compared = {"samples"}
    elif was.ranks == now.ranks:
        compared = {*position.sizes}
    else:
        compared = ({"samples"} if is_known else {"samples", "batches"}) if consumed else set()
    _check_sizes({n: size for n, size in position.sizes.items() if n in compared}, sizes, epoch)
    now = replace(now, batches_before=was.batches_before, samples_before=was.samples_before)
    if has_other_batches:
        now = _with_other_batches(was, now, source, consumed, epoch)
    position.dealing, position.sizes = now, sizes


def is_of_other_ranks(position: Position, source: Source[Any]) -> bool:
    """True if another number of ranks read this pass in order, so that it cannot continue here."""
    was = position.dealing
    is_known = was is not None and was.ranks != source.order.ranks
    return is_known and not source.order.fits_any_ranks and position.data_state is None


def _check_order(was: Dealing, now: Dealing, epoch: int) -> None:
    if was.order and now.order and was.order != now.order:
        raise ValueError(
            f"cannot carry on in the middle of epoch {epoch}: the order of its samples was drawn "
            f"by {was.order}, and {now.order} draws another one, so samples would come twice or "
            "never. Pass a loader with the same sampler on any number of ranks, such as "
            "camshaft.loader(...) makes; between two epochs it may change"
        )


def _check_ranks(was: Dealing, now: Dealing, is_known: bool, source: Source[Any]) -> None:
    """Refuse another number of ranks if it is unknown which samples are consumed."""
    what = "the iterator" if source.is_once else f"the {type(source.data).__name__}"
    if not source.order.fits_any_ranks:
        raise _cannot(was.ranks, now.ranks, what)
    if not is_known:
        logger.warning(
            "an epoch goes on on %d ranks instead of %d, and %s does not tell how ranks share its "
            "samples: each goes on behind as many batches, which is right if they have equal parts "
            "of each batch; loader(...), DistributedSampler, SharedOrder and LengthBatches tell it",
            *(now.ranks, was.ranks, now.order or what),
        )


def _with_other_batches(
    was: Dealing, now: Dealing, source: Source[Any], consumed: int, epoch: int
) -> Dealing:
    """Deal the remaining samples out in batches of another size; warn of the changes."""
    if not source.order.splits_anywhere:
        raise ValueError(
            f"cannot carry on in the middle of epoch {epoch} with {now.batch} samples a batch "
            f"instead of {was.batch} over all ranks: {now.order} makes other batches of them. "
            f"Keep {was.batch} to the end of the epoch; between two epochs it may change"
        )
    samples = was.samples_in(consumed) or 0
    if source.order.samples is not None:  # the last batch may have been short
        samples = min(samples, source.order.samples)
    now = replace(now, batches_before=consumed, samples_before=samples)
    whole, there = source.length(), source.length(now)
    logger.warning(
        "epoch %d goes on with %s samples a batch instead of %s over all ranks, each sample once: "
        "%slosses are means over other numbers of samples, and schedules, which count steps or "
        "epochs, meet other samples",
        *(epoch, now.batch, was.batch),
        "" if whole is None else f"it has {there} batches, and later ones {whole}; ",
    )
    return now


def _check_sizes(was: Mapping[str, int], now: Mapping[str, int], epoch: int) -> None:
    """Refuse data whose sizes differ from the sizes at the beginning of the epoch."""
    changed = [
        f"{name} {size} -> {now.get(name)}"
        for name, size in was.items()
        if now.get(name) != size and (name in now or name != "batches")  # it may be unknown yet
    ]
    if changed:
        raise ValueError(
            f"cannot carry on in the middle of epoch {epoch} with other data: "
            f"{', '.join(changed)}. Pass the data that the run was left with; between two "
            "epochs it may change"
        )


def _cannot(was: int, now: int, what: str) -> ValueError:
    return ValueError(
        f"cannot carry on on {now} ranks what {was} ranks have left, other than between two "
        f"epochs: {what} is read in order, and nobody can tell which of its samples the other "
        f"ranks have had. Go on on {was} ranks, save when an epoch is over, or use data with "
        "indices, or a ShardedStream, as camshaft.loader(...) takes; data with a state_dict() "
        "that is the same on all ranks says so by an attribute fits_any_ranks = True"
    )
