#!/usr/bin/env python3
"""Checks the exports of `ringmark extract` with independent readers.

    python3 -m venv /tmp/readers
    /tmp/readers/bin/pip install prometheus-client line-protocol-parser mlflow-skinny mlperf-logging
    /tmp/readers/bin/python scripts/dev/check_exports.py FOLDER... [--program target/release/ringmark]

prometheus  prometheus-client finds the same samples in the text read as Prometheus's format and as OpenMetrics
influx      line-protocol-parser reads every line
mlflow      MLflow's FileStore finds every run with its metrics and the history of its loss
mllog       the compliance checker of MLPerf Training 4.0, the last version with ResNet, accepts runs with --epochs. Keys
            that a benchmark cannot provide are expected to be missing; any other error is a failure
"""

import argparse
import logging
import os
import pathlib
import re
import subprocess
import tempfile

from comparison import ROOT

# A benchmark has no submitter, does not clear caches, and does not record its start-up time, which run_start requires.
EXPECTED_MISSING = {"submission_org", "submission_division", "submission_status", "cache_clear", "init_start", "init_stop", "run_start"}


def export(options, folder, kind, *more):
    command = [options.program, "extract", folder, "--format", kind, *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def prometheus(options, folder):
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser

    text = export(options, folder, "prometheus")
    samples = [
        sorted((sample.name, sorted(sample.labels.items()), sample.value) for family in read(text) for sample in family.samples)
        for read in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families)
    ]
    assert samples[0] == samples[1]
    return f"{len(samples[0])} samples"


def influx(options, folder):
    from line_protocol_parser import parse_line

    lines = [parse_line(line) for line in export(options, folder, "influx").splitlines()]
    return f"{len(lines)} lines with measurements {', '.join(sorted({line['measurement'] for line in lines}))}"


def mlflow(options, folder):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as store:
        export(options, folder, "mlflow", "--out", store)
        client = MlflowClient(pathlib.Path(store).as_uri())
        [experiment] = client.search_experiments()
        runs = client.search_runs([experiment.experiment_id], "metrics.images_per_second > 0", max_results=5000)
        assert runs and all(client.get_run(run.info.run_id).info.status == "FINISHED" for run in runs)
        points = sum(len(client.get_metric_history(run.info.run_id, "loss")) for run in runs if "loss" in run.data.metrics)
        return f"{len(runs)} runs of {experiment.name}, {points} loss values"


def mllog(options, folder):
    from mlperf_logging.compliance_checker import mlp_compliance

    with tempfile.TemporaryDirectory() as logs:
        try:
            export(options, folder, "mllog", "--out", logs)
        except SystemExit as refusal:
            return f"none: {str(refusal).strip()}"
        files = sorted(pathlib.Path(logs).glob("*/*.mllog"))
        for file in files:
            checker = mlp_compliance.make_checker("training", "4.0.0", False, False)
            checker.log_messages = lambda: None
            checker.check_file(str(file), "training_4.0.0/common.yaml")
            errors = [*checker.overwritable.values(), *checker.not_overwritable]
            errors = [text for text in errors if not EXPECTED_MISSING.intersection(re.findall(r"'(\w+)'", text.splitlines()[0]))]
            # Networks other than ResNet-50 are not MLPerf benchmarks.
            errors = [text for text in errors if "CHECK for 'submission_benchmark'" not in text]
            assert not errors, f"{file.name}: {errors}"
        return f"{len(files)} logs"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", metavar="FOLDER")
    options.add_argument("--program", default=str(ROOT / "target/release/ringmark"))
    options = options.parse_args()
    logging.disable(logging.WARNING)
    for folder in options.folders:
        for check in (prometheus, influx, mlflow, mllog):
            print(f"{folder} {check.__name__}: {check(options, folder)}")


if __name__ == "__main__":
    main()
