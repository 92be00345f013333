//! Settings that are changed while the agent runs, as layers over the configuration file.
//!
//! Three layers lie over the file, each over the ones before. They are the policy, live changes kept in the state file, and live changes
//! until the agent ends. File and layers are merged and checked as one configuration, which the agent takes over as after a reload. A live
//! change that conflicts with the rest is left out, with a line in the log. The policy of a volume is in force as a whole or not at all.

mod origins;
mod overlay;
mod policies;
mod state_file;
mod target;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use parda_api::{Keep, ValueFrom};
use parda_config::{DRAIN, DiskSetting, Document, Error, NAMES_FILES, TenantSettings};
use toml::Table;

use crate::config::Config;
use crate::locked::locked;
use crate::wakeup::Takeover;
pub(crate) use origins::Origins;
pub(crate) use overlay::{Overlay, Shape};
pub(crate) use policies::{Policies, Refused};
pub(crate) use state_file::StateFile;
pub(crate) use target::{DiskName, Of, Target};

/// The configuration file, the layers over it, and the part of them in force.
pub(crate) struct Live {
    layers: Mutex<Layers>,
    in_force: Mutex<InForce>,
    /// Held while a change or a reload is made and taken over: one after the other.
    turn: Mutex<()>,
}

/// The layers in force: without changes that are left out and policies that are refused.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) layers: Layers,
    /// Volumes whose policy is not in force, with the reason.
    pub(crate) refused: Refused,
    /// Changes that conflict with the configuration.
    left_out: Vec<LeftOut>,
    /// Origin of each setting in force.
    pub(crate) origins: Arc<Origins>,
}

/// The file and the layers over it.
#[derive(Clone)]
pub(crate) struct Layers {
    /// The configuration file as it was read last, for errors, and its values.
    file: Arc<(Document, Table)>,
    /// The policy of the volumes of this host.
    pub(crate) policy: Policies,
    /// File that keeps the policy in force, if one is configured.
    policy_file: Option<PathBuf>,
    /// The state file, if one is configured.
    pub(crate) state: Option<PathBuf>,
    /// Live changes that the state file keeps.
    pub(crate) kept: Overlay,
    /// Live changes until the agent ends.
    pub(crate) temporary: Overlay,
    /// Why the state file could not be read, so that `kept` may lack its changes. The state file is not written then.
    unreadable: Option<String>,
    /// Contents of the state file, as far as this agent knows.
    written: Arc<Mutex<Overlay>>,
}

impl Layers {
    /// The configuration file with its layers from the state file and the policy's file. A file of these two that cannot be read counts as
    /// empty.
    fn read(file: Document) -> Result<Layers, Error> {
        // The file systems of its places are asked when the layers are merged.
        let config = Config::settings(&file)?;
        let read = config.state.as_deref().map(|path| StateFile::changes(path).read());
        let read = read.unwrap_or_else(|| Ok(Overlay::default()));
        let unreadable = read.as_ref().err().cloned();
        let kept = read.unwrap_or_default();
        let policy_file = config.policy.map(|policy| policy.kept);
        let policy = policy_file.as_deref().map(Policies::read).unwrap_or_default();
        let temporary = Overlay::default();
        let values = file.parse()?;
        let (file, state) = (Arc::new((file, values)), config.state);
        let written = Arc::new(Mutex::new(kept.clone()));
        Ok(Layers { file, policy, policy_file, state, kept, temporary, unreadable, written })
    }

    /// Logs the fault of a state file that cannot be read.
    fn say_unreadable(&self) {
        if let Some(error) = &self.unreadable {
            tracing::error!(event = "state_unreadable", "{error}; {NOT_IN_FORCE}");
        }
    }

    /// The file and all layers as one checked configuration.
    ///
    /// # Errors
    /// The file is wrong, or a setting of the layers. An error of a layer has no place in the file.
    pub(crate) fn merged(&self) -> Result<Config, Error> {
        let (file, _) = &*self.file;
        if self.kept.is_empty() && self.temporary.is_empty() && self.policy.volumes.is_empty() {
            return Config::check(file);
        }
        let mut table = self.shaped();
        let policy = Overlay::of_policies(&self.policy.volumes, &table);
        policy.add_tenants(&mut table);
        for layer in [&policy, &self.kept, &self.temporary] {
            layer.apply(&mut table);
        }
        Config::check(&Document::merged(file.name(), table)).map_err(|error| {
            // An error of the file alone has its place there.
            Config::check(file).err().unwrap_or(error)
        })
    }

    /// The file, with the disks that were added and without those that were removed.
    fn shaped(&self) -> Table {
        let mut table = self.file.1.clone();
        self.kept.shape(&mut table);
        self.temporary.shape(&mut table);
        table
    }

    /// The layers in force, and their configuration. A volume whose policy is refused has its policy from `before`.
    fn in_force(&self, before: &Policies) -> Result<(InForce, Config), Error> {
        let found = self.find(before)?;
        Ok((found.good.into_force(found.refused, found.left_out), found.config))
    }

    fn find(&self, before: &Policies) -> Result<Compatible, Error> {
        let layers = [(&self.kept, Keep::State), (&self.temporary, Keep::UntilRestart)];
        let mut settings = layers.iter().flat_map(|(layer, _)| layer.all());
        if settings.all(|(target, setting, value)| is_live(&target, setting, value))
            && self.policy.check().is_empty()
            && let Ok(found) = Compatible::new(self.clone())
        {
            return Ok(found);
        }
        let mut found = Compatible::new(self.file_alone())?;
        for (layer, keep) in layers {
            for (volume, shape) in layer.shapes() {
                found.shape(volume, &shape, keep);
            }
        }
        found.add_policies(&self.policy, before);
        for (layer, keep) in layers {
            for (target, setting, value) in layer.all() {
                found.add(&target, setting, value, keep, before);
            }
        }
        Ok(found)
    }

    /// The file of these layers, without any layer.
    fn file_alone(&self) -> Layers {
        Layers {
            policy: Policies { head: self.policy.head.clone(), volumes: Vec::new() },
            kept: Overlay::default(),
            temporary: Overlay::default(),
            ..self.clone()
        }
    }

    fn into_force(self, refused: Refused, left_out: Vec<LeftOut>) -> InForce {
        let file = self.shaped();
        let origins = Origins::of(&[
            (&Overlay::of_file(&file), ValueFrom::Configuration),
            (&Overlay::of_policies(&self.policy.volumes, &file), ValueFrom::Policy),
            (&self.kept, ValueFrom::State),
            (&self.temporary, ValueFrom::Live),
        ]);
        InForce { layers: self, refused, left_out, origins: Arc::new(origins) }
    }

    /// The layer that adds or removes a disk, or else the configuration.
    pub(crate) fn disk_from(&self, volume: &str, disk: &DiskName) -> ValueFrom {
        let layers = [(&self.temporary, ValueFrom::Live), (&self.kept, ValueFrom::State)];
        let from = layers.into_iter().find(|(layer, _)| layer.shapes_disk(volume, disk));
        from.map_or(ValueFrom::Configuration, |(_, from)| from)
    }

    /// The layer that a change is kept in.
    pub(crate) fn layer(&mut self, keep: Keep) -> &mut Overlay {
        match keep {
            Keep::State => &mut self.kept,
            Keep::UntilRestart => &mut self.temporary,
        }
    }

    /// Whether a layer below that of `keep` has a disk: the file, and for temporary changes the state file too.
    pub(crate) fn has_below(&self, keep: Keep, volume: &str, disk: &DiskName) -> bool {
        let mut table = self.file.1.clone();
        if keep == Keep::UntilRestart {
            self.kept.shape(&mut table);
        }
        overlay::table_of(&mut table, &Target::vm(volume, disk.clone())).is_some()
    }

    /// Whether the file, or the table of a disk that was added, has a disk drained.
    pub(crate) fn drains(&self, target: &Target) -> bool {
        overlay::written(&self.shaped(), target, DRAIN) == Some(true.into())
    }

    /// The value in the configuration file, if it has one.
    pub(crate) fn configured(&self, target: &Target, setting: &str) -> Option<toml::Value> {
        overlay::written(&self.file.1, target, setting)
    }

    /// Writes the state file, if one is configured. A file that another program has written stays, as its contents would be lost.
    pub(crate) fn write(&self) -> Result<(), String> {
        let Some(path) = &self.state else { return Ok(()) };
        if let Some(error) = &self.unreadable {
            return Err(format!(
                "{error}; it is not written, as what it keeps would be lost: mend it or move it away, and reload"
            ));
        }
        let file = StateFile::changes(path);
        let mut written = locked(&self.written);
        let there = file.read::<Overlay>()?;
        if there != *written && there != Overlay::default() {
            return Err(format!(
                "{}: another agent or program has written it: each agent needs a state file of its own; it is read at the next start",
                path.display()
            ));
        }
        file.write(&self.kept)?;
        // The file as read back, which may lack empty tables.
        *written = file.read()?;
        Ok(())
    }

    /// Writes the policy to its file.
    pub(crate) fn keep_policy(&self) -> Result<(), String> {
        let path = self.policy_file.as_deref();
        path.map_or(Ok(()), |path| StateFile::policy(path).write(&self.policy))
    }
}

/// Whether a setting may stand in a layer. A disk's other keys, and a table of the law, may name files.
fn is_live(target: &Target, setting: &str, value: &toml::Value) -> bool {
    match target.of {
        Of::Law => setting != NAMES_FILES || !value.is_table(),
        Of::Vm(_) => DiskSetting::find(setting).is_some(),
        Of::Tenant(_) => TenantSettings::keys().any(|key| key == setting),
    }
}

/// Layers without conflicts, built by adding one change after the other.
struct Compatible {
    good: Layers,
    config: Config,
    refused: Refused,
    left_out: Vec<LeftOut>,
}

/// Consequence of a state file that cannot be read.
const NOT_IN_FORCE: &str = "what was changed live and kept there is not in force";

/// A change that conflicts with the configuration.
#[derive(Clone, PartialEq, Eq)]
struct LeftOut {
    target: Target,
    why: String,
}

impl LeftOut {
    fn new(target: Target, change: &str, error: &Error) -> LeftOut {
        let why = format!(
            "{change}, a live change, conflicts with the configuration and is left out: {error}"
        );
        LeftOut { target, why }
    }

    fn say(&self) {
        let LeftOut { target, why } = self;
        let (volume, disk) = (&target.volume, target.disk_name());
        tracing::warn!(volume, disk, event = "change_left_out", "{why}");
    }
}

/// The changes in the state file of a configuration, and those that are left out, one a line. An agent runs without the latter.
///
/// # Errors
/// The configuration is wrong.
pub fn examine(file: Document) -> Result<Vec<String>, Error> {
    let layers = Layers::read(file)?;
    let Some(state) = &layers.state else { return Ok(Vec::new()) };
    let state = state.display();
    if let Some(error) = &layers.unreadable {
        return Ok(vec![format!("{error}; {NOT_IN_FORCE}")]);
    }
    let found = layers.find(&Policies::default())?;
    let kept = &found.good.kept;
    let shapes = kept.shapes().map(|(volume, shape)| format!("{}: {shape}", shape.target(volume)));
    let settings =
        kept.all().map(|(target, setting, value)| format!("{target}: {setting} = {value}"));
    let left_out = found.left_out.iter().map(|left| format!("{}: {}", left.target, left.why));
    let notes = shapes.chain(settings).chain(left_out);
    Ok(notes.map(|note| format!("{state}: {note}")).collect())
}

impl Compatible {
    /// Layers that have no conflict.
    fn new(good: Layers) -> Result<Compatible, Error> {
        let config = good.merged()?;
        Ok(Compatible { good, config, refused: Refused::new(), left_out: Vec::new() })
    }

    /// Edits the layers, if that makes no conflict.
    fn edit(&mut self, edit: impl FnOnce(&mut Layers)) -> Result<(), Error> {
        let mut more = self.good.clone();
        edit(&mut more);
        self.config = more.merged()?;
        self.good = more;
        Ok(())
    }

    /// Adds the policy of each volume as a whole. A policy with a conflict is replaced by the one from before, if that has none.
    fn add_policies(&mut self, policies: &Policies, before: &Policies) {
        self.refused = policies.check();
        for stored in &policies.volumes {
            let name = &stored.volume.name;
            if !self.refused.contains_key(name) {
                let new = Some(stored.clone());
                let Err(error) = self.edit(|more| more.policy.replace(name, new)) else { continue };
                self.refused.insert(name.clone(), error.without_place());
            }
            // If this has a conflict, that was logged when it was refused.
            let _ = self.edit(|more| more.policy.replace(name, before.of(name).cloned()));
        }
    }

    /// Adds or removes a disk.
    fn shape(&mut self, volume: &str, shape: &Shape, keep: Keep) {
        if let Err(error) = self.edit(|more| more.layer(keep).take(volume, shape.clone())) {
            self.left_out.push(LeftOut::new(shape.target(volume), &shape.to_string(), &error));
        }
    }

    /// Adds a live change of a setting. If it conflicts with the policy of its volume, that policy is refused. The policy from before
    /// stays, or none.
    fn add(
        &mut self,
        target: &Target,
        setting: &str,
        value: &toml::Value,
        keep: Keep,
        before: &Policies,
    ) {
        let set = |more: &mut Layers| more.layer(keep).set(target, setting, value.clone());
        let done = match is_live(target, setting, value) {
            true => self.edit(set),
            false => Err(self.good.file.0.error(setting, "is no setting that is changed live")),
        };
        let Err(error) = done else { return };
        let volume = &target.volume;
        if self.good.policy.of(volume).is_some() {
            for policy in [before.of(volume), None] {
                let edited = self.edit(|more| {
                    set(more);
                    more.policy.replace(volume, policy.cloned());
                });
                if edited.is_ok() {
                    let error = error.without_place();
                    let why = format!(
                        "conflicts with {setting} = {value}, a live change on this host: {error}"
                    );
                    self.refused.entry(volume.clone()).or_insert(why);
                    return;
                }
            }
        }
        let change = match &target.of {
            Of::Tenant(name) => format!("tenant {name}: {setting} = {value}"),
            Of::Law | Of::Vm(_) => format!("{setting} = {value}"),
        };
        self.left_out.push(LeftOut::new(target.clone(), &change, &error));
    }
}

impl Live {
    /// Begins with a configuration file.
    pub(crate) fn start(file: Document) -> Result<(Live, Config), Error> {
        let layers = Layers::read(file)?;
        layers.say_unreadable();
        let (in_force, config) = layers.in_force(&Policies::default())?;
        in_force.left_out.iter().for_each(LeftOut::say);
        let (layers, in_force) = (Mutex::new(layers), Mutex::new(in_force));
        Ok((Live { layers, in_force, turn: Mutex::new(()) }, config))
    }

    /// All layers, also changes that are left out.
    pub(crate) fn layers(&self) -> Layers {
        locked(&self.layers).clone()
    }

    /// The layers in force.
    pub(crate) fn in_force(&self) -> InForce {
        locked(&self.in_force).clone()
    }

    /// Origin of each setting in force.
    pub(crate) fn origins(&self) -> Arc<Origins> {
        Arc::clone(&locked(&self.in_force).origins)
    }

    /// The turn to change something. Others wait until it is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }

    /// Takes over layers, and layers in force. Policies that were refused stay so.
    pub(crate) fn take(&self, layers: Layers, in_force: Layers) {
        let InForce { refused, left_out, .. } = self.in_force();
        self.put(layers, in_force.into_force(refused, left_out));
    }

    fn put(&self, layers: Layers, in_force: InForce) {
        *locked(&self.layers) = layers;
        *locked(&self.in_force) = in_force;
    }

    /// Puts a policy in force, except for volumes where it conflicts with the file or a live change. Returns whether a policy is in force
    /// that was not before.
    ///
    /// Does nothing if the policy is no longer `wanted`: a reload may have had the turn before.
    ///
    /// # Errors
    /// The configuration file is no longer valid, as when a file that it names has gone.
    pub(crate) fn adopt(
        &self,
        policy: Policies,
        agent: &Takeover,
        wanted: impl FnOnce() -> bool,
    ) -> Result<bool, String> {
        let _turn = self.turn();
        if !wanted() {
            return Ok(false);
        }
        let before = self.in_force();
        let layers = Layers { policy, ..self.layers() };
        let (in_force, config) =
            layers.in_force(&before.layers.policy).map_err(|error| error.to_string())?;
        // A policy that is refused is tried again and again.
        let news = in_force.left_out.iter().filter(|left| !before.left_out.contains(left));
        news.for_each(LeftOut::say);
        let changed = in_force.layers.policy.volumes != before.layers.policy.volumes;
        self.put(layers, in_force);
        // An agent that is ending takes over nothing.
        Ok(changed && agent.take_over(config))
    }

    /// Reads the configuration file again. `take_over` is given the result in its turn, and returns when it is in force.
    pub(crate) fn read_again(&self, path: &Path, take_over: impl FnOnce(Result<Config, Error>)) {
        let file = Document::read_regular(path);
        let _turn = self.turn();
        let (before, in_force) = (self.layers(), self.in_force());
        let read = file.and_then(|file| {
            let mut layers = Layers::read(file)?;
            layers.say_unreadable();
            // The overlay in memory equals the state file that this agent wrote, if the path is the same.
            if layers.state == before.state && before.unreadable.is_none() {
                (layers.kept, layers.unreadable) = (before.kept, None);
                layers.written = before.written;
            }
            // A policy that was read stays in force, even if the new configuration keeps it in another file.
            if layers.policy_file.is_some() && before.policy.head.is_some() {
                layers.policy = before.policy;
            }
            layers.temporary = before.temporary;
            let (in_force, config) = layers.in_force(&in_force.layers.policy)?;
            in_force.left_out.iter().for_each(LeftOut::say);
            Ok((layers, in_force, config))
        });
        take_over(read.map(|(layers, in_force, config)| {
            self.put(layers, in_force);
            config
        }));
    }
}

#[cfg(test)]
mod tests;
