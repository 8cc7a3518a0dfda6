"""Pods of a rendered RayCluster as processes: each pod a host of its own, each container a root of its own.

The command that starts Ray is made as KubeRay makes it. A container's root is this machine's, readable only, with the
pod's volumes mounted into it; it runs as the manifest's user, who can never become another.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helm_chart import NAMESPACE, Manifest, one
from network_hosts import NetworkHost
from ray_imports import leave_out

_ENTER = """
set -eu
root=$1 python=$2 repository=$3 user=$4 group=$5; shift 5
readlink /proc/self/ns/mnt > "$root.namespace"
mount -t tmpfs none "$root"
for path in /*; do
    name=${path#/}
    if [ -L "$path" ]; then cp -P "$path" "$root/"; continue; fi
    [ -d "$path" ] || continue
    mkdir "$root/$name"
    case $(stat -c %A "$path") in *[xt]) ;; *) continue ;; esac # others than root may not enter it
    case $name in
        proc | sys | dev) mount --rbind "$path" "$root/$name" ;;
        *) mount --bind "$path" "$root/$name"; mount -o remount,bind,ro "$root/$name" ;;
    esac
done
while [ "$1" != -- ]; do
    [ -e "$root$2" ] || mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
    shift 3
done
shift
# the image's own: neither a folder that others may not enter nor a volume (`/tmp`) is in its way
for image in "$python" "$repository"; do
    [ "$(ls -A "$root$image" 2>/dev/null)" ] || { mkdir -p "$root$image"; mount --bind "$image" "$root$image"; }
done
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs --bounding-set=-all -- "$@"
"""
_UNITS = {
    "": 1,
    "m": 0.001,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
}
_LEFT_OUT = "/left-out"
_REPOSITORY = Path(__file__).parents[2]
#: Ray gives its own processes 15 and 30 s to start: beside others' work they go before it
_FIRST = ("nice", "-n", "-10")
_SERVING = b"\0\0\0\0\2\x08\x01"


def amount(quantity: str | int) -> int:
    """``64Gi`` → bytes, ``500m`` → 1: whole ones, rounded up."""
    number, unit = re.fullmatch(r"([\d.]+)([A-Za-z]*)", str(quantity)).groups()  # type: ignore[union-attr]
    return -int(-float(number) * _UNITS[unit] // 1)


def ray_command(cluster: Manifest, group: Manifest, *, head: bool) -> list[str]:
    """The command that KubeRay makes of a group's ``rayStartParams`` and the limits of its first container."""
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    address = f"{cluster['metadata']['name']}-head-svc.{NAMESPACE}.svc.cluster.local:6379"
    made = {
        "metrics-export-port": "8080",
        "num-cpus": str(amount(limits["cpu"])),
        "memory": str(amount(limits["memory"])),
    }
    for name, count in limits.items():
        if name.endswith("gpu"):
            made["num-gpus"] = str(count)
    if labels := group.get("labels"):
        made["labels"] = ",".join(f"{name}={value}" for name, value in labels.items())
    if not head:
        made["address"] = address
    elif cluster["spec"]["enableInTreeAutoscaling"]:
        made["no-monitor"] = "true"
    params = {**made, **group["rayStartParams"]}
    flags = [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in params.items()]
    words = ["ray start", *(["--head"] if head else []), *flags]
    return ["/bin/bash", "-c", "--", f"ulimit -n 65536; {' '.join(words)}"]


class Pod:
    """One pod on one host. ``folder``: its own, new; ``claims``: has a folder for each persistent volume claim."""

    def __init__(
        self, host: NetworkHost, manifests: list[Manifest], group: Manifest, folder: Path, claims: Path, hosts: str
    ) -> None:
        self._host, self._manifests, self._folder, self._claims = host, manifests, folder, claims
        self.spec: dict[str, Any] = group["template"]["spec"]
        self._group = group
        self._folder.mkdir()
        self._accounts = self._folder / "passwd"
        user = self.spec["securityContext"]
        self._user, self._gid = user["runAsUser"], user["runAsGroup"]
        account = f"gpu:x:{self._user}:{self._gid}::/jupyter-gpu/home:/bin/sh\n"
        self._accounts.write_text(account + Path("/etc/passwd").read_text())
        self._hosts = self._folder / "hosts"
        self.rename(hosts)
        self._left_out = leave_out(self._folder)
        self._volumes = {volume["name"]: self._make(volume) for volume in self.spec["volumes"]}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def rename(self, hosts: str) -> None:
        """Have these names for the cluster's services, also in containers that run."""
        own = f"127.0.0.1 localhost\n{self._host.address} {self._host.name}\n"
        with self._hosts.open("w") as file:  # the same file, which is mounted
            file.write(own + hosts)

    def _make(self, volume: Manifest) -> Path:
        """The folder of a volume, with what it is to hold."""
        if "persistentVolumeClaim" in volume:
            place = self._claims / volume["persistentVolumeClaim"]["claimName"]
            place.mkdir(exist_ok=True)
            os.chown(place, 0, self._gid)  # as `fsGroup` has it
            place.chmod(0o2775)
            return place
        place = self._folder / "volumes" / volume["name"]
        place.mkdir(parents=True)
        if "emptyDir" in volume:
            place.chmod(0o1777)
        elif "configMap" in volume:
            for name, text in one(self._manifests, "ConfigMap", volume["configMap"]["name"])["data"].items():
                (place / name).write_text(text)
        else:
            data = one(self._manifests, "Secret", volume["secret"]["secretName"])["data"]
            for item in volume["secret"].get("items", [{"key": name, "path": name} for name in data]):
                (place / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
                os.chown(place / item["path"], 0, self._gid)
                (place / item["path"]).chmod(volume["secret"].get("defaultMode", 0o644))
        return place

    def volume(self, name: str) -> Path:
        """The folder of a volume."""
        return self._volumes[name]

    def start(self) -> None:
        """Run what runs first, to its end, and start the others."""
        for container in self.spec.get("initContainers", []):
            done = self.run(container, [*container["command"], *container["args"]])
            assert done.returncode == 0, done.stdout
        for container in self.spec["containers"]:
            self.begin(container["name"])

    def begin(self, name: str) -> None:
        """Start one container, for the first time or again: it begins with nothing of what was there."""
        container = self.container(name)
        is_ray = container is self.spec["containers"][0]
        words = self._ray_command() if is_ray else [*container["command"], *container["args"]]
        with self.log_file(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*_FIRST, *self._inside(container, words, self._root(name))],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _ray_command(self) -> list[str]:
        cluster = one(self._manifests, "RayCluster")
        return ray_command(cluster, self._group, head=self._group is cluster["spec"]["headGroupSpec"])

    def end(self, name: str) -> None:
        """Kill all processes of one container, as a kubelet does when its first one has ended."""
        self._host.kill_all(mounts=Path(f"{self._root(name)}.namespace").read_text().strip())
        self._running.pop(name).wait(30)

    def keep(self) -> None:
        """Start each container anew that has ended (``restartPolicy: Always``), without a kubelet's growing wait."""
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            self.end(name)
            self.begin(name)

    def container(self, name: str) -> Manifest:
        """One container of the manifest."""
        (found,) = (one for one in self.spec["containers"] if one["name"] == name)
        return found

    def run(self, container: Manifest, words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run a program in a container, to its end."""
        return subprocess.run(
            self._inside(container, words, self._root(f"{container['name']}-called")),
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )

    def passes(self, container: str, probe: str) -> bool:
        """Call a probe as a kubelet would, and tell if it is content."""
        asked = self.container(container)[probe]
        if "exec" in asked:
            return self.run(self.container(container), asked["exec"]["command"]).returncode == 0
        url = f"http://{self._host.address}:{asked['grpc']['port']}/grpc.health.v1.Health/Check"
        call = [
            "curl",
            "--silent",
            "--noproxy",
            "*",
            "--http2-prior-knowledge",
            "--max-time",
            "5",
            "--header",
            "content-type: application/grpc",
        ]
        # an empty request: the server as a whole
        done = subprocess.run(
            self._host.command([*call, "--header", "te: trailers", "--data-binary", "@-", url]),
            input=bytes(5),
            capture_output=True,
            timeout=30,
        )
        return done.stdout == _SERVING

    def log_file(self, container: str) -> Path:
        """The output of a container."""
        return self._folder / f"{container}.log"

    def stop(self) -> None:
        """End all of it at once, as when the machine fails."""
        self._host.kill_all()
        while self._running:
            self._running.popitem()[1].wait(30)
        shutil.rmtree(self._folder / "volumes", ignore_errors=True)

    def _root(self, name: str) -> Path:
        """Where the root of a container is mounted; beside it, what its mount namespace is called."""
        return self._folder / f"root-{name}"

    def _inside(self, container: Manifest, words: Sequence[str], root: Path) -> list[str]:
        environment = self._environment(container)
        root.mkdir(exist_ok=True)
        mounts = [str(self._hosts), "/etc/hosts", "ro", str(self._accounts), "/etc/passwd", "ro"]
        mounts += [str(self._left_out), _LEFT_OUT, "ro"]
        # a place before those inside it
        for mount in sorted(container["volumeMounts"], key=lambda one: str(one["mountPath"])):
            way = "ro" if mount.get("readOnly") else "rw"
            mounts += [str(self._volumes[mount["name"]]), mount["mountPath"], way]
        expanded = [re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word) for word in words]
        pairs = [f"{name}={value}" for name, value in environment.items()]
        inside = ["env", "-i", *pairs, *expanded]
        image = [os.path.realpath(sys.base_prefix), str(_REPOSITORY)]
        start = [str(root), *image, str(self._user), str(self._gid)]
        return self._host.command(["unshare", "--mount", "sh", "-c", _ENTER, "sh", *start, *mounts, "--", *inside])

    def _environment(self, container: Manifest) -> dict[str, str]:
        """The image's and what the manifest adds."""
        facts = {"status.podIP": self._host.address, "metadata.name": self._host.name}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        found = {"PATH": path, "LANG": "C.UTF-8", "PYTHONPATH": _LEFT_OUT}
        for variable in container.get("env", []):
            named = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[variable["name"]] = facts[named] if named else variable["value"]
        return found
