"""What a LightningModule adds to a checkpoint, and takes back from it."""

from __future__ import annotations

from typing import Any


class Extras:
    """Calls `on_save_checkpoint` and `on_load_checkpoint` of a module."""

    def __init__(self, module: Any) -> None:
        # Not the module itself, which evaluations would look for among attributes.
        self._save, self._load = module.on_save_checkpoint, module.on_load_checkpoint

    def state_dict(self) -> dict[str, Any]:
        """What the module adds."""
        added = _Added()
        self._save(added)
        return dict(added)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Give it back to the module."""
        self._load(_Added(saved))


class _Added(dict[str, Any]):
    """Holds what a module adds, and nothing of what Lightning has in its checkpoints."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(
            f"on_save_checkpoint and on_load_checkpoint get what the module adds itself, and "
            f"{name!r} is not there: weights, optimizers and counters are saved by Checkpoint"
        )
