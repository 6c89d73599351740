"""Media and hyper-parameters, read back by TensorBoard's own reader."""

import io

import numpy
import PIL.Image
import torch
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util.tensor_util import make_ndarray

from camshaft.handlers.loggers import Histogram, Image, PRCurve, Text


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
