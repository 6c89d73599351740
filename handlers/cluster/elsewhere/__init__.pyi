from .follow import follow as follow
from .validate_elsewhere import ValidateElsewhere as ValidateElsewhere
