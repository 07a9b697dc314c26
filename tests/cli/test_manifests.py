"""A plan as something that a cluster runs."""

import kubernetes_validate
import pytest
import yaml

from calc import ConfigError
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from cli import main
from cli.manifests import KINDS, Server, manifest

WORDS = ("vllm", "serve", "Qwen/Qwen3-32B", "--tensor-parallel-size", "2", "--max-model-len", "2560")
VERSION = "1.34"


def server(**changes):
    given = {
        "model": "Qwen/Qwen3-32B",
        "words": WORDS,
        "image": ENGINES["vllm"].image,
        "gpu": gpus()["h100-sxm"],
        "gpus": 2,
        "replicas": 3,
    }
    return Server(**(given | changes))


def parts(kind, **changes):
    return list(yaml.safe_load_all(manifest(server(**changes), kind)))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_kubernetes_takes_them(engine):
    deployment, service = parts("kubernetes", image=ENGINES[engine].image)
    for part in (deployment, service):
        kubernetes_validate.validate(part, VERSION, strict=True)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][: len(WORDS)] == list(WORDS)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert deployment["spec"]["replicas"] == 3
    (port,) = service["spec"]["ports"]
    assert (
        port["targetPort"] == container["ports"][0]["containerPort"] == container["readinessProbe"]["httpGet"]["port"]
    )


@pytest.mark.parametrize(
    ("gpu", "resource"),
    [
        # HAMi 4707fb02, charts/hami/templates/scheduler/device-configmap.yaml; Cambricon's device plugin, README
        ("ascend-910b-64gb", "huawei.com/Ascend910"),
        ("atlas-300i-duo-96gb", "huawei.com/Ascend310P"),
        ("metax-c500", "metax-tech.com/gpu"),
        ("mlu370-x8", "cambricon.com/mlu"),
    ],
)
def test_a_resource_is_the_device_plugins(gpu, resource):
    assert server(gpu=gpus()[gpu]).resource == resource


def test_a_pod_of_kserve_is_one_that_kubernetes_takes():
    (found,) = parts("kserve")
    assert (found["apiVersion"], found["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = dict(found["spec"]["predictor"])
    assert predictor.pop("minReplicas") == predictor.pop("maxReplicas") == 3
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": predictor}
    kubernetes_validate.validate(pod, VERSION, strict=True)
    assert predictor["containers"][0]["name"] == "kserve-container"


def test_replicas_of_a_compose_file_share_no_gpu_and_no_port():
    (found,) = parts("compose")
    servers = found["services"].values()
    devices = [server["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for server in servers]
    assert devices == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert [server["ports"] for server in servers] == [["8000:8000"], ["8001:8000"], ["8002:8000"]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_over_nodes_is_a_sentence(kind):
    with pytest.raises(ConfigError, match="more than the 8 of a node"):
        manifest(server(gpus=16), kind)


@pytest.mark.parametrize(
    ("kind", "gpu", "words"),
    [("compose", "mi300x", "NVIDIA"), ("kubernetes", "mtt-s4000", "No name of a Kubernetes resource")],
)
def test_what_no_plugin_is_known_for(kind, gpu, words):
    with pytest.raises(ConfigError, match=words):
        manifest(server(gpu=gpus()[gpu]), kind)


@pytest.mark.parametrize(
    ("gpu", "image"),
    [
        ("mi300x", "vllm/vllm-openai-rocm:latest"),
        ("ascend-910b2", "quay.io/ascend/vllm-ascend:v0.23.0"),
        ("ascend-910", "quay.io/ascend/vllm-ascend:v0.23.0-a3"),
        ("atlas-300i-duo-96gb", "quay.io/ascend/vllm-ascend:v0.23.0-310p"),
    ],
)
def test_the_image_is_that_of_the_gpu(gpu, image):
    """docs.vllm.ai/projects/ascend/en/latest/getting_started/quick_start.html has the suffixes."""
    deployment, _ = parts("kubernetes", gpu=gpus()[gpu])
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_a_gpu_without_an_image_is_a_sentence():
    with pytest.raises(ConfigError, match="No container image of this engine is known for TPU v6e"):
        manifest(server(gpu=gpus()["tpu-v6e"]), "kubernetes")


@pytest.mark.parametrize("model", ["Qwen/Qwen3-32B", "模型/名", "a/" + "x" * 200, "a/B_c.d-"])
def test_a_name_is_a_dns_label(model):
    (found, _) = parts("kubernetes", model=model)
    kubernetes_validate.validate(found, VERSION, strict=True)
    assert 1 <= len(found["metadata"]["name"]) <= 63


def test_the_first_plan_is_printed(capsys):
    words = ["plan", "Qwen/Qwen3-8B", "--gpu", "h100-sxm", "--users", "8"]
    assert main([*words, "--manifest", "kubernetes"]) == 0
    deployment, _ = yaml.safe_load_all(capsys.readouterr().out)
    assert deployment["metadata"]["name"] == "qwen3-8b"
    assert main([*words, "--manifest", "compose", "--engine", "tensorrt-llm"]) == 2
    assert "No container image of TensorRT-LLM" in capsys.readouterr().err
