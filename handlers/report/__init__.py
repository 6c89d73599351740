"""The report of a run: one HTML page, and the server that shows it while the run goes on."""
