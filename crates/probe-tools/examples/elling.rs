//! Renews the numbers and the pictures of docs/elling.md. `make reproduce` does.
//!
//!     cargo run --release -p parda-probe-tools --example elling

use std::path::Path;

#[path = "../tests/elling/mod.rs"]
mod elling;

fn main() -> std::io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let devices = elling::run();
    let page = docs.join("elling.md");
    let (renewed, _) = elling::renewed(&std::fs::read_to_string(&page)?, &devices);
    std::fs::write(&page, renewed)?;
    std::fs::create_dir_all(docs.join("elling"))?;
    for (name, figure) in elling::pictures(&devices) {
        std::fs::write(docs.join("elling").join(format!("{name}.svg")), figure.svg())?;
    }
    Ok(())
}
