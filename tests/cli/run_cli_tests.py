#!/usr/bin/env python3
"""Runs a file of command-line tests.

Each line is `EXIT  COMMAND`: bash runs the command in a folder of its own, and it must end with that exit code. `#` starts
a comment line. The commands see $VOLPIPE (the program), $SAMPLES (sample_data), $CONFIGS (configs), and $SHARED, a folder
of further data, where the environment has one: without it the lines that mention it are skipped.
"""

import os
import subprocess
import sys
import tempfile

TIMEOUT_S = 300


def read_tests(path):
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            code, _, command = line.partition(" ")
            if not code.isdigit() or not command.strip():
                sys.exit(f"{path}:{number}: not `EXIT  COMMAND`: {line}")
            yield number, int(code), command.strip()


def run(command):
    with tempfile.TemporaryDirectory(prefix="volpipe_cli_") as folder:
        try:
            done = subprocess.run(["/bin/bash", "-c", command], cwd=folder, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", text=True)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            return None, f"still running after {TIMEOUT_S} s"


def main():
    failed = passed = skipped = 0
    for path in sys.argv[1:]:
        for number, expected, command in read_tests(path):
            if "$SHARED" in command and not os.path.isdir(os.environ.get("SHARED", "")):
                skipped += 1
                continue
            code, output = run(command)
            if code == expected:
                passed += 1
                continue
            failed += 1
            print(f"{path}:{number}: exit code {code}, expected {expected}: {command}")
            print("".join(f"    {line}\n" for line in output.splitlines()[-20:]))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped: $SHARED is not set" if skipped else ""))
    sys.exit(1 if failed or not passed + skipped else 0)


main()
