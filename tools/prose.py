#!/usr/bin/env python3
"""What a machine can see of docs/style.md, in comments, doc comments and Markdown.

    tools/prose.py [--list]

Finds words that stand twice in a row, the phrases of the table "Phrases that are refused" of docs/style.md, and counts doc
comments of three words or fewer, which may not be more than `SHORT`. `SHORT` only ever falls: whoever mends some lowers it.
`--list` prints these doc comments. Of Markdown pages it also finds lines over `WIDTH`, sentences of more than `LONGEST` words, and
pages with more words than `BUDGETS` has for them.
"""

import os
import re
import subprocess
import sys

SHORT = 85
# Columns of a line of Markdown outside of tables and code, and words of a sentence.
WIDTH, LONGEST = 140, 45
# Words of pages, without the bars of tables.
BUDGETS = {
    ("README.md",): 900,
    ("CHANGELOG.md",): 800,
    ("docs/control.md",): 3_900,
    ("docs/performance.md",): 1_700,
    ("docs/studies.md",): 2_010,
    ("docs/qemu.md",): 560,
    ("docs/configuration.md",): 3_460,
    ("docs/reproduction.md",): 2_100,
    ("docs/libvirt.md",): 660,
    ("docs/proxmox.md",): 680,
    ("docs/kubernetes.md",): 700,
    ("docs/vhost-user.md",): 600,
    ("docs/exchange-format.md", "docs/nbd-protocol.md", "docs/scenarios.md", "docs/api.md"): 9_100,
    ("docs/",): 45_000,
}
# Words that stand twice in a row in grammatical sentences.
TWICE = {"that", "had", "is", "nbd"}

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMENT = re.compile(r"^\s*(//[/!]?) ?(.*)")
WORDS = re.compile(r"\b([A-Za-zλβ]+)\s+(?=\1\b)", re.I)


def refused():
    """The phrases of the table, as patterns."""
    with open(os.path.join(ROOT, "docs/style.md"), encoding="utf-8") as file:
        text = file.read()
    table = text.split("## Phrases that are refused", 1)[1].split("\n## ", 1)[0]
    phrases = [row.split("|")[1].strip() for row in table.splitlines() if row.startswith("| ")][2:]
    return [(p, re.compile(r"\b" + r"\s+".join(map(re.escape, p.split())) + r"\b", re.I)) for p in phrases]


def blocks(path):
    """Blocks of prose of a file: (line, whether rustdoc, text)."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if path.endswith(".md"):
        fenced, out, begin = False, [], 0
        for number, line in enumerate(lines + [""], 1):
            fence = line.lstrip().startswith("```")
            if not line.strip() or fence or fenced:
                if out:
                    yield begin, False, "\n".join(out)
                out = []
                fenced ^= fence
                continue
            if line.startswith("    ") and not out:
                continue
            begin = begin if out else number
            out.append(re.sub(r"`[^`]*`", "`code`", line))
        return
    out, begin, kind = [], 0, None
    for number, line in enumerate(lines + [""], 1):
        found = COMMENT.match(line)
        if found and (not out or found[1] == kind):
            begin, kind = (begin, kind) if out else (number, found[1])
            out.append(found[2])
            continue
        if out:
            yield begin, kind != "//", "\n".join(out)
        out = []
        if found:
            begin, kind, out = number, found[1], [found[2]]


def too_long(name, path):
    """Lines of a Markdown page that are too wide, and sentences that are too long."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.lstrip().startswith("```")
        if len(line) > WIDTH and not fenced and not line.startswith(("|", "    ")):
            yield f"{name}:{number}: {len(line)} columns, {WIDTH} at most"
    for number, _, text in blocks(path):
        # A cell of a table and a list's item end a sentence.
        for sentence in re.split(r"[.!?](?=\s)|\||^\s*(?:[-*]|\d+\.)\s", re.sub(r"\]\([^)]*\)", "]", text), flags=re.M):
            count = len(re.findall(r"\S*\w\S*", sentence))
            if count > LONGEST:
                yield f"{name}:{number}: a sentence of {count} words, {LONGEST} at most: {' '.join(sentence.split()[:6])} …"


def over_budget(names):
    """Pages with more words than they may have."""
    words = {}
    for name in names:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            words[name] = len(file.read().replace("|", "").split())
    for pages, budget in BUDGETS.items():
        count = sum(words[name] for name in names if name.startswith(pages))
        if count > budget:
            yield f"{', '.join(pages)}: {count} words, {budget} at most"


def main(arguments):
    files = subprocess.run(["git", "ls-files", "*.rs", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    phrases, faults, short = refused(), [], []
    pages = [name for name in files.stdout.split() if re.fullmatch(r"(docs/)?[^/]+\.md", name)]
    for name in files.stdout.split():
        path = os.path.join(ROOT, name)
        if not os.path.exists(path):
            continue
        for line, is_doc, text in blocks(path):
            prose = re.sub(r"```.*?```", "", text, flags=re.S)
            if is_doc and len(prose.split()) <= 3:
                short.append(f"{name}:{line}: {prose}")
            for found in WORDS.finditer(prose):
                if found[1].lower() not in TWICE and len(found[1]) > 1 and "|" not in prose:
                    at = line + prose.count("\n", 0, found.start())
                    faults.append(f"{name}:{at}: {found[1]!r} stands twice")
            for phrase, pattern in phrases if name != "docs/style.md" else []:
                for found in pattern.finditer(prose):
                    at = line + prose.count("\n", 0, found.start())
                    faults.append(f"{name}:{at}: {phrase!r}: docs/style.md says what to write in its place")
        if name in pages:
            faults += too_long(name, path)
    faults += over_budget(pages)
    if "--list" in arguments:
        print("\n".join(short))
    print("\n".join(faults), end="\n" if faults else "")
    if len(short) > SHORT:
        print(f"prose: {len(short)} doc comments have three words or fewer, {SHORT} may (tools/prose.py --list): name the thing")
    elif len(short) < SHORT - 10:
        print(f"prose: only {len(short)} doc comments have three words or fewer: lower SHORT of tools/prose.py to that")
    return 1 if faults or not SHORT - 10 <= len(short) <= SHORT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
