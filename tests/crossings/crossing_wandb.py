"""wandb: folders of runs without a network, read back."""

import json
import struct
from pathlib import Path

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import WandB


def messages(data):
    """The messages of a file of W&B: behind its head, in blocks, each with a head of its own."""
    at, message = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield message
            message = b""


@exact(
    "wandb",
    "Logs",
    'engine.add(WandB("project", directory="runs", options={"mode": "offline"}))',
    note="Each process writes a folder; W&B keeps each step once.",
    fresh=True,
)
def test_folders(folder):
    """WandB offline: the folders of all processes hold each step of the run, with one value."""

    def rows():
        import wandb
        from wandb.proto.wandb_internal_pb2 import Record

        wandb.teardown()
        found = {}
        for path in sorted(Path("wandb-files").glob("wandb/offline-run-*/*.wandb")):
            for message in messages(path.read_bytes()):
                record = Record.FromString(message)
                row = {"/".join(e.nested_key): e.value_json for e in record.history.item}
                if "loss" in row:
                    found.setdefault(row["_step"], set()).add(json.loads(row["loss"]))
        return {step: sorted(values) for step, values in sorted(found.items())}

    logger = WandB(
        "digits", directory="wandb-files", when=Events.ITERATION_COMPLETED,
        options={"mode": "offline"},
    )  # fmt: skip
    return trained_by(adam, network, logger, result=rows)
