"""The Dockerfile, the compose file and the Helm chart, checked with their own tools.

`make test-deploy` runs these tests in an environment with the tools; `make test` skips them.
"""

import re
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
KUBERNETES = ("1.27", "1.33")
"""The oldest version that the chart accepts, and the one of the documentation."""
CUSTOM = frozenset({"ScaledObject", "TriggerAuthentication"})
"""Kinds of KEDA, which the schemas of Kubernetes do not contain."""
NOTE = {"example.com/team": "data"}


def defaults() -> dict[str, Any]:
    """Return the values of the chart, with those that have no default."""
    files = (CHART / "values.yaml", CHART / "ci" / "test-values.yaml")
    merged: dict[str, Any] = {}
    for file in files:
        merged |= yaml.safe_load(file.read_text("utf-8"))
    return merged


def render(release: str = "night", **changes: Any) -> list[dict[str, Any]]:
    """Return the objects of a release, rendered with these values over the defaults."""
    values = defaults() | changes
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    data = {
        "Values": values,
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
        "Release": {"Name": release, "Namespace": "data", "Service": "Helm"},
    }
    sources = {path.name: path.read_text("utf-8") for path in (CHART / "templates").iterdir()}
    engine = helm.HelmTemplateEngine.from_sources(sources)
    shown = [name for name in sources if name.endswith(".yaml")]
    texts = engine.render(dict.fromkeys(shown, data))
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


def scaled() -> dict[str, Any]:
    """Return values with three pools, one scaled, and with all that is empty by default."""
    values = defaults()
    pool = values["workers"]["default"]
    heavy = {**pool, "slots": 2, "autoscaling": {**pool["autoscaling"], "enabled": True}}
    ingress = {
        **values["api"]["ingress"],
        "enabled": True,
        "tlsSecretName": "tls",
        "annotations": NOTE,
    }
    return {
        "workers": {"default": pool, "heavy": heavy, "bare": {"replicas": 0}},
        "api": {**values["api"], "ingress": ingress},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"podAntiAffinity": {}},
        "podAnnotations": NOTE,
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "secretEnvironment": "penstock-secrets",
        "database": {**values["database"], "appSecretName": "penstock-app"},
        "extraEnv": [{"name": "PENSTOCK_ENCRYPTION_KEY_FILE", "value": "/keys/push"}],
        "extraVolumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
        "extraVolumeMounts": [{"name": "keys", "mountPath": "/keys", "readOnly": True}],
    }


def pods(**changes: Any) -> dict[str, dict[str, Any]]:
    """Return the specs of the pods of deployments and jobs by their names, without the prefix."""
    return {
        one["metadata"]["name"].removeprefix("night-penstock-"): one["spec"]["template"]["spec"]
        for one in render(**changes)
        if one["kind"] in {"Deployment", "Job"}
    }


def secret_of(pod: dict[str, Any]) -> dict[str, str]:
    """Return the reference to the secret with the database URL of a pod."""
    (container,) = pod["containers"]
    (url,) = (one for one in container["env"] if one["name"] == "PENSTOCK_DATABASE_URL")
    found: dict[str, str] = url["valueFrom"]["secretKeyRef"]
    return found


@pytest.mark.parametrize("changes", [{}, scaled()], ids=["defaults", "scaled"])
def test_chart_is_valid(changes: dict[str, Any]) -> None:
    """Every object of the chart is valid for Kubernetes, strictly."""
    objects = render(**changes)
    for one in objects:
        if one["kind"] not in CUSTOM:
            for version in KUBERNETES:
                validate.validate(one, version, strict=True)
    kinds = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert len(kinds) == len(objects)
    assert ("Deployment", "night-penstock-worker-default") in kinds
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


@pytest.mark.parametrize("release", ["night", "penstock"])
def test_no_pod_gets_variables_of_services(release: str) -> None:
    """Kubernetes adds no PENSTOCK_API_PORT=tcp://…, which Penstock would refuse, to any pod."""
    objects = render(release, **scaled())
    made = [one for one in objects if one["kind"] in {"Deployment", "Job"}]
    assert len(made) == 6
    assert all(one["spec"]["template"]["spec"]["enableServiceLinks"] is False for one in made)
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert services == {"penstock-api" if release == "penstock" else "night-penstock-api"}


def test_every_pod_has_the_shared_values() -> None:
    """What the values say about pods in general reaches every one of them, and the ingress."""
    objects = render(**scaled())
    made = [one["spec"]["template"] for one in objects if one["kind"] in {"Deployment", "Job"}]
    for one in made:
        assert one["metadata"]["annotations"] == NOTE
        assert one["spec"]["affinity"] == {"podAntiAffinity": {}}
        assert one["spec"]["priorityClassName"] == "high"
        assert one["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    (ingress,) = (one for one in objects if one["kind"] == "Ingress")
    assert ingress["metadata"]["annotations"] == NOTE


def test_migration_is_bounded() -> None:
    """The job that migrates has resources of its own and a deadline."""
    (job,) = (one for one in render() if one["kind"] == "Job")
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_pods_that_do_not_start_block_no_node() -> None:
    """Every disruption budget lets pods be evicted that are not ready."""
    budgets = [one["spec"] for one in render(**scaled()) if one["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 5
    assert {one["unhealthyPodEvictionPolicy"] for one in budgets} == {"AlwaysAllow"}


def test_every_pod_is_confined() -> None:
    """No container runs as root, writes to its image, or gains privileges."""
    for pod in pods(**scaled()).values():
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
    labelled = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] == "Deployment"
    ]
    for one in objects:
        if one["kind"] in {"Deployment", "PodDisruptionBudget", "Service"}:
            chosen = one["spec"]["selector"]
            wanted = chosen.get("matchLabels", chosen).items()
            assert sum(wanted <= labels.items() for labels in labelled) == 1, one["metadata"][
                "name"
            ]


def test_pool_scales_on_its_own_figure() -> None:
    """The scaled pool has no fixed replicas and asks for its own desired workers."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in render(**scaled())}
    worker = objects["Deployment", "night-penstock-worker-heavy"]
    assert "replicas" not in worker["spec"]
    trigger = objects["ScaledObject", "night-penstock-worker-heavy"]["spec"]["triggers"][0]
    # KEDA's operator requests the URL from its own namespace, so it names that of the API.
    host = "night-penstock-api.data.svc"
    assert objects["Service", "night-penstock-api"]["spec"]["ports"][0]["port"] == 80
    assert trigger["metadata"]["url"] == f"http://{host}/api/v1/pools/heavy/desired-workers"


def test_pool_with_a_name_of_its_own() -> None:
    """A pool whose name Kubernetes refuses is named next to the key, for the worker and KEDA."""
    scaling = {"enabled": True}
    values = {"heavy-jobs": {"pool": "heavy_jobs", "autoscaling": scaling}}
    objects = {(one["kind"], one["metadata"]["name"]): one for one in render(workers=values)}
    name = "night-penstock-worker-heavy-jobs"
    (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["worker", "--pool", "heavy_jobs"]
    (trigger,) = objects["ScaledObject", name]["spec"]["triggers"]
    assert trigger["metadata"]["url"].endswith("/api/v1/pools/heavy_jobs/desired-workers")


@pytest.mark.parametrize("key", ["heavy_jobs", "a.b", "Heavy", "-a", "a-", "a" * 42])
def test_key_of_a_pool_is_refused(key: str) -> None:
    """A key that makes no name of Kubernetes fails with what to write instead."""
    with pytest.raises(Exception, match=r"name the pool with workers\.NAME\.pool"):
        render(workers={key: {}})


def test_names_are_short_enough() -> None:
    """The longest name of a release leaves space for a pool, in names and in labels."""
    objects = render("r" * 53, workers={"p" * 15: {}})
    for one in objects:
        labels = one["metadata"].get("labels", {}).values()
        assert max(len(text) for text in (one["metadata"]["name"], *labels)) <= 63
    render(workers={"a" * 41: {}})


def test_pool_without_settings() -> None:
    """A pool needs no values: Kubernetes and Penstock have defaults; zero replicas are kept."""
    made = pods(workers={"empty": {}, "none": {"replicas": 0}})
    assert made["worker-empty"]["containers"][0]["args"] == [
        "worker", "--pool", "empty", "--slots", "5",
    ]  # fmt: skip
    replicas = {
        one["metadata"]["name"]: one["spec"].get("replicas")
        for one in render(workers={"empty": {}, "none": {"replicas": 0}})
        if one["kind"] == "Deployment"
    }
    assert replicas["night-penstock-worker-empty"] is None
    assert replicas["night-penstock-worker-none"] == 0


def test_owner_and_application_have_their_own_secrets() -> None:
    """Only the migration and the scheduler get the owner's URL once there is another one."""
    owner = {"name": "penstock-database", "key": "url"}
    app = {"name": "penstock-app", "key": "url"}
    assert {name: secret_of(pod) for name, pod in pods(**scaled()).items()} == {
        "migrate": owner, "scheduler": owner,
        "api": app, "worker-default": app, "worker-heavy": app, "worker-bare": app,
    }  # fmt: skip
    assert all(secret_of(pod) == owner for pod in pods().values())


@pytest.mark.parametrize("unset", [{"pipelines": []}, {"pipelines": None}])
def test_pipelines_are_required(unset: dict[str, Any]) -> None:
    """Without pipelines the chart says what to set; it never deploys those of the demo."""
    assert yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["pipelines"] == []
    with pytest.raises(Exception, match="Set pipelines to the modules of your image"):
        render(**unset)


def test_every_process_is_probed() -> None:
    """Workers and the scheduler serve their metrics on the port that their probes request."""
    for name, pod in pods().items():
        (container,) = pod["containers"]
        if name == "migrate":
            assert "livenessProbe" not in container
            continue
        (port,) = container["ports"]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]
        if name != "api":
            env = {one["name"]: one.get("value") for one in container["env"]}
            assert container["livenessProbe"]["httpGet"]["path"] == "/metrics"
            assert env["PENSTOCK_METRICS_HOST"] == "0.0.0.0"
            assert env["PENSTOCK_METRICS_PORT"] == str(port["containerPort"])


def drain_of(pod: dict[str, Any]) -> int:
    """Return the seconds in which a pod's process ends or releases its active runs."""
    (container,) = pod["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    return int(env["PENSTOCK_DRAIN"].removesuffix("s"))


@pytest.mark.parametrize("grace", [20, 60, 3600])
def test_stopping_has_time_for_closing(grace: int) -> None:
    """After the drain every pod has 15 s before SIGKILL; a stopping API pod serves on before."""
    made = pods(terminationGracePeriodSeconds=grace)
    (container,) = made["api"]["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, int(seconds) > 0) == ("sleep", True)
    for name, pod in made.items():
        before = int(seconds) if name == "api" else 0
        assert pod["terminationGracePeriodSeconds"] == before + grace
        assert drain_of(pod) == grace - 15 >= 5


def test_too_short_a_grace_period_is_refused() -> None:
    """Without time for closing the chart says what is needed."""
    with pytest.raises(Exception, match="terminationGracePeriodSeconds to at least 20"):
        render(terminationGracePeriodSeconds=19)


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "PIPELINES", "DRAIN", "METRICS_HOST", "METRICS_PORT"]
)
def test_variables_of_the_chart_are_refused(name: str) -> None:
    """A second value of a variable would win over the one that probes and grace periods expect."""
    name = f"PENSTOCK_{name}"
    for changes in ({"settings": {name: "9"}}, {"extraEnv": [{"name": name, "value": "9"}]}):
        with pytest.raises(Exception, match=f"{name} is set by the chart: remove it from settings"):
            render(**changes)
    (container,) = pods(settings={"PENSTOCK_POOL_SIZE": 4})["api"]["containers"]
    names = [one["name"] for one in container["env"]]
    assert name in names
    assert len(names) == len(set(names))


def test_a_variable_has_one_value() -> None:
    """Kubernetes would take the last one, without a word."""
    twice = {"PENSTOCK_POOL_SIZE": "4"}
    with pytest.raises(Exception, match="in settings and in extraEnv"):
        render(settings=twice, extraEnv=[{"name": "PENSTOCK_POOL_SIZE", "value": "5"}])


def test_extra_files_reach_every_container() -> None:
    """Extra variables, volumes and mounts are added to those of the chart."""
    for pod in pods(**scaled()).values():
        (container,) = pod["containers"]
        assert {one["name"] for one in pod["volumes"]} == {"tmp", "keys"}
        assert {one["mountPath"] for one in container["volumeMounts"]} == {"/tmp", "/keys"}
        assert container["env"][-1]["name"] == "PENSTOCK_ENCRYPTION_KEY_FILE"


def documented() -> list[dict[str, Any]]:
    """Return the YAML of the section about Kubernetes in docs/operations/deploy.md."""
    page = (DEPLOY.parent / "docs" / "operations" / "deploy.md").read_text("utf-8")
    texts = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [one for text in texts for one in yaml.safe_load_all(text)]


def test_documented_values() -> None:
    """The values of the page exist in the chart and reach the ingress."""
    values, *_ = documented()
    api = defaults()["api"]
    assert values["api"]["ingress"].keys() <= api["ingress"].keys()
    shown = {**api, "ingress": {**api["ingress"], **values["api"]["ingress"]}}
    objects = render(api=shown, settings=values["settings"])
    (ingress,) = (one for one in objects if one["kind"] == "Ingress")
    assert ingress["spec"]["tls"] == [
        {"secretName": "penstock-tls", "hosts": ["penstock.example.com"]}
    ]
    assert ingress["metadata"]["annotations"] == values["api"]["ingress"]["annotations"]


def chosen(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether a selector of the page selects a pod."""
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "NotIn"
        if labels.get(one["key"]) in one["values"]:
            return False
    return bool(selector["matchLabels"].items() <= labels.items())


def test_documented_manifests() -> None:
    """Each PodMonitor selects the pods that have its port; the NetworkPolicy is valid."""
    _, *manifests = documented()
    objects = render(**scaled())
    ports = {}
    for one in objects:
        if one["kind"] in {"Deployment", "Job"}:
            pod = one["spec"]["template"]
            (container,) = pod["spec"]["containers"]
            names = {port["name"] for port in container.get("ports", [])}
            ports[one["metadata"]["name"]] = (pod["metadata"]["labels"], names)
    kinds = [one["kind"] for one in manifests]
    assert kinds == ["PodMonitor", "PodMonitor", "NetworkPolicy"]
    for monitor in manifests[:2]:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        for labels, names in ports.values():
            assert chosen(monitor["spec"]["selector"], labels) is (endpoint["port"] in names)
    policy = manifests[2]
    for version in KUBERNETES:
        validate.validate(policy, version, strict=True)
    assert all(chosen(policy["spec"]["podSelector"], labels) for labels, _ in ports.values())
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert opened == set().union(*(names for _, names in ports.values()))


def test_dockerfile() -> None:
    """Hadolint finds nothing, and the image does not run as root."""
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert found is not None
    done = subprocess.run(
        [found, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "\nUSER 10001:10001\n" in (DEPLOY / "Dockerfile").read_text("utf-8")
