"""swanlab: folders of runs without a network, read back by its own reader."""

from pathlib import Path

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import SwanLab


@exact(
    "swanlab",
    "Logs",
    'engine.add(SwanLab("project", directory="runs", options={"mode": "offline"}))',
    note="Each process writes a folder; SwanLab keeps one value for each step.",
    fresh=True,
)
def test_folders(folder):
    """SwanLab offline: the folders of all processes hold each step of the run, with one value."""

    def rows():
        from swanlab.proto.swanlab.record.v1.record_pb2 import Record
        from swanlab.sdk.internal.core_python.store import DataStoreReader

        found = {}
        for path in sorted(Path("swan").glob("run-*/*.swanlab")):
            if path.stat().st_size < 7:  # of a process that was killed before it wrote its head
                continue
            reader = DataStoreReader()
            reader.open(path)
            for message in reader:
                scalar = Record.FromString(message).scalar
                if scalar.key == "loss":
                    found.setdefault(scalar.step, set()).add(scalar.value.number)
            reader.close()
        return {step: sorted(values) for step, values in sorted(found.items())}

    logger = SwanLab(
        "digits", directory="swan", when=Events.ITERATION_COMPLETED, options={"mode": "offline"}
    )
    return trained_by(adam, network, logger, result=rows)
