"""A server's command as something that a cluster runs: a Kubernetes Deployment with its Service, a KServe
InferenceService, or a compose file.

Sources: kubernetes.io/docs/reference/generated/kubernetes-api (apps/v1, v1), kserve.github.io
(serving.kserve.io/v1beta1), github.com/compose-spec/compose-spec; resources as the vendors' device plugins name them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import yaml

from calc.errors import Frozen
from calc.hardware import GPU
from calc.hardware.generations import Platform
from calc.serving.engines.launch import Image
from calc.time import USUAL, Cluster
from cli.options import bad_question

ManifestKind = Literal["kubernetes", "kserve", "compose"]
KINDS: tuple[ManifestKind, ...] = get_args(ManifestKind)
RESOURCES: Mapping[Platform | str | None, str] = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "xpu": "gpu.intel.com/xe",
    "gaudi": "habana.ai/gaudi",
    "tpu": "google.com/tpu",
    "neuron": "aws.amazon.com/neuron",
    "cann": "huawei.com/Ascend910",
    "310P": "huawei.com/Ascend310P",
    "maca": "metax-tech.com/gpu",
    "mlu": "cambricon.com/mlu",
}
"""Resource names of the device plugins, by platform, or by chip where it has one of its own; of a MIG slice by its
profile, as NVIDIA's has it (`mig.strategy=mixed`)."""
SECRET = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
MINUTES_TO_LOAD = 60


class Server(Frozen):
    """Replicas of one command on GPUs of one kind."""

    model: str
    words: tuple[str, ...]  # of the command
    image: Image
    gpu: GPU
    gpus: int  # of a replica
    replicas: int = 1

    @property
    def name(self) -> str:
        """The model's, as a DNS label (RFC 1123): at most 63 of a-z, 0-9 and hyphens."""
        label = re.sub(r"[^a-z0-9]+", "-", self.model.rpartition("/")[2].lower()).strip("-")
        return label[:63].rstrip("-") or "model"

    @property
    def command(self) -> list[str]:
        """The command with what makes it listen beyond its own container."""
        return [*self.words, *self.image.listens]

    @property
    def image_name(self) -> str:
        """Raises ConfigError where the makers have none for the GPU."""
        if (name := self.image.name(self.gpu)) is None:
            raise bad_question("No container image of this engine is known for {gpu}.", "gpu", gpu=self.gpu.name)
        return name

    @property
    def resource(self) -> str:
        """Raises ConfigError where no device plugin is known."""
        if (name := RESOURCES.get(self.gpu.capability) or RESOURCES.get(self.gpu.platform)) is None:
            raise bad_question("No name of a Kubernetes resource is known for {gpu}.", "gpu", gpu=self.gpu.name)
        return name if self.gpu.slice is None else f"nvidia.com/mig-{self.gpu.id.partition(':')[2]}"


def manifest(server: Server, kind: ManifestKind, cluster: Cluster = USUAL) -> str:
    """YAML. Raises ConfigError where a replica takes more than one node, which none of these starts."""
    if server.gpus > (node := cluster.gpus_per_node):
        sentence = "A replica takes {gpus:,} GPUs, more than the {node:,} of a node: it needs a LeaderWorkerSet or Ray."
        raise bad_question(sentence, "manifest", gpus=server.gpus, node=node)
    makers: dict[ManifestKind, Callable[[Server], list[dict[str, Any]]]] = {
        "kubernetes": lambda server: [deployment(server), service(server)],
        "kserve": lambda server: [inference_service(server)],
        "compose": lambda server: [compose(server)],
    }
    text: str = yaml.safe_dump_all(makers[kind](server), sort_keys=False, width=120)
    return text


def pod(server: Server, name: str) -> dict[str, Any]:
    """Shared memory is for tensor-parallel ranks, which talk through it."""
    limits, shm = {server.resource: server.gpus}, {"name": "shm", "emptyDir": {"medium": "Memory"}}
    container = {
        "name": name,
        "image": server.image_name,
        "command": server.command,
        "ports": [{"containerPort": server.image.port, "protocol": "TCP"}],
        "env": [SECRET],
        "resources": {"limits": limits},
        "startupProbe": {
            "httpGet": {"path": "/health", "port": server.image.port},
            "periodSeconds": 10,
            "failureThreshold": MINUTES_TO_LOAD * 6,
        },
        "readinessProbe": {"httpGet": {"path": "/health", "port": server.image.port}, "periodSeconds": 5},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {"containers": [container], "volumes": [shm]}


def deployment(server: Server) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": server.name}
    spec = {
        "replicas": server.replicas,
        "strategy": {"type": "Recreate"},  # a second copy would wait for GPUs that the first holds
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod(server, "server")},
    }
    return kubernetes_object("apps/v1", "Deployment", {"name": server.name, "labels": labels}, spec)


def service(server: Server) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": server.name}
    port = {"name": "http", "port": 80, "targetPort": server.image.port}
    spec = {"selector": labels, "ports": [port]}
    return kubernetes_object("v1", "Service", {"name": server.name, "labels": labels}, spec)


def inference_service(server: Server) -> dict[str, Any]:
    predictor = {"minReplicas": server.replicas, "maxReplicas": server.replicas, **pod(server, "kserve-container")}
    api = "serving.kserve.io/v1beta1"
    return kubernetes_object(api, "InferenceService", {"name": server.name}, {"predictor": predictor})


def kubernetes_object(api: str, kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def compose(server: Server) -> dict[str, Any]:
    """Replicas take the GPUs of the machine in turn; the device's driver is the one that Docker knows."""
    if server.gpu.platform != "cuda":
        raise bad_question(
            "A compose file reserves NVIDIA's GPUs only, and {gpu} is not one of them.", "manifest", gpu=server.gpu.name
        )
    servers = {}
    for n in range(server.replicas):
        devices = [str(n * server.gpus + i) for i in range(server.gpus)]
        reserved = {"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}
        servers[f"server-{n + 1}" if server.replicas > 1 else "server"] = {
            "image": server.image_name,
            "entrypoint": server.command,
            "ports": [f"{server.image.port + n}:{server.image.port}"],
            "environment": ["HF_TOKEN", "HF_HOME=/huggingface"],
            "ipc": "host",
            "volumes": ["huggingface:/huggingface"],
            "deploy": {"resources": {"reservations": {"devices": [reserved]}}},
        }
    return {"name": server.name, "services": servers, "volumes": {"huggingface": {}}}
