from .freeze import Freeze as Freeze
from .load_matching import Matching as Matching
from .load_matching import load_matching as load_matching
from .parameter_groups import describe_groups as describe_groups
from .parameter_groups import norms_and_biases as norms_and_biases
from .parameter_groups import parameter_groups as parameter_groups
