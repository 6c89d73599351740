from .command import set_values as set_values
from .ledger import read_ledger as read_ledger
from .steering import Steering as Steering
