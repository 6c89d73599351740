"""prodigy-plus-schedule-free: Prodigy without a schedule."""

from crossing import exact, told, trained_by


@told(
    "prodigy-plus-schedule-free",
    "Optimizers",
    "a subclass that gives the types back after a load, as in the exact row",
    match="p0 is not what it was",
)
def test_prodigy(folder):
    """ProdigyPlusScheduleFree, whose 16-bit states torch's `load_state_dict` makes 32 bits wide."""
    from prodigyplus import ProdigyPlusScheduleFree

    return trained_by(lambda model: ProdigyPlusScheduleFree(model.parameters()))


@exact("prodigy-plus-schedule-free", "Optimizers", "class Loaded(ProdigyPlusScheduleFree): ...")
def test_loaded_types(folder):
    """ProdigyPlusScheduleFree in a subclass that gives the types back after a load."""
    from prodigyplus import ProdigyPlusScheduleFree

    class Loaded(ProdigyPlusScheduleFree):
        def load_state_dict(self, plain):
            super().load_state_dict(plain)
            parameters = [each for group in self.param_groups for each in group["params"]]
            for number, values in plain["state"].items():
                own = self.state[parameters[number]]
                for name, value in values.items():
                    if hasattr(value, "dtype"):
                        own[name] = own[name].to(value.dtype)

    return trained_by(lambda model: Loaded(model.parameters()))
