"""Rows, media, hyper-parameters and graphs, read back by TensorBoard's reader and Pillow."""

import io
import math
import sys

import numpy
import PIL.Image
import pytest
import torch
from google.protobuf import text_format
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.projector import projector_config_pb2
from tensorboard.util.tensor_util import make_ndarray

from camshaft import Engine, Events, supervised
from camshaft.handlers.common import png
from camshaft.handlers.loggers import (
    Embedding,
    Histogram,
    Image,
    ImageFiles,
    PRCurve,
    TensorBoard,
    Text,
    figure,
)

EACH = Events.ITERATION_COMPLETED


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


@pytest.fixture
def shown(tmp_path):
    """Runs one iteration with these metrics; gives what is read of it."""

    def run(metrics, **arguments):
        engine = Engine(lambda state, batch: state.metrics.update(metrics))
        engine.add(TensorBoard(tmp_path, when=EACH, **arguments))
        engine.run([1], max_epochs=1)
        everything = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)
        return EventAccumulator(str(tmp_path), size_guidance=everything).Reload()

    return run


def scalars(directory, tag):
    events = EventAccumulator(str(directory)).Reload()
    return [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]


def test_metrics_are_drawn_over_the_iterations_under_their_names(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    engine.add(TensorBoard(tmp_path / "runs" / "first", when=EACH))
    losses = []
    engine.on(EACH)(lambda state: losses.append(state.metrics["loss"].item()))
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 4, max_epochs=1)
    assert scalars(tmp_path / "runs" / "first", "loss") == list(enumerate(losses, 1))


def test_nan_and_infinity_are_drawn(tmp_path):
    def train_step(state, batch):
        state.metrics.update(nan=torch.tensor(math.nan), infinity=math.inf)

    Engine(train_step, TensorBoard(tmp_path, when=EACH)).run([1], max_epochs=1)
    [(_, nan)] = scalars(tmp_path, "nan")
    assert math.isnan(nan)
    assert scalars(tmp_path, "infinity") == [(1, math.inf)]


def test_a_run_that_starts_anew_hides_the_rows_of_others_and_leaves_their_files(tmp_path):
    Engine(inverse, TensorBoard(tmp_path, when=EACH)).run([1, 2, 4], max_epochs=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    Engine(inverse, TensorBoard(tmp_path, when=EACH)).run([8], max_epochs=1)
    assert scalars(tmp_path, "loss") == [(1, 0.125)]
    assert len(list(tmp_path.iterdir())) == 2
    assert {path: path.read_bytes() for path in before} == before


def test_without_tensorboard_itself_a_graph_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=r"camshaft\[graph\]"):
        TensorBoard(tmp_path, graph=(torch.nn.Linear(1, 1), torch.ones(1, 1)))


def test_media_of_a_resumed_run_are_there_once(tmp_path):
    def train_step(state, batch):
        if batch in (2, 3):
            state.metrics["shown"] = Image(torch.full((2, 2), batch / 10))

    when = EACH(every=2)
    engine = Engine(train_step, TensorBoard(tmp_path, when=when))
    state = engine.run([1, 2, 3], max_epochs=1)
    engine = Engine(train_step, TensorBoard(tmp_path, when=when))
    engine.run([1, 2, 3], max_epochs=2, state=state)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Images("shown")] == [2, 3, 6]


def test_an_image_is_shown_pixel_by_pixel(shown):
    pixels = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8)
    [event] = shown({"val/samples": Image(pixels)}).Images("val/samples")
    assert (event.step, event.width, event.height) == (1, 7, 5)
    back = PIL.Image.open(io.BytesIO(event.encoded_image_string))
    assert torch.equal(torch.tensor(numpy.array(back)).permute(2, 0, 1), pixels)


def test_a_text_is_shown(shown):
    events = shown({"note": Text("# a *word*")})
    [event] = events.Tensors("note/text_summary")
    assert event.step == 1
    assert event.tensor_proto.string_val[0].decode() == "# a *word*"


def test_a_histogram_is_shown(shown):
    values = torch.tensor([0.0, 0.5, 1.0, 4.0])
    [event] = shown({"weight": Histogram.of(values, bins=4)}).Histograms("weight")
    value = event.histogram_value
    assert value.bucket_limit == [0, 1, 2, 3, 4]
    assert value.bucket == [0, 2, 1, 0, 1]
    assert (value.min, value.max, value.num) == (0, 4, 4)


def test_a_precision_recall_curve_is_shown(shown):
    curve = PRCurve([1, 0, 1, 0], [0.9, 0.8, 0.4, 0.1])
    [event] = shown({"curve": curve}).Tensors("curve")
    numbers = make_ndarray(event.tensor_proto)
    precision, recall = numbers[4], numbers[5]
    assert (precision[0], recall[0]) == (0.5, 1.0)  # all are taken for the class
    assert (precision[109], recall[109]) == (1.0, 0.5)  # those above 109 / 126


def hparams_of(directory):
    """What the page that compares runs would show."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(directory)).Reload()
    [run] = multiplexer.PluginRunToTagToContent("hparams").values()
    return plugin_data_pb2.HParamsPluginData.FromString(
        run["_hparams_/session_start_info"]
    ).session_start_info.hparams


def test_hyper_parameters_are_shown_also_nested_ones(shown, tmp_path):
    given = {"lr": 0.1, "model": {"name": "mlp", "bias": True}, "betas": (0.9, 0.99)}
    shown({"loss": 1.0}, hparams=given)
    hparams = hparams_of(tmp_path)
    assert hparams["lr"].number_value == 0.1
    assert hparams["model/name"].string_value == "mlp"
    assert hparams["model/bias"].bool_value is True
    assert hparams["betas"].string_value == "(0.9, 0.99)"


def test_an_embedding_can_be_projected(shown, tmp_path):
    points = Embedding(torch.eye(3, 5), ["a", "b b", "c\td"], torch.rand(3, 1, 4, 4))
    shown({"digits/last": points})
    config = projector_config_pb2.ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    [found] = config.embeddings
    assert found.tensor_name == "digits/last:1"
    vectors = numpy.loadtxt(tmp_path / found.tensor_path, delimiter="\t")
    assert numpy.array_equal(vectors, numpy.eye(3, 5))
    assert (tmp_path / found.metadata_path).read_text() == "a\nb b\nc d\n"
    assert list(found.sprite.single_image_dim) == [4, 4]
    with PIL.Image.open(tmp_path / found.sprite.image_path) as sprite:
        assert sprite.size == (8, 8)


def test_an_embedding_that_is_written_again_is_listed_once(shown, tmp_path):
    for _ in range(2):
        shown({"points": Embedding(torch.eye(2))})
    assert (tmp_path / "projector_config.pbtxt").read_text().count("embeddings {") == 1


def test_the_graph_of_a_model_is_shown_and_the_run_is_the_same(tmp_path):
    def weights(**arguments):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            *(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
        )
        model[1].eval()  # is frozen, and stays so
        if arguments:
            arguments = {"graph": (model, torch.ones(4, 2))}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        engine.add(TensorBoard(tmp_path / f"{bool(arguments)}", when=EACH, **arguments))
        engine.run([(torch.ones(4, 2), torch.zeros(4, 3))] * 3, max_epochs=1)
        assert not model[1].training
        return model.state_dict()

    plain, drawn = weights(), weights(graph=True)
    assert all(torch.equal(plain[name], drawn[name]) for name in plain)
    events = EventAccumulator(str(tmp_path / "True")).Reload()
    names = [node.name for node in events.Graph().node]
    assert any("Linear" in name for name in names)


def test_a_model_that_cannot_be_traced_costs_its_graph_and_not_the_log(shown, caplog):
    class Untraceable(torch.nn.Module):
        def forward(self, inputs):
            raise RuntimeError("not for tracing")

    events = shown({"loss": 1.0}, graph=(Untraceable(), torch.ones(1)))
    assert len(events.Scalars("loss")) == 1
    assert "not for tracing" in caplog.text


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_bytes_come_back_as_they_were(channels, mode):
    pixels = torch.randint(0, 256, (channels, 5, 3), dtype=torch.uint8)
    with PIL.Image.open(io.BytesIO(png(Image(pixels)))) as back:
        assert back.mode == mode
        found = torch.tensor(numpy.array(back)).reshape(5, 3, channels)
    assert torch.equal(found, pixels.permute(1, 2, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_go_from_black_at_0_to_white_at_1_and_no_further(dtype):
    values = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 2.0, math.nan, math.inf]], dtype=dtype)
    with PIL.Image.open(io.BytesIO(png(Image(values)))) as back:
        assert numpy.array(back).tolist() == [[0, 0, 128, 255, 255, 0, 255]]


def test_a_figure_of_matplotlibs_is_shown(shown):
    drawn = Figure(figsize=(3, 2), dpi=50)
    drawn.add_subplot().plot([1, 2, 3])
    [event] = shown({"curve": figure(drawn)}).Images("curve")
    assert (event.width, event.height) == (150, 100)


def test_a_figure_that_is_changed_or_closed_later_is_shown_as_it_was():
    drawn = Figure(figsize=(1, 1), dpi=20)
    canvas = drawn.canvas
    image = figure(drawn, "empty")
    before = image.pixels.clone()
    drawn.add_subplot().plot([1, 2, 3])
    assert (image.pixels == before).all()
    assert not figure(drawn).pixels.equal(before)
    assert drawn.canvas is canvas
    assert image.caption == "empty"


def run(directory, metrics, count=1):
    engine = Engine(lambda state, batch: state.metrics.update(metrics))
    engine.add(ImageFiles(directory, when=EACH)).run(range(count), max_epochs=1)
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*.*"))


def test_each_image_lies_under_its_name_and_iteration(tmp_path):
    shown = {"val/digits": Image(torch.ones(1, 3, 5)), "loss": 1.0, "note": Text("none")}
    with pytest.warns(UserWarning, match=r"no logger shows state.metrics\['note'\], a value of"):
        assert run(tmp_path, shown, 2) == ["val/digits/1.png", "val/digits/2.png"]
    with PIL.Image.open(tmp_path / "val/digits/2.png") as image:
        assert (image.size, image.getpixel((0, 0))) == ((5, 3), 255)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/outside", "a/../../outside", "..", "", "a\0b"]
)
def test_no_name_leads_out_of_the_directory(tmp_path, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    run(inside, {name: Image(torch.ones(2, 2))})
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in found] == ["1.png"]
    assert inside in found[0].resolve().parents


@pytest.mark.parametrize("name", ["4000000000.000000005.host", "4000000000.host"])
def test_a_run_whose_clock_is_behind_writes_a_file_that_comes_last(tmp_path, name):
    """TensorBoard reads files in the order of their names, which begin with the time."""
    (tmp_path / f"events.out.tfevents.{name}").touch()
    Engine(inverse, TensorBoard(tmp_path, when=EACH)).run([1], max_epochs=1)
    first, last = sorted(path.name for path in tmp_path.iterdir())
    assert first.endswith(name)
    assert last.startswith("events.out.tfevents.400000000")
