#!/usr/bin/env python3
"""Puts the stage table of `volpipe stages --markdown` between its markers in README.md; --check only compares."""
import pathlib
import re
import subprocess
import sys

program, *options = sys.argv[1:] or ["build/dev/bin/volpipe"]
readme = pathlib.Path(__file__).resolve().parent.parent / "README.md"
table = subprocess.run([program, "stages", "--markdown"], check=True, capture_output=True, text=True).stdout
text = readme.read_text()
updated = re.sub(r"(<!-- stages -->\n).*(<!-- /stages -->)", lambda m: m[1] + table + m[2], text, flags=re.S)
if "--check" in options:
    sys.exit(0 if updated == text else "README.md has an old stage table: run scripts/update_readme.py")
readme.write_text(updated)
