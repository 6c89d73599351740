"""Run one side with ignite's ClearML logger, offline: ByIgnite or ByCamshaft."""

import sys

import sides
from clearml import Task
from ignite.engine import Events
from ignite.handlers.clearml_logger import ClearMLLogger, WeightsScalarHandler
from ignite.metrics import Accuracy

Task.set_offline(True)
side = getattr(sides, sys.argv[1])()
Accuracy().attach(side.trainer, "accuracy")
logger = ClearMLLogger(
    project_name="tests",
    task_name=sys.argv[1],
    auto_connect_frameworks={"detect_repository": False},
)
logger.attach_output_handler(
    side.trainer,
    Events.ITERATION_COMPLETED(every=2),
    tag="training",
    output_transform=lambda output: {"loss": output["loss"]},
)
logger.attach_output_handler(
    side.trainer, Events.EPOCH_COMPLETED, tag="training", metric_names=["accuracy"]
)
logger.attach_opt_params_handler(side.trainer, Events.ITERATION_STARTED, optimizer=side.optimizer)
logger.attach(side.trainer, WeightsScalarHandler(side.model), Events.EPOCH_COMPLETED)
side.run(sides.batches())
logger.close()
