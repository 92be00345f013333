//! `parda top`: the status of an agent as a live table.

mod draw;
mod fit;
mod rows;
mod screen;

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use clap::Args;
use parda_agent::status::Status;
use parda_terminal::Failure;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::agent::{Named, ask, escaped};
use screen::Screen;

#[derive(Args)]
#[command(after_help = "\
Keys: q quits, arrows and page keys move, < > choose the column to sort by, r reverses the order, / filters by
name, Tab goes to the next volume, h switches between VMs and hosts, space pauses, ? shows all keys.

For scripts, `parda status` prints the same values once.

Examples:
  parda top                                 the agent of /etc/parda.toml
  parda top --socket /run/parda/status.sock --every 5s")]
pub(crate) struct Top {
    #[command(flatten)]
    agent: Named,
    /// Time between two looks at the agent, over which rates and latencies are shown
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::status::interval())]
    every: Duration,
}

/// Longest wait for a key before the agent's answers are looked at again.
const KEYS: Duration = Duration::from_millis(50);

impl Top {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let socket = self.agent.socket()?;
        // If no agent answers, the command fails before it takes the terminal. If the agent ends later, the screen shows
        // the error.
        let first = escaped(ask(&socket)?)?;
        let (send, looks) = sync_channel(1);
        let every = self.every;
        std::thread::Builder::new()
            .name("looks".to_owned())
            .spawn(move || look(&socket, every, &send))
            .map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
        let mut terminal = ratatui::try_init().map_err(|e| {
            Failure::new(format!("cannot draw on standard output, is it a terminal? {e}"))
        })?;
        let ended = draw_until_told(&mut terminal, Screen::new(first), &looks);
        ratatui::restore();
        ended.map_err(|e| Failure::new(format!("the terminal: {e}")))
    }
}

/// A status, or the reason for its absence.
type Look = Result<Status, String>;

/// Asks the agent every `every` until the receiver is dropped.
fn look(socket: &std::path::Path, every: Duration, send: &SyncSender<Look>) {
    loop {
        std::thread::sleep(every);
        let look = ask(socket).and_then(escaped).map_err(|failure| failure.message);
        if send.send(look).is_err() {
            return;
        }
    }
}

fn draw_until_told(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    looks: &Receiver<Look>,
) -> std::io::Result<()> {
    loop {
        terminal.draw(|frame| draw::draw(&mut screen, frame))?;
        let mut changed = false;
        while !changed {
            // All that wait are taken before the next picture: a terminal sends them faster than it is drawn.
            let mut within = KEYS;
            while event::poll(within)? {
                (changed, within) = (true, Duration::ZERO);
                match event::read()? {
                    Event::Key(key)
                        if key.kind != KeyEventKind::Release && screen.press(key).is_break() =>
                    {
                        return Ok(());
                    }
                    _ => {}
                }
            }
            match looks.try_recv() {
                Ok(look) => {
                    screen.take(look);
                    changed = true;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}
