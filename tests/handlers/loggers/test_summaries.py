"""Media, hyper-parameters and graphs, read back by TensorBoard's own readers."""

import io

import numpy
import PIL.Image
import torch
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.projector import projector_config_pb2
from tensorboard.util.tensor_util import make_ndarray

from camshaft import Events, supervised
from camshaft.handlers.loggers import Embedding, Histogram, Image, PRCurve, TensorBoard, Text

EACH = Events.ITERATION_COMPLETED


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
