"""Reads the output of crates/train/examples/summaries.rs with TensorBoard and MLflow.

    cargo run -p polygrad-train --example summaries -- /tmp/summaries
    pip install tensorboard==2.* mlflow-skinny==3.*
    python3 scripts/read_summaries.py /tmp/summaries
"""

import os
import sys
from pathlib import Path

# MLflow recommends keeping runs in a database instead, but still reads files.
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

from mlflow.tracking import MlflowClient

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

folder = Path(sys.argv[1]).resolve()
events = EventAccumulator(str(folder / "events.out.tfevents.1"))
events.Reload()
tags = events.Tags()
assert tags["scalars"] == ["loss/test", "accuracy/test"], tags
assert [(e.step, e.value) for e in events.Scalars("accuracy/test")] == [(s, 0.75) for s in (1, 200, 1 << 40)]
histogram = events.Histograms("weights")[0].histogram_value
assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0, 59, 60, 1770), histogram
assert histogram.bucket == [2] * 30 and histogram.bucket_limit[-1] == 59, histogram
image = events.Images("picture")[0]
assert (image.width, image.height) == (4, 2) and image.encoded_image_string.startswith(b"\x89PNG"), image
hparams = events.SummaryMetadata("_hparams_/session_start_info").plugin_data
assert hparams.plugin_name == "hparams"
data = plugin_data_pb2.HParamsPluginData.FromString(hparams.content)
values = {name: value.WhichOneof("kind") and getattr(value, value.WhichOneof("kind")) for name, value in data.session_start_info.hparams.items()}
assert values == {"lr": 0.25, "model": "cnn", "mirror": True}, values
data = plugin_data_pb2.HParamsPluginData.FromString(events.SummaryMetadata("_hparams_/experiment").plugin_data.content)
assert [info.name for info in data.experiment.hparam_infos] == ["lr", "model", "mirror"]
assert [info.name.tag for info in data.experiment.metric_infos] == ["loss/test"]
print("TensorBoard reads all of it")

client = MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
experiment = client.get_experiment_by_name('lines: "straight"')
(run,) = client.search_runs([experiment.experiment_id])
assert (run.info.run_name, run.info.status) == ("first", "FINISHED"), run.info
assert run.data.params == {"lr": "0.1"}, run.data.params
assert set(run.data.metrics) == {"loss/train", "mae/train", "learning_rate", "loss/validation", "mae/validation"}
history = client.get_metric_history(run.info.run_id, "loss/validation")
assert [entry.step for entry in history] == [10, 20, 30] and history[2].value < history[0].value, history
print("MLflow reads all of it")
