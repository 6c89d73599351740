"""mlflow: a store of SQLite, read back by its own client."""

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import MLflow


@exact("mlflow-skinny", "Logs", 'engine.add(MLflow("name", uri="sqlite:///runs/mlflow.db"))')
def test_rows(folder):
    """MLflow in a store of SQLite; a resumed run finds its run by a tag."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{folder}/mlflow.db"

    def rows():
        client = MlflowClient(uri)
        experiments = [each.experiment_id for each in client.search_experiments()]
        (run,) = client.search_runs(experiments)
        found = client.get_metric_history(run.info.run_id, "loss")
        return sorted((each.step, each.value) for each in found)

    logger = MLflow("digits", uri=uri, when=Events.ITERATION_COMPLETED)
    return trained_by(adam, network, logger, result=rows)
