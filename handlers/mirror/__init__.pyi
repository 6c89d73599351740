from .fetch import fetch as fetch
from .mirror import Mirror as Mirror
