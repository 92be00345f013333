#!/usr/bin/env python3
"""Circles among the source files of each crate.

    tools/circles.py [--list] [FOLDER...]

A file imports another if it names an item of that file's module by a path: `crate::a::b::Item`, `super::Item`,
`self::b::Item`, or `b::Item` for a module that it declares. A name that a module re-exports (`pub use`) counts for the
module that defines it. Files that import one another, directly or through others, are a circle. A module that declares another
one (`mod b;`) and does not name its items imports nothing.

Fails if a circle has more files than `MOST`. `--list` prints all circles, with the imports that tie them. Tests
(`#[cfg(test)] mod`, `tests.rs`, `testing.rs`) are not looked at.
"""

import os
import re
import sys

MOST = 2

# Folders of crates: what runs on a host, and what proves it.
WINGS = ("crates", "lab")

WORD = r"[A-Za-z_][A-Za-z0-9_]*"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])'", re.S)
ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+|const\s+|async\s+|unsafe\s+|extern\s+\"C\"\s+)*"
    rf"(?:struct|enum|union|trait|type|fn|const|static|macro_rules!)\s+(?:mut\s+)?({WORD})", re.M)
MOD = re.compile(rf"^\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+({WORD})\s*;", re.M)
USE = re.compile(r"^\s*((?:pub(?:\([^)]*\))?\s+)?)use\s+([^;]+);", re.M)
PATH = re.compile(rf"(?<![A-Za-z0-9_:.])((?:crate|self|super)(?:::{WORD})+|{WORD}(?:::{WORD})+)")


def without_tests(text):
    """The text without `#[cfg(test)]` items in braces."""
    out, at = [], 0
    for found in re.finditer(r"#\[cfg\((?:test|all\(test[^]]*)\)\]", text):
        if found.start() < at:
            continue
        out.append(text[at:found.start()])
        brace, end = text.find("{", found.end()), text.find(";", found.end())
        if end != -1 and (brace == -1 or end < brace):
            at = end + 1
            continue
        depth, i = 0, brace
        while i < len(text):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            i += 1
            if depth == 0:
                break
        at = i
    out.append(text[at:])
    return "".join(out)


def tree(use):
    """The paths of a `use` tree, as lists of segments, each with its name here."""
    use = use.strip()
    if "{" in use:
        head, rest = use.split("{", 1)
        rest = rest[: rest.rindex("}")]
        parts, depth, start = [], 0, 0
        for i, c in enumerate(rest + ","):
            depth += {"{": 1, "}": -1}.get(c, 0)
            if c == "," and depth == 0:
                parts.append(rest[start:i])
                start = i + 1
        for part in parts:
            if part.strip():
                for path, name in tree(part):
                    yield [s for s in head.strip().split("::") if s] + path, name
        return
    path, _, name = use.partition(" as ")
    path = [s.strip() for s in path.split("::") if s.strip()]
    if path and path[-1] == "self":
        path.pop()
    if path:
        yield path, name.strip() or path[-1]


class Crate:
    def __init__(self, root):
        self.files, self.modules = {}, {}
        self.root = root
        for name in ("lib.rs", "main.rs"):
            path = os.path.join(root, name)
            if os.path.exists(path):
                self.read(path, ())

    def read(self, path, module):
        with open(path, encoding="utf-8") as file:
            text = without_tests(STRING.sub('""', COMMENT.sub("", file.read())))
        uses = [(bool(pub), list(tree(use))) for pub, use in USE.findall(text)]
        mods = MOD.findall(text)
        self.modules[module] = {
            "path": path, "mods": set(mods), "items": set(ITEM.findall(text)), "uses": uses,
            "body": USE.sub("", text),
        }
        folder = os.path.dirname(path)
        if module and os.path.basename(path) != "mod.rs":
            folder = os.path.join(folder, module[-1])
        for mod in mods:
            for child in (f"{mod}.rs", f"{mod}/mod.rs"):
                at = os.path.join(folder, child)
                if os.path.exists(at) and mod not in ("tests", "testing"):
                    self.read(at, module + (mod,))

    def absolute(self, module, path):
        """A path's segments from the crate's root on, or None if it is another crate's."""
        head = path[0]
        if head == "crate":
            return tuple(path[1:])
        if head == "self":
            return module + tuple(path[1:])
        if head == "super":
            up, rest = module, list(path)
            while rest and rest[0] == "super":
                up, rest = up[:-1], rest[1:]
            return up + tuple(rest)
        if head in self.modules.get(module, {}).get("mods", ()):
            return module + tuple(path)
        return None

    def home(self, path, seen=()):
        """The module that defines what a path from the root names, and the name, through re-exports."""
        for cut in range(len(path), -1, -1):
            module = path[:cut]
            if module in self.modules:
                break
        if cut == len(path):
            return module, None
        name, here = path[cut], self.modules[module]
        if name in here["items"] or (module, name) in seen:
            return module, name
        for _, uses in here["uses"]:
            for use, known in uses:
                target = self.absolute(module, use)
                if target is None:
                    continue
                if known == name:
                    return self.home(target, seen + ((module, name),))
                if use[-1] == "*":
                    found = self.home(target[:-1] + (name,), seen + ((module, name),))
                    if found[0] in self.modules and name in self.modules[found[0]]["items"]:
                        return found
        return module, name

    def imports(self):
        """For each file, the files that it imports, with the names."""
        arrows = {}
        for module, here in self.modules.items():
            named = {}
            for pub, uses in here["uses"]:
                for path, name in uses:
                    target = self.absolute(module, path)
                    if target is None:
                        continue
                    if not pub:
                        self.note(arrows, module, target)
                    named[name] = target
            for path in PATH.findall(here["body"]):
                path = path.split("::")
                target = self.absolute(module, path)
                if target is None and path[0] in named:
                    target = named[path[0]] + tuple(path[1:])
                if target is not None:
                    self.note(arrows, module, target)
        return arrows

    def note(self, arrows, module, target):
        if target and target[-1] == "*":
            target = target[:-1]
        home, name = self.home(target)
        if home != module and name is not None:
            arrows.setdefault(module, {}).setdefault(home, set()).add(name)


def circles(arrows, nodes):
    """Strongly connected components of two nodes or more (Tarjan)."""
    index, low, stack, on, out = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for to in sorted(arrows.get(node, ())):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in on:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            circle = []
            while True:
                last = stack.pop()
                on.discard(last)
                circle.append(last)
                if last == node:
                    break
            if len(circle) > 1:
                out.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for node in sorted(nodes):
        if node not in index:
            visit(node)
    return out


def main(arguments):
    verbose = "--list" in arguments
    wanted = [a for a in arguments if not a.startswith("--")]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    failed = False
    for name in sorted(wanted or (f"{wing}/{room}" for wing in WINGS for room in os.listdir(os.path.join(root, wing)))):
        crate = Crate(os.path.join(root, name, "src"))
        arrows = crate.imports()
        found = circles(arrows, crate.modules)
        for circle in found:
            files = [os.path.relpath(crate.modules[m]["path"], root) for m in circle]
            bad = len(files) > MOST
            failed |= bad
            if bad or verbose:
                print(f"{name}: {len(files)} files: {' '.join(files)}")
                for module in circle:
                    for to in sorted(set(arrows.get(module, ())) & set(circle)):
                        names = ", ".join(sorted(arrows[module][to]))
                        print(f"    {'::'.join(module) or name} -> {'::'.join(to) or name}: {names}")
    if failed:
        print(f"circles: no circle may have more than {MOST} files: move what they share into a file of its own")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
