"""What random runs have found, each as the smallest run that showed it."""

import pytest
from random_runs.attempts import check
from random_runs.moments import Kill
from random_runs.plans import Plan

# What is drawn may be what scripts are warned of; torchdata uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")
AT_EACH_BATCH = "Checkpoint(place, when=ITERATION_COMPLETED, keep=latest(2), resume=True)"
AT_EACH_EPOCH = "Checkpoint(place, when=EPOCH_COMPLETED, keep=latest(2), resume=True)"
AT_THE_END = "Checkpoint(place, when=EPOCH_COMPLETED(last=True), keep=latest(2), resume=True)"
SHUFFLED = "DataLoader(Pairs(8), 2, sampler=Shuffled(8))"


def left(kills, data, *handlers, engine="recurrent(1)", **limits):
    limits = ", ".join(f"{name}={value}" for name, value in limits.items())
    story = check(Plan(data, engine, handlers, limits), kills)
    assert story.kills.total() - story.kills["inside a save"] == len(kills)
    return story


def slow_but(first, *others):
    """Values of a parameter, of which the others show more of what the first one shows."""
    second, *rest = others
    return [
        first,
        pytest.param(second, marks=pytest.mark.slow),
        *(pytest.param(each, marks=pytest.mark.soak) for each in rest),
    ]


@pytest.mark.parametrize("length", slow_but(5, 7, 12, 17, 24))
@pytest.mark.parametrize(
    "data",
    ["Cursor(12)", "StatefulDataLoader(Pairs(24), 2, shuffle=True)"],
    ids=["own", "torchdata"],
)
def test_data_of_its_own_state_is_where_it_was_between_the_two_saves_of_an_epochs_end(data, length):
    when = f"ITERATION_COMPLETED(every={length}) | EPOCH_COMPLETED"
    handlers = (f"Checkpoint(place, when={when}, resume=True)", "Validate(batches(2))")
    left([Kill("EPOCH_COMPLETED", 0)], data, *handlers, max_epochs=3, epoch_length=length)


@pytest.mark.quick(data=5)
@pytest.mark.parametrize(
    "data",
    [
        *("batches(4)", SHUFFLED, "Cursor(4)", "Fresh(4)", "iter(batches(9))"),
        *("DataLoader(OwnNoise(8, 'numpy'), 2)", "DataLoader(Buffered(8), 2)"),
        *("DataLoader(Pairs(8), sampler=ByEpoch(8))", "StatefulDataLoader(Pairs(8), shuffle=True)"),
    ],
)
@pytest.mark.parametrize("limit", slow_but("max_iterations", "max_epochs"))
def test_a_finished_run_that_is_started_again_leaves_everything_as_it_was(data, limit):
    draws = ("Draw(COMPLETED, 'torch')", "Draw(ITERATION_COMPLETED, 'numpy')")
    left([], data, *draws, AT_THE_END, **{limit: 2})
    left(
        [],
        data,
        *draws,
        "Checkpoint(place, when=EPOCH_COMPLETED | COMPLETED, resume=True)",
        **{limit: 2},
    )


def test_the_history_of_a_finished_run_is_there_when_it_is_started_again():
    left([], "batches(4)", "History(ITERATION_COMPLETED)", AT_THE_END, max_iterations=3)


@pytest.mark.parametrize(
    "limits",
    slow_but({"max_iterations": 6}, {"max_iterations": 8}, {"max_epochs": 2}, {"max_steps": 7}),
    ids=str,
)
@pytest.mark.parametrize("event", ["EPOCH_COMPLETED", "COMPLETED"])
def test_a_run_killed_after_its_last_batch_still_completes_its_epoch_and_itself(limits, event):
    handlers = (
        "Draw(COMPLETED | EPOCH_COMPLETED)",
        "SWA(when=EPOCH_COMPLETED(every=2, last=True))",
    )
    left([Kill(event, 999)], SHUFFLED, *handlers, AT_EACH_BATCH, **limits)


@pytest.mark.parametrize("at", [3, 4, 8])
def test_a_run_that_was_stopped_for_good_and_killed_then_still_completes(at):
    stop = (f"Stop(ITERATION_COMPLETED(at={at}))", "Draw(COMPLETED | EPOCH_COMPLETED)")
    left([Kill("COMPLETED", 0)], SHUFFLED, *stop, AT_EACH_BATCH, max_epochs=3)


@pytest.mark.quick(save=1)
@pytest.mark.parametrize("data", ["iter(batches(12))", "(each for each in batches(12))"])
@pytest.mark.parametrize("save", [AT_EACH_BATCH, AT_EACH_EPOCH])
def test_an_iterator_that_several_passes_read_on_is_read_again_to_its_place(data, save):
    kill = [Kill("ITERATION_STARTED", 800)]
    left(kill, data, save, max_epochs=4, max_batches=2)
    left(kill, data, "Stop(ITERATION_COMPLETED(every=3), 'epoch')", save, max_epochs=4)


def test_the_counts_of_events_stay_in_their_order_in_the_rows():
    """An event that the new process does not fire was first, and the others came after it."""
    handlers = (
        "Tell(STEP_COMPLETED(at=1))",
        "JSONLines(place / 'rows.jsonl', when=STEP_COMPLETED)",
    )
    kill = [Kill("ITERATION_STARTED", 800)]
    left(kill, "batches(12)", *handlers, AT_EACH_BATCH, engine="two(1, 3, 1)", max_epochs=1)


def test_a_used_up_iterator_begins_no_other_pass_after_an_interruption():
    handlers = (AT_EACH_EPOCH, "Save(COMPLETED(at=6))")
    left(
        [Kill("interrupt", 700)], "iter(batches(4))", *handlers, epoch_length=10, max_iterations=25
    )


@pytest.mark.parametrize("part", slow_but(300, 100, 200, 400, 500, 600))
@pytest.mark.parametrize(
    "data", [SHUFFLED, "Cursor(5)", "Fresh(5)", "StatefulDataLoader(Pairs(9), 2)"]
)
def test_an_epoch_that_was_read_to_its_end_is_not_begun_again_after_an_interruption(data, part):
    """The windows of two updates that take turns are open until then."""
    left([Kill("interrupt", part)], data, AT_EACH_BATCH, engine="two(3, 3, 3)", max_iterations=9)


def test_data_of_its_own_state_stay_at_the_end_of_an_epoch_that_another_process_has_read():
    save = "Checkpoint(place, when=ITERATION_COMPLETED | EPOCH_COMPLETED, resume=True)"
    data = "StatefulDataLoader(Pairs(7), 3)"
    left([Kill("interrupt", 871)], data, save, engine="two(2, 2, 2)", max_epochs=3)


def test_data_of_its_own_state_that_draws_as_it_begins_draws_once_between_two_epochs():
    left(
        [Kill("EPOCH_STARTED", 600)],
        "Cursor(5)",
        AT_EACH_EPOCH,
        "Draw(EPOCH_STARTED)",
        max_epochs=3,
    )


def test_a_running_mean_of_torchmetrics_is_the_same_after_a_resume():
    third = "when=ITERATION_COMPLETED(at=3), keep=latest(3)"
    handlers = (
        f"Checkpoint(place, {third}, resume=True, background=False)",
        "SpikeGuard('skip', deviations=0.5, window=3)",
        "History(STEP_COMPLETED)",
        "Metrics({'measured': RunningMean(3, nan_strategy='ignore')}, select=loss_of)",
    )
    data, limits = "DataLoader(Stream(14), 3)", {"epoch_length": 13, "max_epochs": 3}
    left([Kill("COMPLETED", 208)], data, *handlers, engine="recurrent(2)", **limits)


def test_a_used_up_generator_ends_in_the_same_epoch_after_two_interruptions():
    each = "when=ITERATION_COMPLETED | EPOCH_COMPLETED"
    save = f"Checkpoint(place, {each}, resume=True, background=False)"
    kills = [Kill("interrupt", 133), Kill("interrupt", 401)]
    handlers = ("Stop(ITERATION_COMPLETED(at=1), 'epoch')", save, "Tell(ITERATION_COMPLETED)")
    data = "(each for each in batches(3))"
    left(kills, data, *handlers, engine="two(2, 2, 2)", max_epochs=3)


def test_a_checkpoint_that_takes_the_place_of_one_of_before_a_kill_has_the_reasons_of_both():
    save = "Checkpoint(place, when=ITERATION_COMPLETED(every=4), resume=True, background=False)"
    handlers = (save, "Validate(batches(2))", "Save(EPOCH_COMPLETED)")
    story = left([Kill("EPOCH_COMPLETED", 0)], "batches(4)", *handlers, max_epochs=1)
    reason = story.kept["iteration-0000000004"]["reason"]
    assert reason == "Events.ITERATION_COMPLETED(every=4), wanted"


def test_a_run_that_is_interrupted_before_its_first_batch_has_the_seed_of_its_first_pass():
    every = "Checkpoint(place, when=ITERATION_COMPLETED, resume=True, background=False)"
    handlers = (every, "Draw(EPOCH_STARTED, 'torch')")
    plan = Plan(data="Fresh(2)", engine="supervised()", handlers=handlers, limits="max_epochs=2")
    for part in range(0, 300, 30):
        check(plan, [Kill(at="interrupt", part=part)])
