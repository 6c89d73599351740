"""Run on one, two or four ranks: train until a step, or carry on and compare with one process."""

import logging
import sys
from pathlib import Path

import pytest
from models import build, check, whole

from camshaft import Events, ranks
from camshaft.handlers import EMA, SWA, Checkpoint, RestoreBest, Validate

PLACE, FORM, EPOCHS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def run(form, place, epochs):
    """Copies of weights of every kind, and their losses."""
    engine, data, validation = build(form, EMA(0.9), SWA(), lr=0.35)
    engine.add(
        Validate(validation, name="val"),
        Validate(validation, name="ema", weights="ema"),
        RestoreBest("ema/loss", weights="ema"),
        Checkpoint(place, resume=True),
    )
    rows = []
    engine.on(Events.EPOCH_COMPLETED)(lambda s: rows.append(float(s.metrics["ema/loss"])))
    engine.run(data, max_epochs=epochs)
    return engine, rows


said: list[str] = []
told = logging.Handler()
told.emit = lambda record: said.append(record.getMessage())
logging.getLogger("camshaft").addHandler(told)

with ranks.process_group("gloo"):
    engine, rows = run(FORM, PLACE, EPOCHS)
    if EPOCHS == 6:
        other = PLACE / f"alone-{ranks.rank()}"
        with ranks.alone():
            wanted, wanted_rows = run("plain", other, 6)
        assert rows == pytest.approx(wanted_rows[-len(rows) :], rel=0, abs=1e-12)
        assert len(rows) < 6, "it began anew"
        for name in ("model", "ema", "swa", "best"):
            check(whole(engine.objects[name]), whole(wanted.objects[name]))
    assert not [each for each in said if ".layers: " in each], said
    print(f"rank {ranks.rank()}, {FORM}: {len(rows)} epochs", flush=True)
