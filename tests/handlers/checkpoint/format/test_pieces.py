"""Which pieces each rank holds, found by steps that grow with the pieces."""

from camshaft.handlers.checkpoint.format import Grid, Pieces


class Counted(int):
    """A rank that counts how often it is looked at."""

    looks = 0

    def __eq__(self, other):
        Counted.looks += 1
        return int(self) == int(other)

    def __hash__(self):
        Counted.looks += 1
        return int(self)


def looks_at_owners(ranks, tensors):
    """How often owners are looked at until what each of all ranks holds is known."""
    owners = tuple(map(Counted, range(ranks)))
    grid = Grid("torch.float32", (tuple(range(ranks + 1)), (0, 2)), owners)
    Counted.looks = 0
    pieces = Pieces({"model": {str(number): grid for number in range(tensors)}})
    held = [pieces.infos(rank) for rank in pieces.ranks]
    assert [len(each) for each in held] == [tensors] * ranks
    assert held[3]["model/0[3]"].shape == (1, 2)
    return Counted.looks


def test_the_pieces_of_all_ranks_take_steps_that_grow_with_the_ranks_and_not_with_their_square():
    few, many = looks_at_owners(100, 20), looks_at_owners(400, 20)
    assert many <= 4.1 * few
    assert looks_at_owners(100, 200) == few  # a list of owners is looked at once for all tensors
