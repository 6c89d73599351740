"""grokadamw: an optimizer that keeps its state in its groups."""

from crossing import exact, told, trained_by


@told(
    "grokadamw",
    "Optimizers",
    "a subclass that saves the state by the parameter's place, as in the exact row",
    match="is a Parameter, as a key",
)
def test_grokadamw(folder):
    """GrokAdamW, whose groups hold a state with parameters as keys."""
    from grokadamw import GrokAdamW

    return trained_by(lambda model: GrokAdamW(model.parameters(), lr=0.01))


@exact("grokadamw", "Optimizers", "class Saved(GrokAdamW): ...")
def test_saved_by_place(folder):
    """GrokAdamW in a subclass that saves each parameter's state under its place."""
    from grokadamw import GrokAdamW

    class Saved(GrokAdamW):
        def state_dict(self):
            plain = super().state_dict()
            for group, saved in zip(self.param_groups, plain["param_groups"], strict=True):
                if "state" in group:
                    saved["state"] = [group["state"][each] for each in group["params"]]
            return plain

        def load_state_dict(self, plain):
            super().load_state_dict(plain)
            for group in self.param_groups:
                if "state" in group:
                    group["state"] = dict(zip(group["params"], group["state"], strict=True))

    return trained_by(lambda model: Saved(model.parameters(), lr=0.01))
