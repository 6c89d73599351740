"""Messages of ranks: whom they reach, and in which groups."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from camshaft import ranks

HERE = Path(__file__).parent


@pytest.fixture
def many():
    """This process as number 5 of a large group that sends nothing."""
    dist.init_process_group("fake", rank=5, world_size=16_384, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_questions_to_all_ranks_and_to_some_of_them(processes):
    processes.run_ranks(4, HERE / "messages_on_ranks.py")


@pytest.mark.slow
def test_beside_a_group_of_devices_there_is_one_that_sends_over_the_cpu(processes):
    processes.run_ranks(4, HERE / "beside_devices_on_ranks.py")


def test_a_fake_group_answers_as_if_all_ranks_were_alike(many):
    assert (ranks.rank(), ranks.world_size()) == (5, 16_384)
    assert ranks.agreed(0.1) == 0.1
    assert ranks.any_rank(True)
    assert not ranks.any_rank(False)
    assert ranks.total(torch.ones(2)).tolist() == [1, 1]
    assert ranks.gathered("same") == ["same"] * 16_384
    assert ranks.gathered_at_first("same") is None
    tensor = torch.ones(3)
    ranks.share([tensor])
    assert tensor.tolist() == [1, 1, 1]


def test_alone_the_first_rank_has_gathered_its_own():
    assert ranks.gathered_at_first("mine") == ["mine"]


def test_a_letter_of_several_lines_is_refused():
    with pytest.raises(ValueError, match="one line of text"):
        ranks.post("box", "one\ntwo")
