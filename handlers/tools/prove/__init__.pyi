from .compare import compare as compare
from .compare import difference_of as difference_of
from .digests import leaves as leaves
from .fingerprints import Fingerprints as Fingerprints
from .fingerprints import mark_of as mark_of
from .prove import prove as prove
