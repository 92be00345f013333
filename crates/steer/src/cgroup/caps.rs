//! Caps (`io.max`): most IOs and bytes per second of each VM, by its shares, its limit and its tenant's. They work with every elevator
//! and every kind of device, and take effect without a drain. `io.max` bounds reads and writes apart, and has no bound on their sum. So
//! a VM's cap on both together is split as its IOs were in the period before. Bounds of another program in `io.max`, from before or
//! since, hold where they are lower. At the end they are restored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parda_control::{Limit, Rate, Rates};

use crate::cgroup::demand::{Begun, IoCounts};
use crate::cgroup::files::{ForeignSetting, ShareError, line, write_line};
use crate::cgroup::vms::{CgroupVm, CgroupVms, VmKey};
use crate::journal::{LockedJournal, Original};
use crate::number::DevNum;
use crate::sysfs;

/// Least part of a cap for the direction in which a VM was idle. With it, IOs of that direction can begin.
const OTHER_WAY: f64 = 0.1;
/// Least bound that the kernel accepts, in IOs or bytes per second.
const LEAST: f64 = 2.0;
/// Least relative change that is written. Each write restarts the kernel's own period.
const SAME: f64 = 0.02;
/// Part of its cap from which a VM counts as held back by it.
const HELD: f64 = 0.9;

/// Bounds on reads and on writes, in IOs or bytes per second. `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Largest rate of reads alone.
    pub reads: Option<u64>,
    /// Largest rate of writes alone.
    pub writes: Option<u64>,
}

impl Pair {
    /// Splits a rate as `done` was: each direction has [`OTHER_WAY`] of it at least.
    fn split(rate: f64, done: IoCounts) -> Pair {
        let (reads, writes) = parts(done);
        Pair::new(rate * reads, rate * writes)
    }

    /// Splits a rate that both directions together never exceed.
    fn within(rate: f64, done: IoCounts) -> Pair {
        let ((reads, writes), rate) = (parts(done), rate.floor());
        let reads =
            (rate * reads / (reads + writes)).round().clamp(LEAST, (rate - LEAST).max(LEAST));
        Pair::new(reads, rate - reads)
    }

    /// The bounds of a limit.
    fn of_limit(rates: &Rates, done: IoCounts) -> Pair {
        let whole = |rate: Rate| rate.mean.floor().max(LEAST) as u64;
        let apart = Pair { reads: rates.reads.map(whole), writes: rates.writes.map(whole) };
        apart.or_less(rates.total.map(|rate| Pair::within(rate.mean, done)).unwrap_or_default())
    }

    fn new(reads: f64, writes: f64) -> Pair {
        let whole = |rate: f64| Some(rate.round().max(LEAST) as u64);
        Pair { reads: whole(reads), writes: whole(writes) }
    }

    /// The lower bound in each direction.
    fn or_less(self, other: Pair) -> Pair {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Pair { reads: least(self.reads, other.reads), writes: least(self.writes, other.writes) }
    }

    /// The bounds in those directions in which another one has any.
    fn where_set(self, other: Pair) -> Pair {
        let set = |own: Option<u64>, other: Option<u64>| own.filter(|_| other.is_some());
        Pair { reads: set(self.reads, other.reads), writes: set(self.writes, other.writes) }
    }

    fn is_none(self) -> bool {
        self == Pair::default()
    }

    /// Whether it has no bound in a direction in which another one has.
    fn leaves(self, other: Pair) -> bool {
        let leaves = |own: Option<u64>, other: Option<u64>| own.is_none() && other.is_some();
        leaves(self.reads, other.reads) || leaves(self.writes, other.writes)
    }

    fn near(self, other: Pair) -> bool {
        let near = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => (a as f64 - b as f64).abs() <= SAME * b as f64,
            (a, b) => a == b,
        };
        near(self.reads, other.reads) && near(self.writes, other.writes)
    }

    /// The directions, reads and writes, in which so much was done that the bound held it back.
    fn holds(self, done: IoCounts, seconds: f64) -> [bool; 2] {
        let at = |done: u64, most: Option<u64>| {
            most.is_some_and(|most| done as f64 >= HELD * most as f64 * seconds)
        };
        [at(done.reads, self.reads), at(done.writes, self.writes)]
    }
}

/// Parts of reads and of writes in what was done, [`OTHER_WAY`] at least.
fn parts(done: IoCounts) -> (f64, f64) {
    let all = done.reads + done.writes;
    let part = |n: u64| if all == 0 { 1.0 } else { (n as f64 / all as f64).max(OTHER_WAY) };
    (part(done.reads), part(done.writes))
}

/// Bounds of one VM. A direction without a bound is not written: what another program set there stays in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// In IOs per second.
    pub ios: Pair,
    /// In bytes per second.
    pub bytes: Pair,
    /// Whether `ios` are bounds by shares: of reads, and of writes.
    by_shares: [bool; 2],
    /// Whether the tenant's limit gives the VM less than the VM's own.
    by_tenant: bool,
}

impl Cap {
    /// The lower of a VM's `share`, in IOs per second, and its limits. `begun`: its begun IOs of the period before.
    fn of_vm(share: Option<f64>, vm: &CgroupVm, begun: Begun) -> Cap {
        let bytes = begun.bytes.all() as f64 / begun.ios.all().max(1) as f64;
        let by_tenant = most_ios(&vm.grant.limit, bytes) < most_ios(&vm.limit, bytes);
        Cap { by_tenant, ..Cap::of(share, &vm.limits(), begun) }
    }

    fn of(share: Option<f64>, limit: &Limit, begun: Begun) -> Cap {
        let share = share.map(|rate| Pair::split(rate, begun.ios)).unwrap_or_default();
        let of_limit = Pair::of_limit(&limit.iops, begun.ios);
        let ios = share.or_less(of_limit);
        let by_shares = [ios.reads != of_limit.reads, ios.writes != of_limit.writes];
        let bytes = Pair::of_limit(&limit.bandwidth, begun.bytes);
        Cap { ios, bytes, by_shares, by_tenant: false }
    }

    fn is_none(self) -> bool {
        self.ios.is_none() && self.bytes.is_none()
    }

    /// The lower bound in each direction that it bounds.
    fn or_theirs(self, theirs: Cap) -> Cap {
        let ios = self.ios.or_less(theirs.ios).where_set(self.ios);
        let bytes = self.bytes.or_less(theirs.bytes).where_set(self.bytes);
        let [reads, writes] = self.by_shares;
        let by_shares =
            [reads && ios.reads == self.ios.reads, writes && ios.writes == self.ios.writes];
        Cap { ios, bytes, by_shares, ..self }
    }

    /// The bounds of another program that are in force beside a cap: the cap has none there, or the same.
    fn where_in_force(mut self, cap: Option<Cap>) -> Cap {
        let mut cap = cap.unwrap_or_default();
        for ((_, theirs), (_, ours)) in self.words().into_iter().zip(cap.words()) {
            *theirs = theirs.filter(|theirs| ours.is_none_or(|ours| ours == *theirs));
        }
        self
    }

    /// Whether it holds what was done.
    fn holds(self, begun: Begun, seconds: f64) -> bool {
        let ios = self.ios.holds(begun.ios, seconds);
        ios.into_iter().chain(self.bytes.holds(begun.bytes, seconds)).any(|held| held)
    }

    /// The bounds by the words that `io.max` has for them.
    fn words(&mut self) -> [(&'static str, &mut Option<u64>); 4] {
        let Cap { ios, bytes, .. } = self;
        [
            ("rbps", &mut bytes.reads),
            ("wbps", &mut bytes.writes),
            ("riops", &mut ios.reads),
            ("wiops", &mut ios.writes),
        ]
    }

    /// Takes over what a line of `io.max` has and `ours` has not. Returns whether that is a change of what `ours` bounds.
    fn take_theirs(&mut self, line: &str, mut ours: Cap) -> bool {
        let found: BTreeMap<_, _> =
            line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let mut changed = false;
        for ((word, own), (_, ours)) in self.words().into_iter().zip(ours.words()) {
            let Some(found) = found.get(word) else { continue };
            // `max`: no bound.
            let found = found.parse().ok();
            if ours.is_none() || *ours != found {
                changed |= ours.is_some();
                *own = found;
            }
        }
        changed
    }

    /// Whether it lacks a bound that another one has.
    fn leaves(self, other: Cap) -> bool {
        self.ios.leaves(other.ios) || self.bytes.leaves(other.bytes)
    }

    fn near(self, other: Cap) -> bool {
        self.ios.near(other.ios) && self.bytes.near(other.bytes)
    }

    /// The cap as it is written, as a part of a line of `io.max`: `riops=100 wiops=20`.
    fn text(self) -> String {
        let mut bounds = self;
        let bounds = bounds.words().map(|(word, most)| Some(format!("{word}={}", (*most)?)));
        bounds.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The whole of a line of `io.max` that has these bounds alone.
    fn line(self) -> String {
        let mut bounds = self;
        let word = |most: &Option<u64>| most.map_or("max".to_owned(), |most| most.to_string());
        bounds.words().map(|(key, most)| format!("{key}={}", word(most))).join(" ")
    }

    /// Whether a line of `io.max` contains this cap.
    fn is_in_force(self, line: &str) -> bool {
        self.text().split(' ').all(|word| line.split(' ').any(|found| found == word))
    }
}

/// The most IOs per second that a limit allows a VM whose IOs have `bytes` in the mean. Infinite without such a bound.
pub(crate) fn most_ios(limit: &Limit, bytes: f64) -> f64 {
    let most = |rates: &Rates| {
        let or_none = |rate: Option<Rate>| rate.map_or(f64::INFINITY, |rate| rate.mean);
        or_none(rates.total).min(or_none(rates.reads) + or_none(rates.writes))
    };
    let by_bytes = if bytes > 0.0 { most(&limit.bandwidth) / bytes } else { f64::INFINITY };
    most(&limit.iops).min(by_bytes)
}

/// Cause that holds a VM back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapReason {
    /// Part of the window or rate by its shares.
    Shares,
    /// Limit that the configuration sets.
    Limit,
    /// Limit of its tenant.
    Tenant,
    /// A bound that another program has set in `io.max`.
    Theirs,
}

/// A cap in force.
#[derive(Clone, Copy, Debug)]
struct InForce {
    /// The cgroup's id. A new cgroup under an old path has no cap yet.
    id: u64,
    cap: Cap,
    limit: Limit,
}

/// Bounds of another program on a VM.
#[derive(Clone, Debug)]
struct Theirs {
    /// Id of the cgroup that has them: a new one under an old path has none.
    id: u64,
    file: PathBuf,
    cap: Cap,
}

/// Caps of a host's VMs on one device.
#[derive(Debug)]
pub struct Caps {
    device: DevNum,
    in_force: BTreeMap<VmKey, InForce>,
    theirs: BTreeMap<VmKey, Theirs>,
}

impl Caps {
    pub(crate) fn new(device: DevNum) -> Caps {
        Caps { device, in_force: BTreeMap::new(), theirs: BTreeMap::new() }
    }

    /// Bounds that another program has set on a VM, as `io.max` has them. None without any.
    #[must_use]
    pub fn theirs(&self, key: &VmKey) -> Option<String> {
        let cap = self.theirs.get(key)?.cap;
        (!cap.is_none()).then(|| cap.text())
    }

    /// The caps in force, by VM.
    pub fn in_force(&self) -> impl Iterator<Item = (&VmKey, Cap)> {
        self.in_force.iter().map(|(key, in_force)| (key, in_force.cap))
    }

    /// Cap that held a VM back in a period: its own, or another program's.
    #[must_use]
    pub fn held_back(&self, key: &VmKey, begun: Begun, seconds: f64) -> Option<CapReason> {
        let cap = self.in_force.get(key).map(|in_force| in_force.cap);
        let theirs = self.theirs.get(key).map(|theirs| theirs.cap.where_in_force(cap));
        let theirs =
            theirs.filter(|theirs| theirs.holds(begun, seconds)).map(|_| CapReason::Theirs);
        let Some(cap) = cap else { return theirs };
        let ios = cap.ios.holds(begun.ios, seconds);
        let by_shares = ios.into_iter().zip(cap.by_shares).any(|(held, by)| held && by);
        let by_limit = if cap.by_tenant { CapReason::Tenant } else { CapReason::Limit };
        match (by_shares, theirs) {
            (true, _) => Some(CapReason::Shares),
            (false, Some(theirs)) => Some(theirs),
            (false, None) => cap.holds(begun, seconds).then_some(by_limit),
        }
    }

    /// Sets caps on these VMs: their limits and, where `rates` has one, their rate by shares, in IOs per second. Removes the caps of all
    /// other VMs. Each cap is read back. Returns the caps that another process had changed, and its bounds that were found first.
    pub(crate) fn set(
        &mut self,
        vms: &CgroupVms,
        rates: &BTreeMap<VmKey, f64>,
        begun: &BTreeMap<VmKey, Begun>,
        journal: &mut LockedJournal,
    ) -> Result<Vec<ForeignSetting>, ShareError> {
        let mut changed = Vec::new();
        for (key, vm) in vms.iter() {
            let file = vms.dir(key).join("io.max");
            let before = self.in_force.get(key).filter(|in_force| in_force.id == vm.id).copied();
            let begun = begun.get(key).copied().unwrap_or_default();
            let cap = Cap::of_vm(rates.get(key).copied(), vm, begun);
            let new = InForce { id: vm.id, cap, limit: vm.limit };
            match self.set_one(key, &file, before, new, journal) {
                Ok(found) => changed.extend(found),
                // The cap went away with its VM.
                Err(ShareError::Sys(error)) if error.gone() => {
                    self.in_force.remove(key);
                }
                Err(error) => return Err(error),
            }
        }
        self.in_force.retain(|key, _| vms.get(key).is_some());
        self.theirs.retain(|key, _| vms.get(key).is_some());
        Ok(changed)
    }

    fn set_one(
        &mut self,
        key: &VmKey,
        file: &Path,
        before: Option<InForce>,
        new: InForce,
        journal: &mut LockedJournal,
    ) -> Result<Option<ForeignSetting>, ShareError> {
        let now = sysfs::read(file)?;
        let now = line(&now, self.device).unwrap_or(UNBOUNDED);
        let ours = before.map(|before| before.cap).unwrap_or_default();
        let known = self.theirs.get(key).filter(|theirs| theirs.id == new.id);
        let mut theirs = known.map(|theirs| theirs.cap).unwrap_or_default();
        let changed = theirs.take_theirs(now, ours);
        let is_new = known.is_none() && !theirs.is_none();
        let changed = (changed || is_new).then(|| ForeignSetting {
            what: format!("{key}: io.max"),
            found: now.to_owned(),
            then: "the lower of each bound holds",
        });
        let file_of = file.to_owned();
        self.theirs.insert(key.clone(), Theirs { id: new.id, file: file_of, cap: theirs });
        self.note_theirs(file, theirs, journal)?;
        let cap = new.cap.or_theirs(theirs);
        let new = InForce { cap, ..new };
        let before = match before {
            Some(before) if cap.leaves(before.cap) => {
                self.clear_one(key, file, theirs)?;
                None
            }
            before => before,
        };
        if cap.is_none() {
            return Ok(changed);
        }
        let same = before.filter(|before| before.limit == new.limit && cap.near(before.cap));
        if let (None, Some(before)) = (&changed, same) {
            let Cap { by_shares, by_tenant, .. } = cap;
            let cap = Cap { by_shares, by_tenant, ..before.cap };
            self.in_force.insert(key.clone(), InForce { cap, ..before });
            return Ok(None);
        }
        let is = |line: &str| cap.is_in_force(line);
        write_line(file, self.device, (UNBOUNDED, &cap.text()), journal, is)?;
        self.in_force.insert(key.clone(), new);
        Ok(changed)
    }

    /// Notes what another program has set since the last period, before what was there is put back.
    pub(crate) fn look_again(&self, journal: &mut LockedJournal) -> Result<(), ShareError> {
        for (key, theirs) in &self.theirs {
            let in_force = self.in_force.get(key).filter(|in_force| in_force.id == theirs.id);
            // A removed cgroup has taken its bounds along.
            let (Some(ours), Ok(text)) = (in_force, sysfs::read(&theirs.file)) else { continue };
            let mut cap = theirs.cap;
            cap.take_theirs(line(&text, self.device).unwrap_or(UNBOUNDED), ours.cap);
            self.note_theirs(&theirs.file, cap, journal)?;
        }
        Ok(())
    }

    /// Notes the bounds that another program has set meanwhile: these are put back, and not its earlier ones.
    fn note_theirs(
        &self,
        file: &Path,
        theirs: Cap,
        journal: &mut LockedJournal,
    ) -> Result<(), ShareError> {
        let value = format!("{} {}", self.device, theirs.line());
        let mut known = journal.originals().iter();
        let known = known.find(|original| original.file == file && original.is_there());
        let is_old = |known: &Original| {
            let mut noted = Cap::default();
            noted.take_theirs(&known.value, Cap::default());
            noted != theirs
        };
        if known.is_some_and(is_old) {
            journal.correct(Original::of_cgroup(file, value)?)?;
        }
        Ok(())
    }

    /// Leaves the bounds of another program alone in force.
    fn clear_one(&mut self, key: &VmKey, file: &Path, theirs: Cap) -> Result<(), ShareError> {
        sysfs::write(file, &format!("{} {}", self.device, theirs.line()))?;
        self.in_force.remove(key);
        Ok(())
    }
}

const UNBOUNDED: &str = "rbps=max wbps=max riops=max wiops=max";

#[cfg(test)]
mod tests {
    use super::*;

    fn done(reads: u64, writes: u64) -> IoCounts {
        IoCounts { reads, writes }
    }

    fn pair(reads: u64, writes: u64) -> Pair {
        Pair { reads: Some(reads), writes: Some(writes) }
    }

    #[test]
    fn a_cap_is_split_as_the_ios_were() {
        assert_eq!(Pair::split(1000.0, done(300, 100)), pair(750, 250));
        assert_eq!(Pair::split(1000.0, done(300, 0)), pair(1000, 100));
        assert_eq!(Pair::split(1000.0, done(0, 0)), pair(1000, 1000));
        assert_eq!(Pair::split(0.2, done(1, 0)), pair(2, 2), "as low as it goes");
    }

    #[test]
    fn a_limit_of_both_directions_is_never_exceeded_by_their_sum() {
        for rate in [4.0, 5.0, 21.0, 500.0, 1e9] {
            for (reads, writes) in [(0, 0), (9, 0), (0, 9), (7, 2), (1, 1)] {
                let Pair { reads: Some(r), writes: Some(w) } =
                    Pair::within(rate, done(reads, writes))
                else {
                    panic!()
                };
                assert!((r + w) as f64 <= rate && r >= 2 && w >= 2, "{rate}: {r} + {w}");
            }
        }
        assert_eq!(Pair::within(1100.0, done(300, 0)), pair(1000, 100));
        assert_eq!(Pair::within(1000.0, done(300, 100)), pair(750, 250));
    }

    #[test]
    fn a_cap_is_the_lower_of_shares_and_limit_in_each_direction() {
        let iops = Rates { total: Some(1000.0.into()), reads: Some(200.0.into()), writes: None };
        let bandwidth = Rates { writes: Some(4e6.into()), ..Rates::default() };
        let limit = Limit { iops, bandwidth, ..Limit::default() };
        let begun = Begun { ios: done(300, 300), bytes: done(9, 9) };
        let bytes = Pair { writes: Some(4_000_000), ..Pair::default() };
        let of = |share, limit| {
            let Cap { ios, bytes, by_shares, .. } = Cap::of(share, limit, begun);
            (ios, bytes, by_shares)
        };
        assert_eq!(of(None, &limit), (pair(200, 500), bytes, [false; 2]));
        assert_eq!(of(Some(600.0), &limit), (pair(200, 300), bytes, [false, true]));
        let shares = (pair(50, 50), Pair::default(), [true; 2]);
        assert_eq!(of(Some(100.0), &Limit::default()), shares);
        assert!(Cap::of(None, &Limit::default(), begun).is_none());
    }

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = "rbps=max wbps=1048576 riops=120 wiops=12";
        let cap = Cap { ios: pair(120, 12), ..Cap::default() };
        assert!(cap.is_in_force(line), "bounds in bytes are another program's");
        let bytes = Pair { writes: Some(1_048_576), ..Pair::default() };
        assert!(Cap { bytes, ..cap }.is_in_force(line));
        assert!(!Cap { ios: pair(12, 12), ..cap }.is_in_force(line));
        assert!(!cap.is_in_force("rbps=max wbps=max riops=120 wiops=max") && !cap.is_in_force(""));
    }
}
