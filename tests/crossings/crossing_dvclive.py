"""dvclive: files of rows, by a tracker of your own."""

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import Logger

METRICS = "dvclive/plots/metrics"


@exact(
    "dvclive",
    "Logs",
    "engine.add(Logger(Board, background=False)), with Board as in this test",
    note="Board skips the rows that dvclive has already.",
)
def test_board(folder):
    """Live with resume=True; rows that it has from before a kill are not written again."""
    import csv
    import os

    os.environ["DVC_NO_ANALYTICS"] = "true"
    from dvclive import Live

    class Board:
        def __init__(self, start):
            self.live = Live("dvclive", resume=True, dvcyaml=False, save_dvc_exp=False)
            names = os.listdir(METRICS) if os.path.isdir(METRICS) else []
            files = map(self.read, names)
            self.last = max((int(row["step"]) for rows in files for row in rows), default=0)

        def read(self, name):
            with open(f"{METRICS}/{name}") as file:
                return [*csv.DictReader(file, delimiter="\t")]

        def write(self, row):
            self.live.step = row.iteration
            if row.iteration > self.last:
                for name, value in row.metrics.items():
                    self.live.log_metric(name, value)

        def sync(self):
            pass

        def close(self):
            self.live.end()

    def rows():
        with open(f"{METRICS}/loss.tsv") as file:
            return [(row["step"], row["loss"]) for row in csv.DictReader(file, delimiter="\t")]

    logger = Logger(Board, when=Events.ITERATION_COMPLETED, background=False)
    return trained_by(adam, network, logger, result=rows)
