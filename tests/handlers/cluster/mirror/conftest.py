"""What the tests of the mirror share: a directory that checkpoints are saved to, and a store."""

import pytest
import torch

from camshaft import supervised
from camshaft.handlers import Checkpoint, Mirror, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot
from camshaft.handlers.cluster.mirror.listing import DRAFT
from camshaft.handlers.cluster.mirror.logs import LOGS
from camshaft.handlers.cluster.mirror.store import Store
from camshaft.handlers.cluster.mirror.uploader import Uploader
from camshaft.handlers.files import remove_path

from .faulty import NOTHING, Faulty


@pytest.fixture
def store(tmp_path):
    """A store whose file system fails when it is told to."""
    yield Store(f"faulty://{tmp_path}/store", {"auto_mkdir": True})
    Faulty.before, Faulty.tear, Faulty.listing = NOTHING, lambda path, content: content, None


@pytest.fixture
def run(tmp_path):
    """The directory of a run."""
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def fresh(tmp_path):
    """The directory of a new machine."""
    return tmp_path / "fresh" / "run"


def iterations(directory):
    """The iterations of the checkpoints in a directory, or in a store on the disk."""
    return [saved.manifest.iteration for saved in checkpoints(directory)]


def save(directory, iteration, keep=None, metrics=(), value=0.0):
    """Save a small checkpoint as a run does, and drop what no claim keeps."""
    keep = keep or latest(2)
    tensors = {"model": {"weight": torch.full((3,), value)}, "train": {}}
    manifest = Manifest(iteration=iteration, keep=repr(keep), metrics=dict(metrics))
    files = Snapshot({"state.json": {"objects": {}}}, tensors).streamed()
    home = Directory(directory)
    saved = home.write(files, manifest)
    for each in home.hide_unclaimed(keep):
        remove_path(each)
    return saved


def begun(store, directory):
    """An uploader, as a new process has it."""
    uploader = Uploader(store, directory, list(LOGS))
    uploader.begin()
    return uploader


def copy_all(store, directory):
    """Copy all that is new, as a process does."""
    uploader = begun(store, directory)
    while uploader.step():
        pass
    return uploader


def check_whole(store, contents):
    """Each checkpoint that a store shows is whole, and as it was saved."""
    for saved in checkpoints(store):
        found = content_of(saved.path)
        found.pop(DRAFT, None)  # it is about to be removed
        assert found == contents[saved.manifest.to_json()]


def content_of(folder):
    """The bytes of all files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def engine_of(directory, address, *handlers, first=True, keep=None, **options):
    """An engine that saves to a directory, beside a mirror."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    saves = Checkpoint(directory, keep=keep or latest(2), resume=True)
    both = [Mirror(str(address), interval=0.05, **options), saves]
    engine.add(*(both if first else both[::-1]), *handlers)
    return engine


@pytest.fixture
def data():
    """Three batches of 8, in a random order."""
    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    pairs = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    return torch.utils.data.DataLoader(pairs, batch_size=8, shuffle=True)
