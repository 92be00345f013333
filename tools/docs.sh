#!/bin/sh
# Builds the documentation as a site with mdBook, in target/book/html, and checks its links. The order of its pages is that of docs/README.md.
set -eu
cd "$(dirname "$0")/.."

if ! command -v mdbook > /dev/null; then
  echo 'docs: mdbook is not installed. Install it with: cargo install mdbook --locked' >&2
  exit 1
fi

book=${CARGO_TARGET_DIR:-target}/book
rm -rf "$book"
mkdir -p "$book/src"
cp -r README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md contrib docs scenarios "$book/src"

# Headings are the lines in bold of docs/README.md, pages its links to files of ours.
awk '
  function page(title, file) {
    sub(/#.*/, "", file)
    if (file ~ /^\.\.\//) sub(/^\.\.\//, "", file); else file = "docs/" file
    if (title !~ /\./) title = toupper(substr(title, 1, 1)) substr(title, 2)
    if (file ~ /\.md$/ && !(file in listed)) { listed[file] = 1; print "- [" title "](" file ")" }
  }
  BEGIN { print "# Summary\n\n[parda](README.md)\n[The documentation](docs/README.md)\n"; listed["docs/README.md"] = 1 }
  /^\*\*.*\*\*$/ { gsub(/\*/, ""); print "\n# " $0 "\n"; next }
  {
    while (match($0, /\[[^]]*\]\([^):]*\)/)) {
      link = substr($0, RSTART + 1, RLENGTH - 2)
      $0 = substr($0, RSTART + RLENGTH)
      split(link, parts, /\]\(/)
      page(parts[1], parts[2])
    }
  }
' docs/README.md > "$book/src/SUMMARY.md"

for page in docs/*.md; do
  grep -q "]($page)" "$book/src/SUMMARY.md" || { echo "docs: $page is not in docs/README.md" >&2; exit 1; }
done
MDBOOK_BOOK__SRC=$book/src MDBOOK_BUILD__BUILD_DIR=$book/html mdbook build
tools/site.py "$book/html"
echo "docs: $book/html/index.html"
