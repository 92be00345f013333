//! Settings that are changed while the agent runs: over the configuration file, in its own language.
//!
//! There are two layers over the file: what the state file keeps, and what ends with the agent. All three are merged and checked as one
//! configuration, which the agent takes over as it does after a reload. A setting that does not go with the file any more is left out, and
//! said.

mod overlay;
mod state_file;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use parda_api::ValueFrom;
use parda_config::{Document, Error};

use crate::config::Config;
pub(crate) use overlay::{Overlay, Setting, Target};
use state_file::StateFile;

/// Settings of a disk that change without closing its connections.
pub(crate) const OF_DISKS: [&str; 3] = ["shares", "burst", "latency_target"];

/// A configuration with what was changed live.
pub(crate) struct Live {
    layers: Mutex<Layers>,
    /// The same without the settings that are left out.
    in_force: Mutex<Layers>,
    /// Held while a change or a reload is made and taken over: one after the other.
    turn: Mutex<()>,
}

/// The file and the layers over it.
#[derive(Clone)]
pub(crate) struct Layers {
    /// The configuration file as it was read last.
    pub(crate) file: Document,
    /// Where changes are kept.
    pub(crate) state: Option<PathBuf>,
    pub(crate) kept: Overlay,
    pub(crate) temporary: Overlay,
    /// Why the state file is not what `kept` has. It is not written then.
    unreadable: Option<String>,
}

impl Layers {
    /// The configuration file, and the state file that it names. A state file that cannot be read is said, and does not count.
    fn read(file: Document) -> Result<(Layers, Config), Error> {
        let config = Config::check(&file)?;
        let read = config.state.as_deref().map(|path| StateFile(path).read());
        let (kept, unreadable) = match read {
            None => (Overlay::default(), None),
            Some(Ok(kept)) => (kept, None),
            Some(Err(error)) => {
                tracing::error!(
                    event = "state_unreadable",
                    "{error}; what was changed live and kept there is not in force"
                );
                (Overlay::default(), Some(error))
            }
        };
        let state = config.state.clone();
        Ok((Layers { file, state, kept, temporary: Overlay::default(), unreadable }, config))
    }

    /// Both layers over the file, checked.
    ///
    /// # Errors
    /// The file is wrong, or a setting of the layers. The latter names no place in the file.
    pub(crate) fn merged(&self) -> Result<Config, Error> {
        // So that errors of the file have their places.
        let config = Config::check(&self.file)?;
        if self.kept.is_empty() && self.temporary.is_empty() {
            return Ok(config);
        }
        let mut table: toml::Table = self.file.parse()?;
        self.kept.apply(&mut table);
        self.temporary.apply(&mut table);
        let text = table.to_string();
        Config::check(&Document::new(self.file.name(), text))
            .map_err(|error| Error { place: None, ..error })
    }

    /// The same layers without those settings that are wrong, which are said, and their configuration.
    fn in_force(&self) -> Result<(Layers, Config), Error> {
        let live = |(target, setting, value): &(Target, Setting, toml::Value)| {
            is_live(target, setting, value)
        };
        if self.kept.all().iter().chain(&self.temporary.all()).all(live)
            && let Ok(config) = self.merged()
        {
            return Ok((self.clone(), config));
        }
        let bare = |kept, temporary| Layers { kept, temporary, ..self.clone() };
        let mut good = bare(Overlay::default(), Overlay::default());
        let mut config = good.merged()?;
        for (layer, temporary) in [(&self.kept, false), (&self.temporary, true)] {
            for (target, setting, value) in layer.all() {
                let mut more = good.clone();
                let into = if temporary { &mut more.temporary } else { &mut more.kept };
                into.set(&target, &setting, value.clone());
                let merged = if is_live(&target, &setting, &value) {
                    more.merged()
                } else {
                    Err(self.file.error(&setting, "is no setting that is changed live"))
                };
                match merged {
                    Ok(merged) => (good, config) = (more, merged),
                    Err(error) => tracing::warn!(
                        volume = target.volume,
                        disk = target.disk_name(),
                        event = "change_left_out",
                        "{setting} = {value}, which was changed live, does not go with the \
                         configuration and is left out: {error}"
                    ),
                }
            }
        }
        Ok((good, config))
    }

    /// Where a setting in force comes from.
    pub(crate) fn from(&self, target: &Target, setting: &str) -> ValueFrom {
        if self.temporary.get(target, setting).is_some() {
            ValueFrom::Live
        } else if self.kept.get(target, setting).is_some() {
            ValueFrom::State
        } else {
            ValueFrom::Configuration
        }
    }

    /// The value of the file, if it has one.
    pub(crate) fn configured(&self, target: &Target, setting: &str) -> Option<toml::Value> {
        let table: toml::Table = self.file.parse().ok()?;
        overlay::written(&table, target, setting)
    }

    /// Writes what is to be kept.
    pub(crate) fn write(&self) -> Result<(), String> {
        match (&self.state, &self.unreadable) {
            (Some(_), Some(error)) => Err(format!(
                "{error}; it is not written, as what it keeps would be lost: mend it or move it away, and reload"
            )),
            (Some(path), None) => StateFile(path).write(&self.kept),
            (None, _) => Ok(()),
        }
    }
}

/// Whether a setting may stand in a layer: no key of a disk that names a file, and no table, which may.
fn is_live(target: &Target, setting: &str, value: &toml::Value) -> bool {
    !matches!(value, toml::Value::Table(_) | toml::Value::Array(_))
        && (target.disk.is_none() || OF_DISKS.contains(&setting))
}

impl Live {
    /// Begins with a configuration file.
    pub(crate) fn start(file: Document) -> Result<(Live, Config), Error> {
        let (layers, _) = Layers::read(file)?;
        let (in_force, config) = layers.in_force()?;
        let (layers, in_force) = (Mutex::new(layers), Mutex::new(in_force));
        Ok((Live { layers, in_force, turn: Mutex::new(()) }, config))
    }

    /// All that was changed, with what is left out.
    pub(crate) fn layers(&self) -> Layers {
        locked(&self.layers).clone()
    }

    /// The same without what is left out.
    pub(crate) fn in_force(&self) -> Layers {
        locked(&self.in_force).clone()
    }

    /// The turn of who changes something: nobody else does until it is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are kept, and these in force, from now on.
    pub(crate) fn take(&self, layers: Layers, in_force: Layers) {
        *locked(&self.layers) = layers;
        *locked(&self.in_force) = in_force;
    }

    /// Reads the configuration file again. `take_over` is given the result in its turn, and returns when it is in force.
    pub(crate) fn read_again(&self, path: &Path, take_over: impl FnOnce(Result<Config, Error>)) {
        let file = Document::read_regular(path);
        let _turn = self.turn();
        let before = self.layers();
        let read = file.and_then(|file| {
            let (layers, _) = Layers::read(file)?;
            // The state file is this agent's own: what it has in memory is what it wrote, if the path is the same.
            let same = layers.state == before.state && before.unreadable.is_none();
            let (kept, unreadable) = if same {
                (before.kept, None)
            } else {
                (layers.kept.clone(), layers.unreadable.clone())
            };
            let layers = Layers { kept, unreadable, temporary: before.temporary, ..layers };
            let (in_force, config) = layers.in_force()?;
            Ok((layers, in_force, config))
        });
        take_over(read.map(|(layers, in_force, config)| {
            self.take(layers, in_force);
            config
        }));
    }
}

fn locked(layers: &Mutex<Layers>) -> MutexGuard<'_, Layers> {
    layers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
