//! What several tests need.
#![allow(dead_code, reason = "no test needs all of it")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "clippy knows tests by #[test]")]

use std::path::Path;

use parda_config::Document;
use parda_report::table;
use parda_scenario::{RunAnswer, Scenario};
use parda_sim::{KeptRuns, run};

/// A scenario that comes with parda.
pub(crate) fn scenario(name: &str) -> Scenario {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    Scenario::parse(&Document::read(&dir.join(name)).unwrap()).unwrap()
}

/// A scenario by its text.
pub(crate) fn parse(text: &str) -> Scenario {
    Scenario::parse(&Document::new("test.toml", text)).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Answer of a scenario's run.
pub(crate) fn answer(scenario: &Scenario) -> RunAnswer {
    let answer = run(scenario, KeptRuns::Nothing, |_| ()).unwrap().answer;
    println!("{}", table(&answer, false));
    answer
}
