#!/usr/bin/env python3
"""Runs volpipe_cpu_bench and makes a Markdown table of it: volpipe beside the fastest of ITK's filters for the same work.

usage: cpu.py [--bench PROGRAM] [--size 256] [--threads N] [--repetitions 7] [--filter REGEX] [--json FILE] [--out FILE]

Every figure is the median over repetitions that are mixed at random, so that other work on the machine meets all alike.
With --json FILE an earlier output of the program (--benchmark_out) is read instead.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GOAL = 3


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor() or "CPU"


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip() or "unknown"


def run(options, path):
    command = [options.bench, f"--benchmark_out={path}", "--benchmark_out_format=json", "--benchmark_min_time=0.2",
               f"--benchmark_repetitions={options.repetitions}", "--benchmark_enable_random_interleaving=true",
               "--benchmark_report_aggregates_only=true", f"--benchmark_filter={options.filter}", "--size", str(options.size)]
    subprocess.run(command + (["--threads", str(options.threads)] if options.threads else []), check=True)


def medians(report):
    """{case: {who: benchmark}}, in the order of the program."""
    cases = {}
    for entry in sorted(report["benchmarks"], key=lambda entry: entry["family_index"]):
        if entry.get("aggregate_name") == "median":
            case, _, who = entry["run_name"].removesuffix("/process_time/real_time").partition("/")
            cases.setdefault(case, {})[who] = entry
    return cases


def in_words(who, entry):
    differs = entry.get("difference", 0)
    return who + (f" (differs by {differs:.0e})" if differs > 1e-5 else "")


def by_filter(peers):
    """The faster of ITK's two threaders, for each filter."""
    best = {}
    for who, entry in peers.items():
        name = who.removesuffix(", pool").removesuffix(", platform")
        if name not in best or entry["real_time"] < best[name]["real_time"]:
            best[name] = entry
    return dict(sorted(best.items(), key=lambda item: item[1]["real_time"]))


def table(report, about):
    context = report["context"]
    size = context["volpipe_size"]
    lines = [f"# {about['cpu']}, {context['volpipe_threads']} threads, {about['date']}", "",
             f"{size}^3 float32, standard normal; medians in milliseconds. ITK {context['itk_version']}, volpipe at {about['commit']}. "
             f"Load of the machine at the start: {context['load_avg'][0]:.1f} on {context['num_cpus']} CPUs." if context.get("load_avg") else "",
             "For each filter the faster of ITK's pool and platform threaders counts. \"Differs\" is the greatest difference",
             "from volpipe's result away from the edges, in parts of the range, where it is more than rounding. CPU time, of all",
             "threads, depends less on what else the machine does.", "",
             "| operation | volpipe | fastest peer | its time | times faster | at least 3 | times less CPU time | other peers |",
             "|---|---|---|---|---|---|---|---|"]
    for case, who in medians(report).items():
        ours = who.pop("volpipe")
        (name, fastest), *others = by_filter(who).items()
        ratio = fastest["real_time"] / ours["real_time"]
        rest = "; ".join(f"{in_words(*other)}: {other[1]['real_time']:.1f}" for other in others)
        lines.append(f"| {case} | {ours['real_time']:.1f} | {in_words(name, fastest)} | {fastest['real_time']:.1f} | {ratio:.1f} "
                     f"| {'yes' if ratio >= GOAL else 'no'} | {fastest['cpu_time'] / ours['cpu_time']:.1f} | {rest} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=HERE.parents[1] / "build" / "dev" / "bin" / "volpipe_cpu_bench")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--threads", type=int, help="default: all that this process may use")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--filter", default=".", help="only the cases that match, such as '^(affine|warp)'")
    parser.add_argument("--json", type=pathlib.Path, help="an output of the program to read instead of running it")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here as well")
    options = parser.parse_args()
    if options.json:
        report = json.loads(options.json.read_text())
    else:
        with tempfile.TemporaryDirectory(prefix="volpipe-bench-") as folder:
            path = os.path.join(folder, "cpu.json")
            run(options, path)
            report = json.loads(pathlib.Path(path).read_text())
    text = table(report, {"cpu": cpu_model(), "date": datetime.date.today().isoformat(), "commit": commit()})
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
