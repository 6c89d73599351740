"""The control data of a run for the loop, data, checkpoint and updates, and its position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..events import EventEnum
from .generators import Rng

if TYPE_CHECKING:
    from ..changes import Changes
    from ..checks import GradientCheck
    from ..engine import Engine
    from ..moments import Moments
    from ..ranks import Meetings
    from ..update import Gradients, Update
    from .state import State

SAVED = ("in_epoch", "epoch_began", "epoch_stopped")

SAVED_AS = {
    "rng_when_stored": "left",
    "data_state": "told",
    "data_states": "told_by_ranks",
    "is_complete": "used_up",
}
"""The names in checkpoints of the fields that are called otherwise here."""
# Who loads a checkpoint of other ranks gathers their `data_state` in it as "told_by_ranks".
UNSAVED = ("data_states", "is_loaded", "iterator", "is_once")


class End(IntEnum):
    """How a run ends. Of several reasons the greatest counts, and of equal ones the first."""

    PAUSED = 1
    """It is interrupted: the script that is started again completes the epoch and the run."""
    LIMIT = 2
    """It has reached a limit; a higher one carries it on."""
    FINAL = 3
    """A handler has ended it for good, or its data has ended and cannot begin again."""


class Counts(dict[EventEnum, int]):
    """How often events were fired; a loaded count with an ambiguous name waits for its event."""

    def __init__(self) -> None:
        super().__init__()
        self._loaded: dict[str, int] = {}

    def __missing__(self, event: EventEnum) -> int:
        if not isinstance(event, EventEnum):
            raise TypeError(
                f"state.fire({event!r}): needs an event of your own, a member of a class derived "
                "from EventEnum"
            )
        self[event] = count = self._loaded.get(repr(event), 0) if self._loaded else 0
        return count

    def __contains__(self, event: object) -> bool:
        return super().__contains__(event) or repr(event) in self._loaded

    def get(self, event: EventEnum, default: Any = None, /) -> Any:
        """The count of an event, or `default` if it was never fired."""
        known = event in self  # dict.get would ignore loaded counts
        return self[event] if known else default

    def state_dict(self) -> dict[str, int]:
        """The counts, by the events' names, in the order in which the run met the events."""
        return self._loaded | {repr(event): count for event, count in self.items()}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        """Continue from saved counts."""
        self.clear()
        self._loaded = dict(saved)
        classes: dict[str, list[type[EventEnum]]] = {}
        for each in _classes(EventEnum):
            classes.setdefault(each.__name__, []).append(each)
        for name, count in saved.items():
            kind, _, member = name.rpartition(".")
            owners = [each for each in classes.get(kind, ()) if member in each.__members__]
            if len(owners) == 1:
                self[owners[0][member]] = count


@dataclass(slots=True)
class Dealing:
    """How ranks share the samples of a pass, as far as this is known."""

    ranks: int
    """How many ranks share them."""
    order: str = ""
    """The sampler that draws the order, with its settings; the same on all ranks."""
    batch: int | None = None
    """The samples of a batch over all ranks; None if not known, 0 if batches differ in size."""
    batches_before: int = 0
    """The number of earlier batches of this pass that had another size."""
    samples_before: int = 0
    """The number of samples in these earlier batches, over all ranks."""

    def samples_in(self, batches: int) -> int | None:
        """The number of samples, over all ranks, in the first `batches` batches of the pass."""
        if not self.batch:
            return None
        return self.samples_before + (batches - self.batches_before) * self.batch


@dataclass(slots=True)
class Position:
    """A pass over the data, and the random generators that drew its order."""

    number: int
    """Passes begun so far, 0 before the first; if the data has epochs of its own, the epoch."""
    began: int
    """The run's iteration before the first batch of this pass."""
    rng: Rng
    """The generator states just before the pass began: its order is drawn from them."""
    seed: int
    """The run's seed for the workers' random numbers, the same in all passes."""
    rng_when_stored: Rng | None = None
    """The generator states when this was stored, at a save or as the run ended; None before."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The batches, samples, ... of this pass, as far as they are known."""
    data_state: Any = None
    """The data's own `state_dict` at that time, if it has one."""
    data_states: list[Any] | None = None
    """The same of all ranks, if another number of them has stored it; in no checkpoint."""
    is_complete: bool = False
    """True if this pass was read to its end."""
    at_end: bool = False
    """True if this was stored after the last batch of a pass, before its iterator ended."""
    dealing: Dealing | None = None
    """How ranks share the samples; None before the first pass."""
    mark: str | None = None
    """A checksum of what the run consumed, if a resumed run draws or reads that again."""
    first_batch: str | None = None
    """A checksum of the values of the pass's first batch, if its indices alone are in `mark`."""
    usual: int | None = None
    """The batches of each earlier pass that this run read whole; 0 if they differed."""
    parts: dict[str, Any] = field(default_factory=dict)
    """By name: the states, before the pass began, of objects that the data draws from."""
    is_once: bool = False
    """True if the data is an iterator that cannot begin again: epochs share its only pass."""
    is_loaded: bool = False
    """True until a process that loaded this position has opened the data; in no checkpoint."""
    iterator: object = None
    """The data, if it is an iterator: in this process it is read from where it stands."""

    def state_dict(self) -> dict[str, Any]:
        """The position as plain values and tensors, without the iterator itself."""
        own = [each.name for each in fields(self) if each.name not in UNSAVED]
        saved = {SAVED_AS.get(name, name): getattr(self, name) for name in own}
        return saved | {
            "rng": self.rng.state_dict(),
            "left": None if self.rng_when_stored is None else self.rng_when_stored.state_dict(),
            "dealing": None if self.dealing is None else asdict(self.dealing),
            "read_from": self.began if self.is_once else None,
        }

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Position:
        """The position that `state_dict` returned."""
        own = dict(saved)
        for name, key in SAVED_AS.items():
            if key in own:
                own[name] = own.pop(key)
        if (read_from := own.pop("read_from")) is not None:
            own["began"] = read_from  # earlier releases began a pass of an iterator in each epoch
        own["rng"] = Rng(**saved["rng"])
        own["rng_when_stored"] = None if saved["left"] is None else Rng(**saved["left"])
        own["dealing"] = None if saved["dealing"] is None else Dealing(**saved["dealing"])
        return cls(**own, is_once=read_from is not None, is_loaded=True)


@dataclass(slots=True, eq=False)
class RunControl:
    """A run's place in its epoch, the requests to it, and its engine."""

    in_epoch: bool = False
    """True between EPOCH_STARTED and the end of the epoch's data."""
    epoch_began: int = 0
    """The last iteration before this epoch."""
    epoch_stopped: bool = False
    """True once `stop_epoch` was called in this epoch."""
    end: End | None = None
    """How the run was asked to end: also at a limit PAUSED, where `State.end` is LIMIT."""
    leaves: bool = False
    """True once evaluations are left to the resumed run, since this one has to stop soon."""
    left_at: dict[str, str] = field(default_factory=dict)
    """By event of a moment that was left in its middle: the handler that a resumed run calls first;
    events that this handler fires have entries of their own. In checkpoints it is `left`."""
    has_requests: bool = False
    """True if a save or a stop waits for the next commit point."""
    saves: list[tuple[str, object | None]] = field(default_factory=list)
    """Saves asked for since the last commit point: the reason, and the handler that writes."""
    counts: Counts = field(default_factory=Counts)
    """How often each event that counts its own occurrences was fired."""
    error: BaseException | None = None
    """The exception that ends the run."""
    completed: Rng | None = None
    """The generator states after COMPLETED; None before."""
    changes: dict[str, Any] = field(default_factory=dict)
    """What the run has changed of what its script made, as of the last save."""
    noted: Changes | None = None
    """Compares what the script has made with what the run makes of it, if something saves it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """By name: the settings of optimizers and schedules in the script that began this run."""
    position: Position | None = None
    """The position in the data."""
    data: object = None
    """The data that the run is reading; None at other times."""
    max_batches: int | None = None
    """The limit of a trial run; evaluations and runs inside it inherit this limit."""
    epoch_length: int | None = None
    """The batches of a virtual epoch, as `run` was told."""
    outer: State[Any, Any] | None = None
    """The state of the run that contains this one."""
    engine: Engine[Any, Any] | None = None
    """The engine, while it runs."""
    moments: Moments | None = None
    """The moments of this run by event, while it runs."""
    meetings: Meetings | None = None
    """Where ranks meet that do what only some of them may do; None if none need keep in step."""
    at_commit: Callable[[State[Any, Any], Callable[[], None]], None] | None = None
    """Called once at the next commit point, before a save; its second argument stores the states
    of the random generators, so that the state of the run is whole."""
    writes: bool = True
    """False while another process writes the files of this run, as one of its replicas does."""
    has_told_non_finite: bool = False
    """True after the warning of a loss that is not finite."""
    resumed_from: str | None = None
    """The path of the checkpoint that this process has loaded; not saved."""
    began: float = 0.0
    """When `run` was called, by `time.monotonic`."""

    @property
    def has_left(self) -> bool:
        """True if this run has left a moment, and ends here."""
        return self.leaves and bool(self.left_at)

    def state_dict(self) -> dict[str, Any]:
        """The part that a checkpoint holds, as plain values."""
        return {
            **{name: getattr(self, name) for name in SAVED},
            "resumable": self.end is not End.FINAL,
            "counts": self.counts.state_dict(),
            "position": None if self.position is None else self.position.state_dict(),
            "settings": dict(self.settings),
            "changes": dict(self.changes),
            "completed": None if self.completed is None else self.completed.state_dict(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        for name in SAVED:
            setattr(self, name, saved[name])
        self.end = None if saved["resumable"] else End.FINAL
        self.has_requests = self.epoch_stopped
        self.counts.load_state_dict(saved["counts"])
        self.position = None if saved["position"] is None else Position.of(saved["position"])
        self.settings = dict(saved["settings"])
        self.changes = dict(saved.get("changes", {}))
        self.completed = None if saved["completed"] is None else Rng(**saved["completed"])


def _classes(kind: type[EventEnum]) -> Iterator[type[EventEnum]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _classes(derived)


@dataclass(slots=True, eq=False)
class StepUnderWay:
    """Data that the updates of a run write, and the handlers of their events read."""

    gradients: Gradients | None = None
    """The gradients that are ready and their optimizer; after the step, only the optimizer."""
    is_skipped: bool | None = None
    """True if a handler asked to discard the gradients; None outside BACKWARD_COMPLETED."""
    skipped_at: int = -1
    """The last iteration in which a step was skipped."""
    windows: dict[Update, Any] = field(default_factory=dict)
    """The open accumulation windows, by `Update`; only the `Update` reads its window. While there
    are any, the gradients so far are only part of a step."""
    are_alike: dict[Any, bool] = field(default_factory=dict)
    """By optimizer: whether all ranks have the same gradients, if this was checked."""
    check: GradientCheck | None = None
    """The check for code that changes gradients; None after a run's first iterations."""
    seen_by: list[Any] | None = None
    """What sees gradients before a step, as the ranks last compared it."""
    shares_norms: bool = False
    """True if all of that tells when it changes gradients, on all ranks."""
    met: set[Update] = field(default_factory=set)
    """The updates that began in this run."""

    def close(self, state: State[Any, Any]) -> None:
        """Perform the steps of the open windows, because no batch follows."""
        for update in list(self.windows):
            update.close(state)

    def overlaps(self, commit_points: int) -> bool:
        """True if several windows are open, for more commit points than their sizes add up to."""
        return len(self.windows) > 1 and commit_points > sum(
            each.accumulate for each in self.windows
        )
