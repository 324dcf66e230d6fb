#!/usr/bin/env python3
"""Runs scripts/cluster/slurm_array.sh on a Slurm of its own: a controller and a node on this machine, their ports free
ones, all their files in one temporary folder.

Three of the four shards are disturbed while they run: one is killed outright, one is requeued as by a preemption, one
gets the warning that its time is nearly over. The results must be those of one undisturbed run, to the byte. A second
array holds a damaged file: its task must fail once, without being queued again, and so must its merge.

Environment: VOLPIPE and SAMPLES. Needs root and Debian's slurm-wlm and munge; exit code 77, skipped, without them.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SUBMIT = pathlib.Path(__file__).resolve().parents[2] / "scripts/cluster/slurm_array.sh"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo", "squeue")
SKIPPED = 77
LIMIT_S = 150
SHARDS = 4
COPIES = 48
KINDS = ("head_t1.nii.gz", "shepp_logan.nrrd", "head_t1.nii.gz")  # three, so that each of four shards has both
# Some tenths of a second an item, so that a shard lasts until it is disturbed, and small results.
SPEC = {
    "volpipe": 1,
    "stages": [
        {"op": "resample", "spacing": 1, "interpolation": "bspline3"},
        {"op": "elastic"},
        {"op": "gaussian", "sigma": {"uniform": [1, 2]}},
        {"op": "resample", "spacing": 4},
    ],
}
SLURM_CONF = """\
ClusterName=volpipe
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its credential has expired.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MpiDefault=none
ReturnToService=2
# Four tasks run at a time, whatever cores this machine has.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=4000 Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def end_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def kill_processes(*texts):
    """Those that have every one of the texts in their command line or environment, which name this run's folder."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if process.name != str(os.getpid()) and all(text.encode() in about for text in texts):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


def wait_until(what, condition, limit_s=60):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s: {what}")


class Slurm:
    """Daemons that live as long as the `with` block; nothing outside `folder` is touched."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        others = {name: value for name, value in os.environ.items() if not re.match("SLURM|SBATCH|SQUEUE", name)}
        self.environment = {**others, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if len(self.daemons) == 3:
            self.run("scancel", "--user=root", check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        kill_processes(str(self.folder))  # steps outlive the node's daemon

    def start_all(self):
        for name in ("controller", "node"):
            (self.folder / name).mkdir()
        controller_port, node_port = free_ports(2)
        host = socket.gethostname().split(".")[0]
        settings = {"host": host, "folder": self.folder, "controller_port": controller_port, "node_port": node_port}
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**settings))
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        socket_path = self.folder / "munge.socket"
        files = {"socket": socket_path, "key-file": key}
        files |= {f"{kind}-file": self.folder / f"munge.{kind}" for kind in ("pid", "seed", "log")}
        self.start("munged", "--foreground", "--force", *(f"--{flag}={path}" for flag, path in files.items()))
        wait_until("munged listens", socket_path.exists)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        wait_until("the node is idle", self.is_idle)

    def is_idle(self):
        for daemon in self.daemons:
            assert daemon.poll() is None, f"{daemon.args[0]} ended with exit code {daemon.returncode}"
        return "idle" in self.run("sinfo", "--noheader", "--format=%T", check=False)

    def start(self, *command):
        log = (self.folder / f"{command[0]}.log").open("wb")
        self.daemons.append(
            subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, preexec_fn=end_with_parent)
        )

    def run(self, *command, check=True):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def submit(self, *arguments):
        """Numbers of the array and of the merge."""
        words = self.run(SUBMIT, "-b", "--partition=all", "--cpus", "1", "--mem", "500M", *arguments).split()
        return words[1], words[3]

    def job(self, number):
        return dict(re.findall(r"(\S+?)=(\S*)", self.run("scontrol", "show", "job", "--oneliner", number)))

    def wait_for_end(self, number):
        return wait_until(f"job {number} ends", lambda: self.ended(number), LIMIT_S)

    def ended(self, number):
        job = self.job(number)
        return job if job["JobState"] not in ("PENDING", "RUNNING", "COMPLETING") else None


def disturb(slurm, array, out):
    """Each of the shards 1 to 3 once it has finished an item."""
    how = {
        1: lambda task: kill_processes(str(out), f"--shard\x001/{SHARDS}"),
        2: lambda task: slurm.run("scontrol", "requeue", task),
        3: lambda task: slurm.run("scancel", "--batch", "--signal=USR1", task),
    }
    waiting = set(how)

    def disturb_ready():
        for shard in sorted(waiting):
            journal = out / f"volpipe-journal.{shard}-of-{SHARDS}.jsonl"
            if journal.exists() and b'"id"' in journal.read_bytes():
                how[shard](f"{array}_{shard}")
                waiting.remove(shard)
            elif ended := slurm.ended(f"{array}_{shard}"):
                raise AssertionError(f"shard {shard} ended before it was disturbed: {ended}")
        return not waiting

    wait_until("the shards to disturb have finished an item", disturb_ready)
    killed = slurm.wait_for_end(f"{array}_1")
    assert (killed["JobState"], killed["ExitCode"]) == ("FAILED", "137:0"), killed
    slurm.run("scontrol", "requeue", f"{array}_1")


def checksums(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("volpipe-") and path.parent.name != "logs"
    }


def read_report(folder):
    return json.loads((folder / "volpipe-report.json").read_text())


def check_disturbed(slurm, volpipe, folder, spec):
    inputs, single, out = folder / "in", folder / "single", folder / "out"
    inputs.mkdir()
    for i in range(COPIES):
        kind = KINDS[i % len(KINDS)]
        shutil.copy(pathlib.Path(os.environ["SAMPLES"]) / kind, inputs / f"case{i:02d}_{kind}")

    array, merge = slurm.submit("--shards", str(SHARDS), spec, inputs, "-o", out)
    disturb(slurm, array, out)
    subprocess.run([volpipe, "run", spec, inputs, "-o", single, "-q", "--device", "cpu"], check=True)
    merged = slurm.wait_for_end(merge)
    assert merged["ExitCode"] == "0:0", merged

    assert checksums(out) == checksums(single) and len(checksums(out)) == COPIES
    items, expected = read_report(out)["items"], read_report(single)["items"]
    assert [item["id"] for item in items] == [item["id"] for item in expected]
    assert {item["status"] for item in items} <= {"ok", "resumed"}
    for shard in range(1, SHARDS + 1):
        task = slurm.job(f"{array}_{shard}")
        assert (task["JobState"], task["Restarts"]) == ("COMPLETED", "0" if shard == SHARDS else "1"), task
        totals = json.loads((out / f"volpipe-report.{shard}-of-{SHARDS}.json").read_text())["totals"]
        assert (totals["resumed"] > 0) == (shard != SHARDS), (shard, totals)
    logs = [(out / f"logs/shard-{shard}.log").read_text() for shard in range(1, SHARDS + 1)]
    assert [log.count("; report: ") for log in logs] == [1, 2, 2, 1], "who was asked to stop wrote a report, too"
    assert ["is queued again" in log for log in logs] == [False, False, True, False]


def check_damaged(slurm, folder, spec):
    inputs, out = folder / "in2", folder / "out2"
    inputs.mkdir()
    whole = (pathlib.Path(os.environ["SAMPLES"]) / "head_t1.nii.gz").read_bytes()
    (inputs / "whole.nii.gz").write_bytes(whole)
    (inputs / "damaged.nii.gz").write_bytes(whole[: len(whole) // 2])
    array, merge = slurm.submit("--shards", "2", "--gpu", spec, inputs, "-o", out)
    merged = slurm.wait_for_end(merge)
    assert merged["ExitCode"] == "1:0", merged
    tasks = [slurm.job(f"{array}_{shard}") for shard in (1, 2)]
    assert sorted(task["ExitCode"] for task in tasks) == ["0:0", "1:0"], tasks
    assert [task["Restarts"] for task in tasks] == ["0", "0"], tasks
    report = read_report(out)
    assert {item["id"]: item["status"] for item in report["items"]} == {"damaged": "failed", "whole": "ok"}
    assert report["device_requested"] == "cuda:0"
    assert list(checksums(out)) == ["whole.nii.gz"]


def show_logs(folder):
    for path in [*sorted(folder.glob("*.log")), *sorted(folder.glob("out*/logs/*"))]:
        print(f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-25:], sep="\n", file=sys.stderr)


def find_reason_to_skip():
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}: install slurm-wlm and munge"
    return "Slurm's daemons need root" if os.geteuid() != 0 else None


def give_up(*_):
    raise AssertionError(f"ended by a signal, or no end within {LIMIT_S} s")


def main():
    if reason := find_reason_to_skip():
        print(f"skipped: {reason}")
        return SKIPPED
    volpipe = os.environ["VOLPIPE"] = str(pathlib.Path(os.environ["VOLPIPE"]).resolve())
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)
    signal.alarm(LIMIT_S)
    with tempfile.TemporaryDirectory(prefix="volpipe-slurm-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)  # munged wants its socket to be reachable
        spec = folder / "spec.json"
        spec.write_text(json.dumps(SPEC))
        try:
            with Slurm(folder) as slurm:
                check_disturbed(slurm, volpipe, folder, spec)
                check_damaged(slurm, folder, spec)
        except BaseException:
            show_logs(folder)
            raise
    print("disturbed shards give what one run gives; a damaged file fails its task and the merge, once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
