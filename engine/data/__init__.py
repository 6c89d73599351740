"""The data of a run: which batches come, in which order, and from where a resumed run reads on."""
