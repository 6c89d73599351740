"""What ranks check together: the same objects, the same tables, and which checkpoint is whole."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("checks_on_ranks.py")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ranks_agree_on_what_they_save_and_on_what_is_whole(processes, tmp_path):
    first, second = (json.loads(each.stdout) for each in processes.run_ranks(2, SCRIPT, tmp_path))
    # To choose takes as many messages with one checkpoint that is tried, and two more for another:
    # the path by rank 0, and the answers; then that it is over, with the error or what was chosen.
    for told in (first, second):
        chosen, sent = told["whole"]
        assert (chosen, told["damaged"][0]) == (3, 2)
        more = told["damaged"][1]
        each = {name: more[name] - sent[name] for name in more}
        assert {name for name in each if each[name]} == {"broadcast_object_list", "gather_object"}
        assert each["broadcast_object_list"] == each["gather_object"] == 1  # one was passed over
        assert sent == {"broadcast_object_list": 2, "gather_object": 1, "gather": 1, "broadcast": 1}
    # An error of the disk is no damage: nobody takes an older one, and all say whose disk it was.
    for told in (first, second):
        for error in (told["unread"][0], told["resume"]):
            assert error.startswith("UnreadCheckpoint: the checkpoint"), error
            assert "iteration-0000000003 could not be read: rank-00001." in error
            assert "cannot be read: Input/output error (as rank 1 on " in error
            assert "start again, or move it away" in error
    # What ranks would write must be one checkpoint.
    for kind in ("objects", "types"):
        for told in (first, second):
            assert told[kind].startswith("ValueError: the ranks do not run the same: rank 1 has"), (
                kind
            )
        assert [path.name for path in (tmp_path / kind).glob("*iteration*")] == []
