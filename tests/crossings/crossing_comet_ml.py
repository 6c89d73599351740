"""comet_ml: archives of runs without a network, read back."""

import json
import zipfile
from pathlib import Path

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import Comet


@exact(
    "comet_ml",
    "Logs",
    'engine.add(Comet("project", directory="runs", options={"online": False}))',
    note="Each process writes an archive; a row that is in two of them is the same.",
    fresh=True,
)
def test_archives(folder):
    """Comet offline, with one archive for each process that ended well."""

    def rows():
        found = {}
        for path in Path("comet").glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                # A killed process leaves an archive with nothing in it.
                text = archive.read("messages.json") if archive.namelist() else b""
                for line in text.splitlines():
                    metric = json.loads(line)["payload"].get("metric") or {"metricName": ""}
                    if metric["metricName"] == "loss":
                        found.setdefault(metric["step"], set()).add(metric["metricValue"])
        return {step: sorted(values) for step, values in sorted(found.items())}

    logger = Comet(
        "digits", directory="comet", when=Events.ITERATION_COMPLETED, options={"online": False}
    )
    return trained_by(adam, network, logger, result=rows)
