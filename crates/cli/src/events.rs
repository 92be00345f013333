//! `parda events`.

use std::time::Duration;

use clap::Args;
use parda_api::{Event, Events as Answer, Severity};
use parda_terminal::output::{count, date};
use parda_terminal::{Failure, output};

use crate::agent::api::Agent;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda events                  the last hundred events
  parda events --follow         the same, and new events as they happen
  parda events --follow --json | jq 'select(.severity == \"error\")'")]
pub(crate) struct Events {
    /// Write new events as they happen, also over restarts of the agent
    #[arg(short, long)]
    follow: bool,
    /// Number of past events to write, the latest ones
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1000))]
    last: u32,
    /// Write each event as JSON, one a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

/// Time between two looks for new events.
const LOOK: Duration = Duration::from_secs(1);

impl Events {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut answer: Answer = self.agent.get(&format!("events?limit={}", self.last))?;
        loop {
            if answer.lost > 0 {
                eprintln!(
                    "parda: {} are missing here: the agent keeps the last 1000",
                    count(answer.lost, "event")
                );
            }
            for event in &answer.events {
                if !output::tell(&self.line(event)?)? {
                    return Ok(());
                }
            }
            if !self.follow {
                return Ok(());
            }
            answer = self.next(&answer);
        }
    }

    /// Events since `last`, as soon as the agent answers.
    fn next(&self, last: &Answer) -> Answer {
        let after = last.events.last().map_or(last.last_id, |event| event.id);
        let get = |after: u64| self.agent.get(&format!("events?after={after}&limit=1000"));
        let mut told = false;
        loop {
            std::thread::sleep(LOOK);
            let next =
                get(after).and_then(|next: Answer| match next.started_ms == last.started_ms {
                    true => Ok(next),
                    // Another run of the agent, with ids of its own.
                    false => get(0),
                });
            match next {
                Ok(next) => return next,
                Err(failure) if !told => {
                    eprintln!("parda: {}; goes on when the agent answers", failure.message);
                    told = true;
                }
                Err(_) => {}
            }
        }
    }

    fn line(&self, event: &Event) -> Result<String, Failure> {
        if self.json {
            return serde_json::to_string(event)
                .map_err(|error| Failure::new(format!("cannot write an event as JSON: {error}")));
        }
        let severity = match event.severity {
            Severity::Info => "",
            Severity::Warning => "WARNING ",
            Severity::Error => "ERROR ",
        };
        let mut line = format!("{} {severity}", date(event.at_ms));
        for (what, name) in
            [("volume", &event.volume), ("disk", &event.disk), ("host", &event.host)]
        {
            let told = |name: &String| event.message.contains(&format!("{what} {name}"));
            if let Some(name) = name.as_ref().filter(|name| !told(name)) {
                line += &format!("{what} {name}: ");
            }
        }
        line += &event.message;
        Ok(output::line(&line))
    }
}
