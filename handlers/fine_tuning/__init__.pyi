from .freeze import Freeze as Freeze
from .groups import describe_groups as describe_groups
from .groups import norms_and_biases as norms_and_biases
from .groups import parameter_groups as parameter_groups
from .load_matching import Matching as Matching
from .load_matching import load_matching as load_matching
