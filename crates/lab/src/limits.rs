//! What only the simulator can do. The laboratory refuses it by name before anything starts.

use parda_scenario::exchange::{ExchangeSettings, Hearing};
use parda_scenario::{Action, Scenario};

use crate::error::LabError;
use crate::fio;

/// Whether the laboratory can run a scenario.
///
/// # Errors
/// It cannot: the error says why.
pub fn check(scenario: &Scenario) -> Result<(), LabError> {
    fio::can_do(scenario)?;
    let changes = scenario.timeline.iter().filter_map(|event| match &event.action {
        Action::SetExchange(_, settings) => Some(&**settings),
        _ => None,
    });
    let first = scenario.present().map(|(_, host)| &host.exchange);
    first
        .chain(changes)
        .filter_map(beyond)
        .next()
        .map_or(Ok(()), |what| Err(LabError::OnlySimulated(what.to_owned())))?;
    for event in &scenario.timeline {
        let what = match event.action {
            Action::HangHost(_) | Action::ResumeHost(_) => "an agent that hangs",
            Action::Array(_) => "what happens to the array",
            _ => continue,
        };
        return Err(LabError::OnlySimulated(what.to_owned()));
    }
    match scenario.present().map(|(_, host)| host).find(|host| host.outside) {
        Some(host) => Err(LabError::OnlySimulated(format!("host {} outside control", host.name))),
        None => Ok(()),
    }
}

/// What of these settings is beyond real processes that share a real exchange.
fn beyond(settings: &ExchangeSettings) -> Option<&'static str> {
    let (hearing, usual) = (settings.hearing(), Hearing::default());
    let beyond = [
        (hearing.delay != usual.delay, "exchange.delay"),
        (hearing.loss != usual.loss, "exchange.loss"),
        (hearing.side != usual.side, "exchange.side"),
        (hearing.reachable != usual.reachable, "exchange.reachable"),
    ];
    beyond.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}
