from .compare import compare as compare
from .fingerprints import Fingerprints as Fingerprints
from .prove import prove as prove
