from .diff import diff as diff
from .doctor import doctor as doctor
from .project import init as init
from .runs import list_runs as list_runs
from .tail import tail as tail
