"""pytorch-metric-learning: samplers of so many samples of a class."""

import torch
from crossing import digits, exact, told, trained_on
from pytorch_metric_learning.samplers import MPerClassSampler


class PerClass(MPerClassSampler):
    """Saves the order of the classes, which each epoch shuffles further."""

    def state_dict(self):
        return {"labels": [int(label) for label in self.labels]}

    def load_state_dict(self, state):
        self.labels = state["labels"]


def trial(kind):
    data = digits()
    sampler = kind(data.tensors[1], m=2, batch_size=4, length_before_new_iter=44)
    return sampler, trained_on(torch.utils.data.DataLoader(data, 4, sampler=sampler))


LINE = "engine.objects['sampler'] = sampler, of a class whose state_dict holds its labels"


@told(
    "pytorch-metric-learning",
    "Data",
    LINE,
    match="keeps something from one epoch to the next",
)
def test_per_class(folder):
    """MPerClassSampler, which shuffles the order that its last epoch left."""
    return trial(MPerClassSampler)[1]


@exact("pytorch-metric-learning", "Data", LINE)
def test_per_class_with_state(folder):
    """MPerClassSampler with a state_dict, as one of engine.objects."""
    sampler, made = trial(PerClass)
    made.engine.objects["sampler"] = sampler
    return made
