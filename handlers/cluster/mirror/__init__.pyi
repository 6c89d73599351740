from .fetching import fetch as fetch
from .mirror import Mirror as Mirror
from .process import StoreProcess as StoreProcess
