//! Replicated hosts: `count = 64`.

use crate::file::{Host, Vm};

/// Every host of these entries, with the index of its entry. Hosts of an entry with a count, and
/// their VMs, are numbered `h-001`, `h-002` and so on. The number's width does not depend on the
/// count, so a name means the same host for any count.
pub(crate) fn each(entries: &[Host]) -> impl Iterator<Item = (usize, Host)> + '_ {
    entries.iter().enumerate().flat_map(|(place, entry)| {
        let numbers = entry.count.map_or(0..1, |count| 1..count.saturating_add(1));
        numbers.map(move |number| match entry.count {
            None => (place, entry.clone()),
            Some(_) => (place, numbered(entry, number)),
        })
    })
}

fn numbered(entry: &Host, number: u32) -> Host {
    let name = |name: &str| format!("{name}-{number:03}");
    let vm = |vm: &Vm| Vm { name: name(&vm.name), ..vm.clone() };
    Host { name: name(&entry.name), vm: entry.vm.iter().map(vm).collect(), ..entry.clone() }
}
