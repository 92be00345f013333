//! Cgroups that platforms make for VMs, known by their paths.

/// Drivers of libvirt that make cgroups.
const DRIVERS: [&str; 3] = ["qemu", "lxc", "ch"];
/// Bytes of a machine's name from which on libvirt appends nothing.
const MOST: usize = 64;

/// A cgroup that a platform made for a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Of a domain of libvirt.
    Domain(Domain),
    /// Of a VM or container of Proxmox. Holds its number.
    Proxmox(String),
    /// A pod. Holds its uid as in the cgroup's name: systemd's driver writes `_` for `-`.
    Pod(String),
    /// Another machine of systemd's. Holds its name.
    Machine(String),
}

/// A domain of libvirt, by the name of its cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    /// The driver, which is also the directory of libvirt's records.
    pub(crate) driver: &'static str,
    /// Number that the driver gave the domain at its start.
    pub(crate) id: String,
    /// The rest of the domain's name, as shortened for the cgroup.
    pub(crate) rest: String,
}

impl Made {
    /// Looks at a path below the cgroup root. `None`: no platform makes such a cgroup for a VM.
    pub(crate) fn of(path: &[String]) -> Option<Made> {
        let (name, above) = path.split_last()?;
        machine(name, above)
            .or_else(|| without_systemd(name, above).map(Made::Domain))
            .or_else(|| proxmox(name, above).map(Made::Proxmox))
            .or_else(|| pod(name, above).map(Made::Pod))
    }

    /// Name of the VM, as far as the path tells it.
    pub(crate) fn name(&self) -> String {
        match self {
            Made::Domain(Domain { driver, id, rest }) if rest.is_empty() => {
                format!("{driver}-{id}")
            }
            Made::Domain(domain) => domain.rest.clone(),
            Made::Proxmox(name) | Made::Machine(name) => name.clone(),
            Made::Pod(uid) => format!("pod{uid}"),
        }
    }
}

/// `machine-qemu\x2d7\x2ddb.scope`, in the slice of any partition. Deeper, it is the machine of another machine.
fn machine(name: &str, above: &[String]) -> Option<Made> {
    let name = unescaped(name);
    let machine = name.strip_suffix(".scope")?.strip_prefix("machine-")?;
    if above.is_empty() || !above.iter().all(|slice| slice.ends_with(".slice")) {
        return None;
    }
    Some(domain(machine).map_or_else(|| Made::Machine(machine.to_owned()), Made::Domain))
}

/// `machine/qemu-7-db.libvirt-qemu`, and the same in `NAME.partition`.
fn without_systemd(name: &str, above: &[String]) -> Option<Domain> {
    let (machine, driver) = name.rsplit_once(".libvirt-")?;
    let partition = |name: &String| name.ends_with(".partition");
    let (first, rest) = above.split_first()?;
    let there = (first == "machine" || partition(first)) && rest.iter().all(partition);
    domain(machine).filter(|domain| there && domain.driver == driver)
}

/// A machine's name, `DRIVER-ID-NAME`. Nothing may be left of NAME.
fn domain(machine: &str) -> Option<Domain> {
    DRIVERS.into_iter().find_map(|driver| {
        let numbered = machine.strip_prefix(driver)?.strip_prefix('-')?;
        let (id, rest) = numbered.split_once('-').unwrap_or((numbered, ""));
        is_number(id).then(|| Domain { driver, id: id.to_owned(), rest: rest.to_owned() })
    })
}

fn proxmox(name: &str, above: &[String]) -> Option<String> {
    let number = match above {
        [slice] if slice == "qemu.slice" => name.strip_suffix(".scope")?,
        [folder] if folder == "lxc" => name,
        _ => return None,
    };
    is_number(number).then(|| number.to_owned())
}

/// A pod's cgroup below any `cgroupRoot`, also in a node that is a container. The driver of systemd makes `X-podUID.slice` in
/// `X.slice`, cgroupfs makes `podUID`.
fn pod(name: &str, above: &[String]) -> Option<String> {
    let parent = above.last()?;
    let uid = if let Some(slice) = parent.strip_suffix(".slice") {
        let class =
            ["-burstable", "-besteffort"].iter().find_map(|class| slice.strip_suffix(class));
        let pods = class.unwrap_or(slice);
        let is_pods = pods == "kubepods" || pods.ends_with("-kubepods");
        let own = name.strip_suffix(".slice")?.strip_prefix(slice)?.strip_prefix("-pod")?;
        is_pods.then_some(own)?
    } else {
        let pods = match parent.as_str() {
            "burstable" | "besteffort" => above.get(above.len().checked_sub(2)?)?,
            parent => parent,
        };
        name.strip_prefix("pod").filter(|_| pods == "kubepods")?
    };
    (!uid.is_empty()).then(|| uid.to_owned())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Domain {
    /// Whether a domain of this name could have the cgroup. `*` and `?` stand for themselves.
    pub(crate) fn may_be(&self, name: &str) -> bool {
        let (driver, id, rest) = (self.driver, &self.id, &self.rest);
        let prefix = format!("{driver}-{id}-");
        let own =
            if rest.is_empty() { format!("{driver}-{id}") } else { format!("{prefix}{rest}") };
        [true, false].iter().any(|newer| machine_name(&prefix, name, MOST, *newer) == own)
    }
}

/// A domain's name as libvirt appends it to a machine's: letters, digits and single `-` and `.` between them.
///
/// `newer`: a character that is dropped between two of `-` and `.` leaves one of them, not both.
fn machine_name(prefix: &str, name: &str, most: usize, newer: bool) -> String {
    let mut made = prefix.to_owned();
    let mut skip = true;
    for c in name.chars() {
        if made.len() >= most {
            break;
        }
        if matches!(c, '-' | '.') {
            if !skip {
                made.push(c);
            }
            skip = true;
        } else if c.is_ascii_alphanumeric() || matches!(c, '*' | '?') {
            made.push(c);
            skip = false;
        } else {
            skip = skip && newer;
        }
    }
    made.truncate(made.trim_end_matches(['-', '.']).len());
    made
}

/// A pattern of domains' names in shortened form, to be compared with shortened names.
pub(crate) fn shortened(pattern: &str) -> String {
    machine_name("", pattern, usize::MAX, true)
}

/// A name with systemd's `\xNN` escapes replaced.
pub(crate) fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = rest.strip_prefix(b"\\x").and_then(|r| r.get(..2));
        let code = code.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &rest[4..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}
