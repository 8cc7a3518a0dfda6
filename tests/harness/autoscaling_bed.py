"""A Ray cluster whose autoscaler starts nodes when somebody asks, and ends them when they are idle.

Ray's own stand-in for a cloud starts them, as further raylets on this machine (``ray.cluster_utils.AutoscalingCluster``
uses it, too, but ends all of Ray on the machine first, and needs a file that Ray's wheel lacks).
"""

from __future__ import annotations

import json
import subprocess
import sys

from ports import free_port
from ray_bed import OUR_SETTINGS, RayBed

#: the first of the ids that the stand-in gives its nodes
_HEAD = "f" * 51 + "00000"
_HEAD_TYPE = "ray.head.default"
_EMPTY = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)
_SETTINGS = {
    "RAY_FAKE_CLUSTER": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_CLOUD_INSTANCE_ID": _HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD,
    "RAY_NODE_TYPE_NAME": _HEAD_TYPE,
}


class AutoscalingBed(RayBed):
    """A head without GPUs, and workers with ``gpus`` each, at most ``most`` of them; none without need."""

    def __init__(self, gpus: int, most: int = 2, idle_s: float = 3.0, *, second_version: bool = True) -> None:
        self._workers = {"resources": {"CPU": 1, "GPU": gpus}, "min_workers": 0, "max_workers": most, "node_config": {}}
        self._idle_s = idle_s
        super().__init__({**OUR_SETTINGS, **_SETTINGS, "RAY_enable_autoscaler_v2": str(int(second_version))})

    def _config(self, gcs: str) -> dict[str, object]:
        module = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
        return {
            "cluster_name": "autoscaling-bed",
            "max_workers": self._workers["max_workers"],
            "head_node_type": _HEAD_TYPE,
            "provider": {
                "type": "external",
                "module": module,
                "head_node_id": _HEAD,
                "gcs_address": gcs,
                "launch_multiple": True,
                "use_node_id_as_ip": True,
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
                "foreground_node_launch": True,
            },
            "available_node_types": {
                _HEAD_TYPE: {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
                "worker": self._workers,
            },
            "idle_timeout_minutes": self._idle_s / 60,
            "upscaling_speed": 1.0,
            "auth": {},
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
            **{name: [] for name in _EMPTY},
        }

    def _start(self) -> str:
        port = free_port()
        (self.folder / "autoscaling.json").write_text(json.dumps(self._config(f"127.0.0.1:{port}")))
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            f"--port={port}",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--node-ip-address=127.0.0.1",
            f"--temp-dir={self.folder}/ray",
            "--num-gpus=0",
            "--num-cpus=2",
            "--object-store-memory=100000000",
            "--include-dashboard=false",
            "--dashboard-port=0",
            "--include-log-monitor=false",
            "--disable-usage-stats",
            f"--autoscaling-config={self.folder}/autoscaling.json",
        ]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return f"127.0.0.1:{port}"
