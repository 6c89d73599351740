"""kron-torch: PSGD with Kronecker factors."""

import os

from crossing import told, trained_by

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # nothing is compiled here


@told(
    "kron-torch",
    "Optimizers",
    "no line helps: its state holds texts, which torch's `load_state_dict` does not keep",
    match="exprs",
    note="The default probability of an update, an object, is refused, too.",
)
def test_kron(folder):
    """Kron that updates its factors in each second step."""
    from kron_torch import Kron

    return trained_by(
        lambda model: Kron(model.parameters(), lr=0.01, preconditioner_update_probability=0.5)
    )
