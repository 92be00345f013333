//! Renews the pictures of docs/probe.md. `make reproduce` does.
//!
//!     cargo run --release -p parda-probe-tools --example reading

use std::path::Path;

#[path = "../tests/reading/mod.rs"]
mod reading;

fn main() -> std::io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probe");
    std::fs::create_dir_all(&docs)?;
    for (name, svg) in reading::pictures() {
        std::fs::write(docs.join(format!("{name}.svg")), svg)?;
    }
    Ok(())
}
