//! Pages as a browser shows them: Debian's Chromium, without a screen.
//!
//! A page is put into frames as wide as a phone and as a desktop, in light and in dark; a script of ours looks at what
//! the browser made of it. What the browser itself has to say of the page (a number in a path that is none, a script
//! that fails) it says on its console, which must stay empty.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// Widths in CSS pixels: a phone upright, a desktop.
const WIDTHS: [u32; 2] = [390, 1280];

/// What a page looks like at one width.
#[derive(Debug, Deserialize)]
pub(crate) struct Seen {
    pub(crate) page: String,
    pub(crate) width: u32,
    pub(crate) dark: bool,
    /// How wide the document is: no wider than the window, or it moves sideways.
    pub(crate) document_width: f64,
    pub(crate) height: f64,
    /// Errors, and whatever was written to the console.
    pub(crate) problems: Vec<String>,
    /// Scripts of the page's own.
    pub(crate) scripts: usize,
    pub(crate) plots: Vec<Plot>,
    /// The smallest text, in pixels, and what it says.
    pub(crate) smallest: (f64, String),
    /// The weakest contrast between text and its ground, and what it says.
    pub(crate) faintest: (f64, String),
    /// How light the ground is, 0 to 1.
    pub(crate) ground: f64,
    /// Links that lead nowhere.
    pub(crate) dead_links: Vec<String>,
}

/// What a plot looks like.
#[derive(Debug, Deserialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// Of the whole, in pixels.
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) panels: usize,
    /// Lines, marks, bars, tiles that have an extent.
    pub(crate) shapes: usize,
    /// Series without any shape that has an extent.
    pub(crate) empty: usize,
    /// Texts that cover one another.
    pub(crate) covered: Vec<String>,
    /// Texts that are cut off by an edge of the plot.
    pub(crate) cut: Vec<String>,
    /// Whether there are words for those who do not see it.
    pub(crate) words: bool,
}

/// Opens pages, each with a name, at all widths, in light and in dark.
pub(crate) fn look(pages: &[(&str, String)]) -> Vec<Seen> {
    let dir = tempfile::Builder::new().prefix("parda-browser-").tempdir().unwrap();
    let mut frames = String::new();
    for (name, html) in pages {
        assert!(html.contains("<head>"), "{name} is no page");
        let html = html.replace("<head>", &format!("<head><script>{LISTEN}</script>"));
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        for width in WIDTHS {
            for scheme in ["light", "dark"] {
                frames.push_str(&format!(
                    "<iframe name=\"{name}\" class={scheme} style=\"width:{width}px;height:900px;border:0;\
                     color-scheme:{scheme}\" srcdoc=\"{html}\"></iframe>\n"
                ));
            }
        }
    }
    let all = format!(
        "<!doctype html><meta charset=utf-8><body>{frames}<pre id=seen></pre><script>{LOOK}</script>"
    );
    let file = dir.path().join("frames.html");
    std::fs::write(&file, all).unwrap();
    let (dom, said) = chromium(dir.path(), &file);
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the browser's console is not empty: {console:#?}");
    let seen = dom.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let seen = seen.unwrap_or_else(|| panic!("the browser showed nothing:\n{said}"));
    let seen: Vec<Seen> =
        serde_json::from_str(seen).unwrap_or_else(|e| panic!("{e}: {seen}\n{said}"));
    assert_eq!(seen.len(), pages.len() * 4);
    seen
}

/// The document as it is once all is loaded, and what went to standard error.
fn chromium(home: &Path, file: &Path) -> (String, String) {
    let done = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        // It is asked to show one file, and nothing else is its business.
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-extensions", "--no-proxy-server"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .args(["--window-size=1300,1000", "--timeout=300000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("cannot start chromium (Debian package chromium): {e}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&done.stdout), text(&done.stderr))
}

/// Within each page, before all else.
const LISTEN: &str = "
    window.problems = [];
    const note = (what) => window.problems.push(String(what));
    addEventListener('error', (e) => note(e.message || 'cannot load ' + e.target.outerHTML), true);
    addEventListener('unhandledrejection', (e) => note(e.reason));
    for (const way of ['log', 'info', 'warn', 'error']) console[way] = (...all) => note(way + ': ' + all.join(' '));
";

/// Around all pages, once all are loaded.
const LOOK: &str = r#"
    const luminance = (colour) => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((v) => {
            const part = v / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const plot = (svg) => {
        const edge = svg.getBoundingClientRect();
        const texts = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
        const extent = (shape) => { const box = shape.getBBox(); return box.width + box.height > 0.5; };
        const shapes = (of) => [...of.querySelectorAll('rect, line, polyline, polygon, circle')].filter(extent).length;
        // Boxes of text have room above and below the letters.
        const over = ([, a], [, b]) =>
            a.left + 1 < b.right && b.left + 1 < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom;
        const covered = [];
        texts.forEach((a, i) => texts.slice(0, i).forEach((b) => {
            if (over(a, b)) covered.push(a[0] + ' | ' + b[0]);
        }));
        const series = [...svg.querySelectorAll('g.series')];
        return {
            title: svg.querySelector('title').textContent,
            width: edge.width,
            height: edge.height,
            panels: svg.querySelectorAll('g.panel').length,
            shapes: series.reduce((sum, of) => sum + shapes(of), 0),
            empty: series.filter((of) => shapes(of) == 0).length,
            covered,
            cut: texts.filter(([, t]) => t.left < edge.left - 1 || t.right > edge.right + 1
                || t.top < edge.top - 1 || t.bottom > edge.bottom + 1).map(([text]) => text),
            words: svg.getAttribute('role') == 'img' && svg.getAttribute('aria-label').length > 20,
        };
    };
    const look = (frame) => {
        const [page, style] = [frame.contentDocument, (of) => frame.contentWindow.getComputedStyle(of)];
        const ground = luminance(style(page.body).backgroundColor);
        let smallest = [1e9, ''], faintest = [1e9, ''];
        const walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            const text = walk.currentNode.textContent.trim();
            const of = walk.currentNode.parentElement;
            if (text == '' || ['TITLE', 'DESC', 'SCRIPT'].includes(of.tagName.toUpperCase())) continue;
            const svg = of.closest('svg');
            const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
            const size = parseFloat(style(of).fontSize) * scale;
            if (size < smallest[0]) smallest = [size, text];
            const seen = contrast(luminance(svg ? style(of).fill : style(of).color), ground);
            if (seen < faintest[0]) faintest = [seen, text];
        }
        const links = [...page.querySelectorAll('a')].map((a) => a.getAttribute('href'));
        return {
            page: frame.name,
            width: frame.contentWindow.innerWidth,
            dark: frame.className == 'dark',
            document_width: page.documentElement.scrollWidth,
            height: page.documentElement.scrollHeight,
            problems: frame.contentWindow.problems,
            scripts: page.scripts.length - 1,
            plots: [...page.querySelectorAll('svg')].map(plot),
            smallest,
            faintest,
            ground,
            dead_links: links.filter((to) => to.startsWith('#') && !page.getElementById(decodeURIComponent(to.slice(1)))),
        };
    };
    addEventListener('load', () => {
        const seen = [...document.querySelectorAll('iframe')].map(look);
        document.getElementById('seen').textContent = JSON.stringify(seen).replace(/[&<>]/g, ' ');
    });
"#;

/// What holds of every page: it loads without a word, fits the window, is readable, and its plots are drawn.
pub(crate) fn holds(seen: &Seen) {
    let Seen { page, width, dark, .. } = seen;
    let at = format!("{page} at {width} px, {}", if *dark { "dark" } else { "light" });
    assert!(seen.problems.is_empty(), "{at}: {:?}", seen.problems);
    assert_eq!(seen.scripts, 0, "{at}: it needs no script");
    assert!(WIDTHS.contains(width), "{at}");
    assert!(
        seen.document_width <= f64::from(*width),
        "{at}: it is {} px wide",
        seen.document_width
    );
    assert!(seen.height > 1000.0, "{at}: it is {} px high", seen.height);
    assert!(seen.smallest.0 >= 10.0, "{at}: too small to read: {:?}", seen.smallest);
    assert!(seen.faintest.0 >= 4.5, "{at}: too faint to read: {:?}", seen.faintest);
    assert_eq!(seen.ground < 0.2, *dark, "{at}: its ground is {}", seen.ground);
    assert!(seen.dead_links.is_empty(), "{at}: {:?}", seen.dead_links);
    for plot in &seen.plots {
        let at = format!("{at}: {}", plot.title);
        assert!(plot.width > 300.0 && plot.height > 200.0, "{at}: {plot:?}");
        assert!(plot.panels > 0 && plot.shapes > 0 && plot.empty == 0, "{at}: {plot:?}");
        assert!(plot.covered.is_empty(), "{at}: texts cover one another: {:?}", plot.covered);
        assert!(plot.cut.is_empty(), "{at}: texts are cut off: {:?}", plot.cut);
        assert!(plot.words, "{at}: it has no words");
    }
}
