#!/usr/bin/env python3
"""Names of public types that stand for more than one thing.

    tools/names.py [--list]

A name of a public struct, enum, trait or alias belongs to one type of the whole tree. `SHARED` names may stand several times, as
their path always comes with them. `OPEN` is the number of names that do not keep to this yet. It only ever falls: whoever renames
some lowers it. `--list` prints them with their files.
"""

import collections
import os
import re
import subprocess
import sys

OPEN = 16
SHARED = {"Handshake", "Step"}

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TYPE = re.compile(r"^\s*pub (?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.M)


def public(text):
    """Public types of a file, without those of its tests and associated types."""
    text = text.split("\n#[cfg(test)]\nmod tests {")[0]
    return TYPE.findall(text)


def main(arguments):
    files = subprocess.run(["git", "ls-files", "crates/*/src/*.rs", "lab/*/src/*.rs"], cwd=ROOT, capture_output=True, text=True, check=True)
    places = collections.defaultdict(list)
    for name in files.stdout.split():
        path = os.path.join(ROOT, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for found in public(file.read()):
                    places[found].append(name)
    twice = {name: where for name, where in sorted(places.items()) if len(where) > 1 and name not in SHARED}
    if "--list" in arguments:
        for name, where in twice.items():
            print(f"{name}: {', '.join(where)}")
    if len(twice) > OPEN:
        print(f"names: {len(twice)} public types share a name with another, {OPEN} may (tools/names.py --list): name the thing")
    elif len(twice) < OPEN:
        print(f"names: only {len(twice)} public types share a name: lower OPEN of tools/names.py to that")
    return 0 if len(twice) == OPEN else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
