from .fetching import fetch as fetch
from .followed import FollowedStore as FollowedStore
from .mirror import Mirror as Mirror
from .process import StoreProcess as StoreProcess
