//! `parda events`.

use std::time::Duration;

use clap::Args;
use parda_api::{Event, Events as Answer, Severity};

use crate::api::Agent;
use crate::{Failure, output};

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda events                  what happened, the last hundred
  parda events --follow         and what happens
  parda events --follow --json | jq 'select(.severity == \"error\")'")]
pub(crate) struct Events {
    /// Go on, with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Events at the beginning, the latest ones
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1000))]
    last: u32,
    /// Write each as JSON, one a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

/// How often it is looked for new ones.
const LOOK: Duration = Duration::from_secs(1);

impl Events {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut answer: Answer = self.agent.get(&format!("events?limit={}", self.last))?;
        loop {
            for event in &answer.events {
                if !output::tell(&self.line(event)?)? {
                    return Ok(());
                }
            }
            if !self.follow {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            let after = answer.events.last().map_or(answer.last_id, |event| event.id);
            let next: Answer = self.agent.get(&format!("events?after={after}&limit=1000"))?;
            if next.started_ms != answer.started_ms && next.events.is_empty() {
                answer = Answer { last_id: 0, ..next };
            } else {
                answer = next;
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
        let at = std::time::UNIX_EPOCH + Duration::from_millis(event.at_ms);
        let mut line = format!("{} {severity}", humantime::format_rfc3339_seconds(at));
        for (what, name) in
            [("volume", &event.volume), ("disk", &event.disk), ("host", &event.host)]
        {
            if let Some(name) = name {
                line += &format!("{what} {name}: ");
            }
        }
        line += &event.message;
        Ok(output::line(&line))
    }
}
