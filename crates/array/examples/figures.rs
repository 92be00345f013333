//! The model's answers beside those of the source documents.
//!
//!     cargo run --release -p parda-array --example figures

#![allow(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/closed_loop/mod.rs"]
#[allow(dead_code, reason = "shared with the tests, which ask for more")]
mod closed_loop;
#[path = "../tests/papers/mod.rs"]
mod papers;

fn main() {
    for figure in papers::all() {
        println!("\n{}: {}", figure.name, figure.workload);
        for value in figure.values {
            let verdict = match value.tolerance {
                Some(most) if value.error().abs() <= most => {
                    format!("within {:.0} %", 100.0 * most)
                }
                Some(most) => format!("OUT OF {:.0} %", 100.0 * most),
                None => "not held".to_owned(),
            };
            println!(
                "  {:<34} {:>8.2} {:<5} paper {:>8.2}  {:>+6.1} %  {verdict}",
                value.what,
                value.model,
                value.unit,
                value.paper,
                100.0 * value.error(),
            );
        }
    }
}
