"""What deploy/ has: manifests that Kubernetes' own schemas take, and the same promises everywhere: an ordinary user, a
file system that cannot be written, an end that drains."""

import shutil
import subprocess
from configparser import ConfigParser

import kubernetes_validate
import pytest
import yaml

from cli.serve import configuration
from tests import ROOT

FOLDER = ROOT / "deploy"
KUBERNETES = FOLDER / "kubernetes"
KUBECTL = shutil.which("kubectl")


def parsed(name):
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


FILES = parsed("kubernetes/kustomization.yaml")["resources"]
MANIFESTS = {name: parsed(f"kubernetes/{name}") for name in FILES}


def test_every_manifest_is_applied():
    assert {path.name for path in KUBERNETES.iterdir()} == {*FILES, "kustomization.yaml"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_the_manifest(name, version):
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


@pytest.mark.skipif(KUBECTL is None, reason="There is no kubectl here.")
def test_kustomize_makes_the_same_of_them():
    built = subprocess.run([KUBECTL, "kustomize", KUBERNETES], capture_output=True, text=True, check=True).stdout
    assert sorted(yaml.safe_load_all(built), key=str) == sorted(MANIFESTS.values(), key=str)


def test_all_speak_of_the_same_pods():
    pod = MANIFESTS["deployment.yaml"]["spec"]["template"]
    labels, port = pod["metadata"]["labels"], pod["spec"]["containers"][0]["ports"][0]["name"]
    assert MANIFESTS["deployment.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["disruption.yaml"]["spec"]["selector"]["matchLabels"] == labels
    service = MANIFESTS["service.yaml"]
    assert service["spec"]["selector"] == labels
    assert service["spec"]["ports"][0]["targetPort"] == port
    backend = MANIFESTS["ingress.yaml"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    target = MANIFESTS["autoscaler.yaml"]["spec"]["scaleTargetRef"]
    assert target["name"] == MANIFESTS["deployment.yaml"]["metadata"]["name"]


def test_a_pod_is_of_an_ordinary_user_and_writes_nothing():
    pod = MANIFESTS["deployment.yaml"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    drain = next(int(row["value"]) for row in container["env"] if row["name"] == "WEIGHBRIDGE_DRAIN")
    assert drain < pod["terminationGracePeriodSeconds"]
    assert container["readinessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/ready"
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


@pytest.mark.parametrize("service", ["app", "proxy"])
def test_a_container_is_of_an_ordinary_user_and_writes_nothing(service):
    container = parsed("compose.yaml")["services"][service]
    assert container["read_only"]
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["tmpfs"] == ["/tmp"]


def test_the_image_is_of_an_ordinary_user():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert lines.index("USER 1000") < next(place for place, line in enumerate(lines) if line.startswith("CMD"))


def test_nginx_of_the_composition_is_that_of_the_command():
    """Written by `configuration`; a container that is gone may take a while to refuse."""
    replicas = ["app:8501 max_fails=1 fail_timeout=2s"]
    assert (FOLDER / "nginx.conf").read_text(encoding="utf-8") == configuration(replicas, "8080", "/tmp")


def test_the_unit_of_systemd_starts_the_command():
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(FOLDER / "weighbridge.service", encoding="utf-8")
    assert unit["Service"]["ExecStart"].split()[:2] == ["/opt/weighbridge/bin/weighbridge", "serve"]
    assert unit["Service"]["DynamicUser"] == "yes"
    assert unit["Service"]["ProtectSystem"] == "strict"
