"""A device that is neither a CPU nor one of CUDA, as torch registers those of other makers."""

import pytest

DESK = """
import torch

class Desk:  # what torch asks of the module of a device, and no more
    drawn = 0
    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 2)
    current_device = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda: "Desk 2000")

    @staticmethod
    def draw():
        Desk.drawn += 1
        return float(Desk.drawn)

    @staticmethod
    def manual_seed_all(seed):
        Desk.drawn = seed

    @staticmethod
    def get_rng_state_all():
        return [torch.tensor([number, Desk.drawn], dtype=torch.uint8) for number in range(2)]

    get_rng_state = get_rng_state_all

    @staticmethod
    def set_rng_state_all(states):
        assert [state[0] for state in states] == [0, 1]
        Desk.drawn = int(states[1][1])

torch.utils.rename_privateuse1_backend("desk")
torch._register_device_module("desk", Desk)
"""


def test_its_random_numbers_go_on_after_a_resume_and_behind_an_evaluation(processes, tmp_path):
    script = f"""{DESK}
from camshaft import Engine, Events
from camshaft.engine.arithmetic import of_machine
from camshaft.handlers import Checkpoint, Validate

def step(state, batch):
    return torch.desk.draw()

def run(folder, epochs):
    torch.manual_seed(3)
    found = []
    engine = Engine(step)
    engine.add(Validate(range(5), name="val"), Checkpoint(folder, resume=True))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: found.append(state.output))
    engine.run(range(4), max_epochs=epochs)
    return found

whole = run({str(tmp_path / "a")!r}, 4)
assert whole == [float(3 + n) for n in range(1, 17)], whole
begun = run({str(tmp_path / "b")!r}, 2)
assert begun + run({str(tmp_path / "b")!r}, 4) == whole
assert of_machine()["device"] == "Desk 2000"
"""
    processes.run(script, fresh=True)


@pytest.mark.slow
def test_the_generator_of_the_device_that_is_seen_now_is_put_back(processes):
    script = f"""{DESK}
from camshaft.engine.state import capture_generators, restore_generators

torch.manual_seed(5)
saved = capture_generators()
assert saved.devices["desk_current"] == 1
put_back = []
Desk.device_count = staticmethod(lambda: 1)
Desk.set_rng_state = staticmethod(put_back.append)
restore_generators(saved)
assert [state.tolist() for state in put_back] == [[1, 5]]
"""
    processes.run(script, fresh=True)


@pytest.mark.slow
def test_a_device_whose_random_numbers_cannot_be_read_is_told_of_once(processes):
    script = f"""{DESK}
from camshaft.engine.state import capture_generators

del Desk.get_rng_state
capture_generators()
capture_generators()
"""
    said = processes.run(script, fresh=True).stderr
    assert said.count("the device 'desk' differ after a resume") == 1


@pytest.mark.slow
def test_of_a_device_that_numbers_no_generators_the_one_is_put_back(processes):
    script = f"""{DESK}
from camshaft.engine.state import capture_generators, restore_generators

read_all, put_back = Desk.get_rng_state_all, []
del Desk.get_rng_state_all
Desk.get_rng_state = staticmethod(lambda: read_all()[1])
Desk.set_rng_state = staticmethod(put_back.append)
restore_generators(capture_generators())
assert [state.tolist() for state in put_back] == [[1, 0]]
"""
    processes.run(script, fresh=True)
