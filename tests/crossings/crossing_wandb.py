"""wandb: folders of runs without a network, read back."""

import json
from pathlib import Path

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import WandB


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
        from wandb.sdk.internal.datastore import DataStore

        wandb.teardown()
        found = {}
        for path in sorted(Path("wandb-files").glob("wandb/offline-run-*/*.wandb")):
            store = DataStore()
            store.open_for_scan(f"{path}")
            while data := store.scan_data():
                record = Record.FromString(data)
                row = {"/".join(e.nested_key): e.value_json for e in record.history.item}
                if "loss" in row:
                    found.setdefault(row["_step"], set()).add(json.loads(row["loss"]))
        return {step: sorted(values) for step, values in sorted(found.items())}

    logger = WandB(
        "digits", directory="wandb-files", when=Events.ITERATION_COMPLETED,
        options={"mode": "offline"},
    )  # fmt: skip
    return trained_by(adam, network, logger, result=rows)
