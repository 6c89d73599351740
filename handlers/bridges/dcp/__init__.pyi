from .directory import dcp_weights as dcp_weights
from .export import export_dcp as export_dcp
from .load import load_dcp as load_dcp
