"""The Dockerfile, the compose file and the Helm chart, checked with their own tools.

`make test-deploy` runs these tests in an environment with the tools; `make test` skips them.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
helm = pytest.importorskip("gotpl.exts.helm", reason="run by make test-deploy")
validate = pytest.importorskip("kubernetes_validate", reason="run by make test-deploy")

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "penstock"
KUBERNETES = "1.33"
CUSTOM = frozenset({"ScaledObject", "TriggerAuthentication"})
"""Kinds of KEDA, which the schemas of Kubernetes do not contain."""


def render(**changes: Any) -> list[dict[str, Any]]:
    """Return the objects of the chart, rendered with these values over the defaults."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8")) | changes
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    data = {
        "Values": values,
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
        "Release": {"Name": "night", "Namespace": "data", "Service": "Helm"},
    }
    sources = {path.name: path.read_text("utf-8") for path in (CHART / "templates").iterdir()}
    engine = helm.HelmTemplateEngine.from_sources(sources)
    shown = [name for name in sources if name.endswith(".yaml")]
    texts = engine.render(dict.fromkeys(shown, data))
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


def scaled() -> dict[str, Any]:
    """Return values with two pools, one of which scales by itself, and an ingress."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    pool = values["workers"]["default"]
    heavy = {**pool, "slots": 2, "autoscaling": {**pool["autoscaling"], "enabled": True}}
    ingress = {**values["api"]["ingress"], "enabled": True, "tlsSecretName": "tls"}
    return {
        "workers": {"default": pool, "heavy": heavy},
        "api": {**values["api"], "ingress": ingress},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "secretEnvironment": "penstock-secrets",
    }


@pytest.mark.parametrize("changes", [{}, scaled()], ids=["defaults", "scaled"])
def test_chart_is_valid(changes: dict[str, Any]) -> None:
    """Every object of the chart is valid for Kubernetes, strictly."""
    objects = render(**changes)
    for one in objects:
        if one["kind"] not in CUSTOM:
            validate.validate(one, KUBERNETES, strict=True)
    kinds = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert len(kinds) == len(objects)
    assert ("Deployment", "night-penstock-worker-default") in kinds


def test_every_pod_is_confined() -> None:
    """No container runs as root, writes to its image, or gains privileges."""
    for one in render(**scaled()):
        pod = one.get("spec", {}).get("template", {}).get("spec")
        if pod is None:
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_selectors_match_their_pods() -> None:
    """Services, deployments and disruption budgets select exactly one deployment's pods."""
    objects = render(**scaled())
    pods = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] == "Deployment"
    ]
    for one in objects:
        if one["kind"] in {"Deployment", "PodDisruptionBudget", "Service"}:
            chosen = one["spec"]["selector"]
            wanted = chosen.get("matchLabels", chosen).items()
            assert sum(wanted <= labels.items() for labels in pods) == 1, one["metadata"]["name"]


def test_pool_scales_on_its_own_figure() -> None:
    """The scaled pool has no fixed replicas and asks for its own desired workers."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in render(**scaled())}
    worker = objects["Deployment", "night-penstock-worker-heavy"]
    assert "replicas" not in worker["spec"]
    trigger = objects["ScaledObject", "night-penstock-worker-heavy"]["spec"]["triggers"][0]
    assert trigger["metadata"]["url"].endswith("/api/v1/pools/heavy/desired-workers")


def test_dockerfile() -> None:
    """Hadolint finds nothing, and the image does not run as root."""
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert found is not None
    done = subprocess.run(
        [found, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "\nUSER 10001:10001\n" in (DEPLOY / "Dockerfile").read_text("utf-8")
