"""clearml: sessions without a server, read back."""

import json
import os
from pathlib import Path

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import ClearML


@exact(
    "clearml",
    "Logs",
    'engine.add(ClearML("project", offline=True))',
    note="Each process writes a session; a row that is in two of them is the same.",
    fresh=True,
)
def test_sessions(folder):
    """ClearML offline, with one session for each process."""
    os.environ["CLEARML_CACHE_DIR"] = f"{folder}/cache"
    os.environ["CLEARML_CONFIG_FILE"] = f"{folder}/clearml.conf"

    def rows():
        found = {}
        for path in Path(folder, "cache", "offline").glob("offline-*/metrics.jsonl"):
            for line in path.read_text().splitlines():
                for event in json.loads(line):
                    if event.get("metric") == "loss":
                        found.setdefault(event["iter"], set()).add(event["value"])
        return {step: sorted(values) for step, values in sorted(found.items())}

    options = {"auto_connect_frameworks": {"detect_repository": False}}
    logger = ClearML("digits", offline=True, when=Events.ITERATION_COMPLETED, options=options)
    return trained_by(adam, network, logger, result=rows)
