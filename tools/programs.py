#!/usr/bin/env python3
"""Builds the programs of tests, and runs them without cargo, whose lock others hold while they build.

    tools/programs.py build
    tools/programs.py run [--built] [NAME...] [-- ARGUMENT...]

`build` builds all of them and lists them in TARGET/programs.json. `run` runs integration tests by name, or, without a name,
all programs that `cargo test` runs by default; each in the directory of its package, as cargo does. It builds them first;
with `--built` it takes those of the list. All run, whichever fails; the last lines name those that failed.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARGO = os.environ.get("CARGO", "cargo")
LIST = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "programs.json")

# Tests of the packages of both programs, which cargo builds with them: stories start the other one as well.
WITH_PROGRAMS = ("--test", "cli")

# Always of the whole workspace: some packages alone would have other features, and all of it be built again.
BUILD = ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]


def build(targets):
    """Builds the programs of these targets. Returns name, source, directory, path, and whether `cargo test` runs it by default."""
    programs = []
    with subprocess.Popen([CARGO, *BUILD, *targets], cwd=ROOT, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
                target, package = message["target"], os.path.dirname(message["manifest_path"])
                programs.append({
                    "name": target["name"] if "test" in target["kind"] else None,
                    "source": os.path.relpath(target["src_path"], ROOT),
                    "directory": package,
                    "path": message["executable"],
                    "default": target["test"],
                })
    if cargo.returncode:
        sys.exit(cargo.returncode)
    return sorted(programs, key=lambda program: program["source"])


def run(names, arguments, built):
    if not built:
        programs = build([*(word for name in names for word in ("--test", name)), *WITH_PROGRAMS] if names else ["--tests"])
    else:
        with open(LIST, encoding="utf-8") as file:
            programs = json.load(file)
    wanted = [program for program in programs if (program["name"] in names if names else program["default"])]
    unknown = set(names) - {program["name"] for program in wanted}
    if unknown or not wanted:
        sys.exit(f"programs: no program of tests is called {', '.join(sorted(unknown))}")
    failed = []
    for program in wanted:
        print(f"     Running {program['source']}", flush=True)
        environment = {**os.environ, "CARGO_MANIFEST_DIR": program["directory"]}
        command = [program["path"], *arguments]
        if subprocess.run(command, cwd=program["directory"], env=environment).returncode:
            failed.append(program["source"])
    if failed:
        sys.exit(f"programs: failed: {', '.join(failed)}")


def main(arguments):
    if arguments == ["build"]:
        programs = build(["--lib", "--bins", "--test", "*"])
        with open(LIST, "w", encoding="utf-8") as file:
            json.dump(programs, file, indent=1)
    elif arguments[:1] == ["run"]:
        own, rest = arguments[1:], []
        if "--" in own:
            at = own.index("--")
            own, rest = own[:at], own[at + 1 :]
        run([name for name in own if name != "--built"], rest, "--built" in own)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
