from .aim import Aim as Aim
from .clear_ml import ClearML as ClearML
from .comet import Comet as Comet
from .ml_flow import MLflow as MLflow
from .swan_lab import SwanLab as SwanLab
from .tensorboard import TensorBoard as TensorBoard
from .trackio import Trackio as Trackio
from .weights_and_biases import WandB as WandB
