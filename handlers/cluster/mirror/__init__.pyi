from .fetching import fetch as fetch
from .mirror import Mirror as Mirror
