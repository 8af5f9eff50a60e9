"""The Helm chart, rendered: Kubernetes' schemas and checkov find no problem, the gate accepts its settings and policy,
and it agrees with the compose file, the systemd unit and the container file. There is no cluster."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from samplegate.config.serve_settings import ServeSettings
from tests.deployment import typescript
from tests.deployment.chart import CHART, SECRETS, SHAPES, TOOLS, Rendered, installed, render, tool
from tests.fakes.system_programs import DEPLOY, run
from tests.fakes.systemd_unit import UNIT, directives
from tests.paths import ROOT

pytestmark = pytest.mark.real
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["gate"]
IMAGE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
DIGEST: Final = f"sha256:{'0' * 64}"
ACCEPTED: Final = {
    "CKV_K8S_11": "a limit of CPU time would slow the event loop at every peak; requests share the CPU fairly"
}
"""What checkov finds, and why it is so."""


def changed(**values: Any) -> dict[str, Any]:
    """The values of the gateway, with others in their place; None removes one."""
    return {**copy.deepcopy(SHAPES["gateway"]), **values}


MORE: Final = {
    "defaults": {"settings": {"servers": {"docs": {"url": "http://docs:8000/mcp"}}}},
    "slow": changed(settings={**SHAPES["gateway"]["settings"], "drain_delay": 60, "drain_timeout": 600}),
    "ports": changed(ports={"clients": 8100, "operators": 9500, "reviews": 8200}),
    "indented": changed(
        policy="# a comment\n\n  \nversion: 1\nrules: []\n", files={"notes.txt": "  first\n# second\n"}
    ),
    "own user": {
        **SHAPES["sidecar"],
        "server": {**SHAPES["sidecar"]["server"], "securityContext": {"readOnlyRootFilesystem": False}},
    },
    "hosts": changed(
        settings={**SHAPES["gateway"]["settings"], "database": "postgresql://gates@[fd00::1]:5500,db2,db3/gates?a=b"}
    ),
    "ports of hosts": changed(
        settings={**SHAPES["gateway"]["settings"], "database": "postgresql://gates@db1,db2/gates?a=b&port=6432,6433"}
    ),
}
README: Final = (CHART / "README.md").read_text("utf-8")
EXAMPLES: Final = {
    f"example {number}": yaml.safe_load(text)
    for number, text in enumerate(re.findall(r"^```yaml chart\n(.*?)^```$", README, re.MULTILINE | re.DOTALL), 1)
}
REFUSED: Final = {
    "an unknown value": changed(replica=3),
    "an unknown value below another": changed(migrations={"keepdays": 3}),
    "an unknown setting": changed(settings={"polcy": "policy.yaml"}),
    "a listener, which the chart sets": changed(settings={"listen": "0.0.0.0:80"}),
    "no servers": changed(settings={"servers": {}}),
    "a password in the database's URL": changed(settings={"database": "postgresql://gates:secret@db/gates"}),
    "a password in its options": changed(settings={"database": "postgresql://gates@db/gates?password=secret"}),
    "the owner's password": changed(migrations={"database": "postgresql://owner:secret@db/gates"}),
    "no clients, which a NetworkPolicy would read as all": changed(networkPolicy={"clients": []}),
    "another kind of sidecar": {**SHAPES["sidecar"], "server": {"image": "x:1", "restartPolicy": "Never"}},
}


@pytest.fixture(scope="module")
def charts() -> dict[str, Rendered]:
    return render({**SHAPES, **MORE, **EXAMPLES, **REFUSED})


@pytest.fixture
def gateway(charts: dict[str, Rendered]) -> Rendered:
    return charts["gateway"]


@pytest.fixture
def sidecar(charts: dict[str, Rendered]) -> Rendered:
    return charts["sidecar"]


@pytest.mark.parametrize("name", [*SHAPES, *MORE, *EXAMPLES])
def test_lint_and_the_schemas_of_kubernetes_find_nothing(charts: dict[str, Rendered], name: str) -> None:
    assert ("", (), ()) == (charts[name].refused, charts[name].lint, charts[name].problems)
    assert charts[name].objects


def test_the_schemas_notice_an_unknown_field(tmp_path: Path) -> None:
    program = "import json, sys, render; print(json.dumps(render.problems(json.load(sys.stdin), render.VERSIONS[0])))"
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"portz": []}}
    code, said = run(
        tool("helm", "python"), "-c", program, input=json.dumps(wrong).encode(), env={"PYTHONPATH": str(TOOLS)}
    )
    assert (0, 1) == (code, len(json.loads(said))), said


@pytest.mark.parametrize("name", REFUSED)
def test_helm_refuses(charts: dict[str, Rendered], name: str) -> None:
    assert "don't meet the specifications of the schema" in charts[name].refused
    assert "secret" not in charts[name].refused


# --- custom resources -----------------------------------------------------------------------------------------------

CUSTOM: Final = ("PodMonitor", "PrometheusRule", "HTTPRoute")


def test_the_custom_resources_have_the_types_that_are_published(gateway: Rendered, tmp_path: Path) -> None:
    parts = {f"right{kind}": (kind, gateway.one(kind)) for kind in CUSTOM}
    assert {} == typescript.problems(TOOLS / "resources.ts", parts, tmp_path)
    wrong = {f"wrong{kind}": (kind, copy.deepcopy(gateway.one(kind))) for kind in CUSTOM}
    wrong["wrongPodMonitor"][1]["spec"]["podMetricsEndpoints"][0]["prt"] = "operators"
    wrong["wrongPrometheusRule"][1]["spec"]["groups"][0]["rules"][0]["expr"] = None
    wrong["wrongHTTPRoute"][1]["spec"]["rules"][0]["timeout"] = {"request": "0s"}
    assert sorted(wrong) == sorted(typescript.problems(TOOLS / "resources.ts", wrong, tmp_path))


def test_objects_of_the_prometheus_operator_are_there_if_it_is(charts: dict[str, Rendered]) -> None:
    assert set() == {each["kind"] for each in charts["defaults"].objects} & set(CUSTOM)
    template = (CHART / "templates" / "monitoring.yaml").read_text("utf-8")
    conditions = re.findall(r'\$has\.Has "([\w./]+)/(\w+)"\)\) \}\}\n---\napiVersion: (\S+)\nkind: (\S+)', template)
    assert ["PodMonitor", "PrometheusRule"] == [kind for _, kind, _, _ in conditions]
    assert [] == [found for found in conditions if found[:2] != found[2:]]


def test_prometheus_finds_the_gates_under_the_job_that_the_alerts_name(gateway: Rendered) -> None:
    spec = gateway.one("PodMonitor")["spec"]
    labels = gateway.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert "samplegate" == labels[spec["jobLabel"]]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert [{"port": "operators", "path": "/metrics"}] == spec["podMetricsEndpoints"]
    assert 'job="samplegate"' in (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")


def test_the_alerts_and_the_dashboard_are_the_shipped_ones(gateway: Rendered) -> None:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert alerts == gateway.one("PrometheusRule")["spec"]
    board = gateway.one("ConfigMap", "gate-dashboard")["data"]["samplegate.json"]
    assert json.loads((DEPLOY / "grafana" / "samplegate.json").read_text("utf-8")) == json.loads(board)


# --- posture --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_checkov_finds_only_what_is_accepted(tmp_path: Path) -> None:
    pinned = {
        name: {**values, "image": {"repository": "r.example.com/x", "digest": DIGEST}}
        for name, values in SHAPES.items()
    }
    for name, chart in render(pinned).items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(chart.objects), "utf-8")
    checkov = tool("checkov", "checkov")
    _, said = run(checkov, "-d", tmp_path, "--framework", "kubernetes", "--skip-download", "--compact", "-o", "json")
    found = json.loads(said)
    assert (0, True) == (found["summary"]["parsing_errors"], found["summary"]["passed"] > 300)
    failed = {check["check_id"]: check["check_name"] for check in found["results"]["failed_checks"]}
    assert sorted(ACCEPTED) == sorted(failed), failed


def containers(chart: Rendered) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in chart.pods.items():
        for each in [*pod.get("initContainers", ()), *pod["containers"]]:
            yield f"{name} {each['name']}", each


@pytest.mark.parametrize("name", SHAPES)
def test_every_container_is_restricted(charts: dict[str, Rendered], name: str) -> None:
    for at, container in containers(charts[name]):
        security = container["securityContext"]
        assert security["runAsUser"] >= 10_000, at
        assert {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False} == {
            key: security[key] for key in ("runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation")
        }, at
        assert {"drop": ["ALL"]} == security["capabilities"], at
        assert {"requests", "limits"} == container["resources"].keys(), at
    for pod in charts[name].pods.values():
        assert {"type": "RuntimeDefault"} == pod["securityContext"]["seccompProfile"]
        assert (False, False) == (pod["automountServiceAccountToken"], pod["enableServiceLinks"])
    assert charts[name].one("ServiceAccount")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", SHAPES)
def test_secrets_are_files_of_secrets_that_exist_already(charts: dict[str, Rendered], name: str) -> None:
    assert [] == [each for each in charts[name].objects if each["kind"] == "Secret"]
    assert [] == [at for at, each in containers(charts[name]) for entry in each.get("env", ()) if "value" not in entry]
    owners = {
        owner: volume["secret"]["secretName"]
        for owner, pod in charts[name].pods.items()
        for volume in pod["volumes"]
        if "secret" in volume
    }
    migrating = {f"gate-{kind}": "samplegate-owner" for kind in ("migrate", "partitions")}
    assert {"gate": "samplegate", **(migrating if len(owners) > 1 else {})} == owners


@pytest.mark.parametrize("name", SHAPES)
def test_a_container_mounts_volumes_that_exist_and_writes_only_to_temporary_ones(
    charts: dict[str, Rendered], name: str
) -> None:
    for pod in charts[name].pods.values():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            for mount in container.get("volumeMounts", ()):
                assert mount.get("readOnly") or "sizeLimit" in volumes[mount["name"]]["emptyDir"]


def test_only_the_owner_can_read_the_password_file_because_libpq_ignores_others(
    gateway: Rendered, charts: dict[str, Rendered], tmp_path: Path
) -> None:
    for pod in gateway.pods.values():
        (copying,) = pod["initContainers"]
        (tmp_path / "pgpass").unlink(missing_ok=True)
        (tmp_path / "in").write_text("db:5432:gates:gates:x\n")
        (tmp_path / "in").chmod(0o440)
        places = {f"{SECRETS}/pgpass": tmp_path / "in", "/run/pgpass/pgpass": tmp_path / "pgpass"}
        assert (0, "") == run(*[places.get(word, word) for word in copying["command"]])
        assert (0o600, "db:5432:gates:gates:x\n") == (
            (tmp_path / "pgpass").stat().st_mode & 0o777,
            (tmp_path / "pgpass").read_text(),
        )
    assert "initContainers" not in charts["minimal"].pod


# --- settings, policy and database ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SHAPES, *EXAMPLES, "defaults"])
def test_the_gate_accepts_the_rendered_settings_and_policy(
    charts: dict[str, Rendered], name: str, tmp_path: Path
) -> None:
    settings = installed(charts[name], tmp_path)
    variables = {each["name"]: each["value"] for each in charts[name].gate["env"]}
    environment = {
        **variables,
        "PYTHONPATH": str(ROOT / "proxy"),
        "SAMPLEGATE_STATE": str(tmp_path),
        "HOME": str(tmp_path),
    }
    serve = [settings if word == "/etc/samplegate/samplegate.yaml" else word for word in charts[name].gate["args"]]
    for command in (["check", settings], [*serve, "--check"]):
        code, said = run(sys.executable, "-m", "samplegate", *command, env=environment)
        assert 0 == code, said


def test_a_policy_and_files_arrive_as_they_were_written(charts: dict[str, Rendered]) -> None:
    files, wanted = charts["indented"].files, MORE["indented"]
    assert (wanted["policy"], wanted["files"]["notes.txt"]) == (files["policy.yaml"], files["notes.txt"])


def test_pods_are_not_replaced_when_only_files_change(gateway: Rendered) -> None:
    template = gateway.one("Deployment")["spec"]["template"]
    assert (["labels"], []) == (
        [*template["metadata"]],
        [key for key in template["metadata"]["labels"] if "version" in key],
    )
    assert [] == [mount for mount in gateway.gate["volumeMounts"] if "subPath" in mount]


def test_migrations_run_before_the_gates_and_daily(gateway: Rendered, charts: dict[str, Rendered]) -> None:
    job = gateway.one("Job", "gate-migrate")
    assert "pre-install,pre-upgrade" == job["metadata"]["annotations"]["helm.sh/hook"]
    assert ["database", "migrate", "--database"] == gateway.pods["gate-migrate"]["containers"][0]["args"][:3]
    daily = gateway.pods["gate-partitions"]["containers"][0]["args"]
    assert [*gateway.pods["gate-migrate"]["containers"][0]["args"], "--keep-days", "90"] == daily
    assert {"gate"} == charts["minimal"].pods.keys()


# --- probes, drain and network --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gateway", "sidecar", "slow"])
def test_a_pod_has_the_time_that_the_drain_needs(charts: dict[str, Rendered], name: str) -> None:
    settings = yaml.safe_load(charts[name].files["samplegate.yaml"])
    assert charts[name].pod["terminationGracePeriodSeconds"] > settings["drain_delay"] + settings["drain_timeout"] + 10
    assert "lifecycle" not in charts[name].gate


def test_a_pod_that_drains_is_not_ready_before_it_stops_accepting(gateway: Rendered) -> None:
    probe, settings = gateway.gate["readinessProbe"], yaml.safe_load(gateway.files["samplegate.yaml"])
    assert probe["failureThreshold"] * probe["periodSeconds"] < settings["drain_delay"]


def test_probes_ask_the_operators_listener(gateway: Rendered) -> None:
    for name, path in {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}.items():
        assert {"path": path, "port": "operators"} == gateway.gate[f"{name}Probe"]["httpGet"]


def ports(chart: Rendered) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in chart.gate["ports"]}


def listeners(chart: Rendered) -> dict[str, int]:
    names = {"LISTEN": "clients", "ADMIN_LISTEN": "operators", "REVIEWS_LISTEN": "reviews"}
    found = {each["name"].removeprefix("SAMPLEGATE_"): each["value"] for each in chart.gate["env"]}
    return {port: int(found[name].rpartition(":")[2]) for name, port in names.items() if name in found}


@pytest.mark.parametrize("name", [*SHAPES, "ports"])
def test_ports_are_those_of_the_listeners(charts: dict[str, Rendered], name: str) -> None:
    chart = charts[name]
    assert listeners(chart) == ports(chart)
    assert ("reviews" in ports(chart)) == ("people" in yaml.safe_load(chart.files["samplegate.yaml"]))
    service = {port["targetPort"]: port["port"] for port in chart.one("Service")["spec"]["ports"]}
    assert {key: port for key, port in ports(chart).items() if key != "operators"} == service


def opened(rules: list[dict[str, Any]]) -> list[Any]:
    return [port["port"] for rule in rules for port in rule["ports"]]


def test_the_network_policy_opens_the_listeners_and_what_the_gate_needs(gateway: Rendered) -> None:
    spec = gateway.one("NetworkPolicy")["spec"]
    assert ["clients", "operators", "reviews"] == opened(spec["ingress"])
    assert [] == [rule for rule in spec["ingress"] if not rule["from"]]
    assert [53, 53, 5432, 443, 8000] == opened(spec["egress"])
    assert spec["podSelector"]["matchLabels"].items() <= (
        gateway.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    )
    migrations = gateway.one("NetworkPolicy", "gate-migrations")["spec"]
    assert ([53, 53, 5432], None) == (opened(migrations["egress"]), migrations.get("ingress"))


def test_the_database_ports_are_those_of_its_url(charts: dict[str, Rendered]) -> None:
    assert [53, 53, 5500, 5432, 443, 8000] == opened(charts["hosts"].one("NetworkPolicy")["spec"]["egress"])
    assert [53, 53, 6432, 6433, 443, 8000] == opened(charts["ports of hosts"].one("NetworkPolicy")["spec"]["egress"])


def test_the_ports_without_values_are_those_of_the_settings(charts: dict[str, Rendered]) -> None:
    assert ServeSettings().listen.rpartition(":")[2] == str(ports(charts["defaults"])["clients"])


# --- sidecar --------------------------------------------------------------------------------------------------------


def test_the_server_starts_before_the_gate_and_ends_after_it(sidecar: Rendered) -> None:
    assert ["password-file", "tickets"] == [each["name"] for each in sidecar.pod["initContainers"]]
    assert ("Always", False) == (
        sidecar.pod["initContainers"][1]["restartPolicy"],
        sidecar.pod["shareProcessNamespace"],
    )
    assert ["gate"] == [each["name"] for each in sidecar.pod["containers"]]


def test_the_server_sees_no_file_of_the_gate_and_is_another_user(
    sidecar: Rendered, charts: dict[str, Rendered]
) -> None:
    server = sidecar.pod["initContainers"][1]
    assert ("volumeMounts" not in server, True) == (True, server["securityContext"]["runAsUser"] != 10001)
    own = charts["own user"].pod["initContainers"][1]["securityContext"]
    assert (False, False) == (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"])


# --- the same in compose, systemd and the image -----------------------------------------------------------------------


def variables() -> dict[str, str]:
    return dict(re.findall(r"(SAMPLEGATE_\w+)=(\S+)", IMAGE))


def test_image_user_command_and_folders_are_those_of_the_container_file(charts: dict[str, Rendered]) -> None:
    chart = charts["defaults"]
    assert COMPOSE["image"] == chart.gate["image"]
    assert {f"{chart.gate['securityContext'][key]}" for key in ("runAsUser", "runAsGroup")} == set(
        re.findall(r"^USER (\d+):(\d+)$", IMAGE, re.MULTILINE)[0]
    )
    (command,) = re.findall(r"^CMD (.*)$", IMAGE, re.MULTILINE)
    assert json.loads(command) == chart.gate["args"]
    assert variables() == {each["name"]: each["value"] for each in chart.gate["env"]}
    (started,) = directives(UNIT.read_text("utf-8"))["ExecStart"]
    assert f"samplegate {' '.join(chart.gate['args'])} --state" in started
    mounts = {mount["mountPath"] for mount in chart.gate["volumeMounts"]}
    assert {volume.split(":")[1] for volume in COMPOSE["volumes"]} - {"/policies"} | {*COMPOSE["tmpfs"]} <= mounts
    assert sorted(re.findall(r"^EXPOSE (\d+) (\d+)$", IMAGE, re.MULTILINE)[0]) == sorted(
        map(str, ports(chart).values())
    )


def test_probes_are_as_frequent_and_patient_as_the_health_checks(charts: dict[str, Rendered]) -> None:
    check, gate = COMPOSE["healthcheck"], charts["defaults"].gate
    probe = gate["livenessProbe"]
    assert [check["interval"], check["timeout"], check["retries"]] == [
        f"{probe['periodSeconds']}s",
        f"{probe['timeoutSeconds']}s",
        probe["failureThreshold"],
    ]
    startup = gate["startupProbe"]["periodSeconds"] * gate["startupProbe"]["failureThreshold"]
    assert startup >= int(check["start_period"].removesuffix("s"))
    port = ports(charts["defaults"])["operators"]
    assert f"127.0.0.1:{port}{probe['httpGet']['path']}" in check["test"][-1]


def stop_margin(settings: str, seconds: object) -> int:
    """The seconds that a supervisor leaves after the drain that a settings file permits."""
    shipped, usual = yaml.safe_load(settings), ServeSettings()
    drain = sum(shipped.get(name, getattr(usual, name)) for name in ("drain_delay", "drain_timeout"))
    return int(str(seconds).removesuffix("s")) - int(drain)


def test_every_supervisor_leaves_the_drain_the_same_margin(charts: dict[str, Rendered]) -> None:
    margins = {
        name: stop_margin((DEPLOY / name / "samplegate.yaml").read_text("utf-8"), seconds)
        for name, seconds in (
            ("compose", COMPOSE["stop_grace_period"]),
            ("systemd", directives(UNIT.read_text("utf-8"))["TimeoutStopSec"][0]),
        )
    }
    for name in (*SHAPES, "slow"):
        margins[name] = stop_margin(
            charts[name].files["samplegate.yaml"], charts[name].pod["terminationGracePeriodSeconds"]
        )
    assert {15} == set(margins.values()), margins


def test_settings_and_secrets_have_the_same_names_everywhere(charts: dict[str, Rendered]) -> None:
    chart = yaml.safe_load(charts["defaults"].files["samplegate.yaml"])
    listeners_too = {*chart, "listen", "admin_listen"}  # the image's variables
    for name in ("compose", "systemd"):
        text = (DEPLOY / name / "samplegate.yaml").read_text("utf-8")
        assert yaml.safe_load(text).keys() <= listeners_too, name
        for secret in re.findall(r"/(?:run/secrets|run/credentials/[\w.]+)/([\w-]+)", text):
            assert f"{SECRETS}/{secret}" in charts["defaults"].files["samplegate.yaml"], secret


def test_memory_is_that_of_the_compose_file(charts: dict[str, Rendered]) -> None:
    assert COMPOSE["mem_limit"] == charts["defaults"].gate["resources"]["limits"]["memory"].removesuffix("i").lower()
