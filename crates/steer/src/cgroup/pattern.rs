//! Patterns that say which cgroups are VMs.
//!
//! A pattern is a path below the cgroup root, whose names may contain `*` and `?`; `**` stands for
//! any number of names. Platforms have short forms: `libvirt:db`, `proxmox:100`, `kubernetes:*`,
//! `systemd:postgresql.service`.
//!
//! systemd escapes `-` inside a name as `\x2d`: the cgroup of a libvirt guest is
//! `machine-qemu\x2d3\x2ddb.scope`. Patterns match both the escaped and the unescaped name.

use std::str::FromStr;

use wildmatch::WildMatch;

/// A pattern. Each cgroup that matches is one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Alternatives, any of which may match.
    paths: Vec<Vec<Part>>,
    platform: Option<Platform>,
}

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Any number of names: `**`.
    Deep,
    /// One name, which may contain `*` and `?`.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum Platform {
    Libvirt,
    Proxmox,
    Kubernetes,
    Systemd,
}

impl Pattern {
    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path below the cgroup root matches.
    pub(crate) fn matches(&self, path: &[String]) -> bool {
        self.paths.iter().any(|parts| matches(parts, path))
    }

    /// Whether a cgroup below this path could match, so that it is worth descending.
    pub(crate) fn may_match_below(&self, path: &[String]) -> bool {
        self.paths.iter().any(|parts| {
            let straight = parts.iter().take_while(|p| **p != Part::Deep).count();
            let deep = straight < parts.len();
            let looked = straight.min(path.len());
            (deep || path.len() < parts.len()) && matches(&parts[..looked], &path[..looked])
        })
    }

    /// Name of the VM with a cgroup of this name, as its platform calls it.
    pub(crate) fn name_of(&self, dir: &str) -> String {
        let plain = unescaped(dir);
        let bare = ["scope", "service", "slice"]
            .iter()
            .find_map(|kind| plain.strip_suffix(kind)?.strip_suffix('.'))
            .unwrap_or(&plain);
        // libvirt's `machine-qemu-3-db`: the number changes at each start.
        let libvirt = || {
            let (number, name) = bare.strip_prefix("machine-qemu-")?.split_once('-')?;
            number.parse::<u32>().ok().map(|_| name)
        };
        let pod = || bare.rfind("pod").filter(|_| self.platform == Some(Platform::Kubernetes));
        match (libvirt(), pod()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(at)) => bare[at..].to_owned(),
            (None, None) => bare.to_owned(),
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (platform, texts) = match text.split_once(':') {
            // A cgroup's name may contain a colon; a platform's name has none of these characters.
            Some((who, what)) if !who.contains(['/', '.', '*', '?']) => {
                if what.is_empty() || what.contains('/') {
                    return Err(no_name(text, what));
                }
                let unknown = |_| {
                    format!(
                        "{text:?}: {who:?} is not known: it must be libvirt:, proxmox:, kubernetes: or systemd:, or a path \
                         below the cgroup root"
                    )
                };
                let platform: Platform = who.parse().map_err(unknown)?;
                (Some(platform), platform.paths(what))
            }
            _ => (None, vec![text.to_owned()]),
        };
        let paths = texts.iter().map(|path| parts(text, path)).collect::<Result<_, _>>()?;
        Ok(Pattern { text: text.to_owned(), paths, platform })
    }
}

impl Platform {
    /// Paths of the cgroup that the platform creates for this name.
    fn paths(self, what: &str) -> Vec<String> {
        match self {
            Platform::Libvirt => vec![
                format!("machine.slice/machine-qemu-*-{what}.scope"),
                // The path without systemd.
                format!("machine/qemu-*-{what}.libvirt-qemu"),
            ],
            Platform::Proxmox => vec![format!("qemu.slice/{what}.scope"), format!("lxc/{what}")],
            Platform::Kubernetes => {
                // The kubelet's systemd driver writes `_` for `-` in a pod's id.
                let id = what.replace('-', "_");
                let mut paths = vec![
                    format!("kubepods.slice/kubepods-pod{id}.slice"),
                    format!("kubepods/pod{what}"),
                ];
                for class in ["burstable", "besteffort"] {
                    paths.push(format!(
                        "kubepods.slice/kubepods-{class}.slice/kubepods-{class}-pod{id}.slice"
                    ));
                    paths.push(format!("kubepods/{class}/pod{what}"));
                }
                paths
            }
            Platform::Systemd => vec![format!("**/{what}")],
        }
    }
}

fn no_name(text: &str, name: &str) -> String {
    format!("{text:?}: {name:?} is no name of a cgroup")
}

fn parts(text: &str, path: &str) -> Result<Vec<Part>, String> {
    let below = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
    let below = below.strip_prefix('/').unwrap_or(below);
    let below = below.strip_suffix('/').unwrap_or(below);
    let part = |name: &str| match name {
        "" | "." | ".." => Err(no_name(text, name)),
        "**" => Ok(Part::Deep),
        name => Ok(Part::Name(name.to_owned())),
    };
    if below.is_empty() || below.split('/').all(|name| name == "**") {
        return Err(format!(
            "{text:?} names no cgroup: it must be a path below the cgroup root, such as \
             \"machine.slice/machine-qemu*db*.scope\""
        ));
    }
    below.split('/').map(part).collect()
}

fn matches(parts: &[Part], path: &[String]) -> bool {
    match (parts.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((Part::Deep, rest)), below) => {
            matches(rest, path) || below.is_some_and(|(_, path)| matches(parts, path))
        }
        (Some((Part::Name(pattern), rest)), Some((name, path))) => {
            (glob(pattern, name) || glob(pattern, &unescaped(name))) && matches(rest, path)
        }
        _ => false,
    }
}

/// Matches a name: `*` stands for any characters, `?` for one.
#[must_use]
pub fn glob(pattern: &str, name: &str) -> bool {
    WildMatch::new(pattern).matches(name)
}

/// A name with systemd's `\xNN` escapes replaced.
fn unescaped(name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    fn is(pattern: &str, cgroup: &str) -> bool {
        let pattern: Pattern = pattern.parse().expect(pattern);
        let path = path(cgroup);
        let found = pattern.matches(&path);
        // A walk from the root must be allowed to reach the path.
        for depth in 0..path.len() {
            let above = &path[..depth];
            assert!(!found || pattern.may_match_below(above), "{cgroup} below {above:?}");
        }
        found
    }

    #[test]
    fn a_path_is_that_cgroup_and_no_other() {
        assert!(is("machine.slice/db.scope", "machine.slice/db.scope"));
        assert!(is("/sys/fs/cgroup/machine.slice/db.scope/", "machine.slice/db.scope"));
        assert!(!is("machine.slice/db.scope", "machine.slice/db.scope/libvirt"));
        assert!(!is("machine.slice/db.scope", "machine.slice"));
        assert!(!is("machine.slice/db.scope", "machine.slice/dbxscope"));
    }

    #[test]
    fn stars_stay_within_a_name_and_two_go_deeper() {
        assert!(is(
            "machine.slice/machine-qemu*db*.scope",
            r"machine.slice/machine-qemu\x2d3\x2ddb.scope"
        ));
        assert!(is("*.slice/a?c", "b.slice/abc"));
        assert!(!is("*/abc", "b.slice/x/abc"));
        assert!(is("**/abc", "abc") && is("**/abc", "x/y/abc"));
        assert!(is("a/**/c*", "a/cd") && is("a/**/c*", "a/b/b/cd"));
        assert!(!is("a/**/c*", "b/c"));
    }

    #[test]
    fn platforms_are_known_by_what_they_make() {
        for (pattern, cgroup, name) in [
            ("libvirt:db", r"machine.slice/machine-qemu\x2d3\x2ddb.scope", "db"),
            ("libvirt:*", r"machine.slice/machine-qemu\x2d12\x2dweb\x2d1.scope", "web-1"),
            ("proxmox:100", "qemu.slice/100.scope", "100"),
            ("proxmox:*", "lxc/101", "101"),
            (
                "kubernetes:*",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice",
                "pod1b_2c",
            ),
            ("kubernetes:1b-2c", "kubepods.slice/kubepods-pod1b_2c.slice", "pod1b_2c"),
            ("kubernetes:1b-*", "kubepods/besteffort/pod1b-2c", "pod1b-2c"),
            ("systemd:postgresql*.service", "system.slice/postgresql.service", "postgresql"),
            ("systemd:my.service", "user.slice/user-1.slice/my.service", "my"),
        ] {
            assert!(is(pattern, cgroup), "{pattern} {cgroup}");
            let dir = cgroup.rsplit('/').next().expect("a name");
            assert_eq!(pattern.parse::<Pattern>().expect(pattern).name_of(dir), name);
        }
        assert!(!is("libvirt:db", r"machine.slice/machine-qemu\x2d3\x2ddb2.scope"));
        assert!(!is("proxmox:10", "qemu.slice/100.scope"));
    }

    #[test]
    fn what_names_no_cgroup_is_refused_with_what_was_written() {
        for wrong in [
            "",
            "/",
            "**",
            "/sys/fs/cgroup/",
            "a//b",
            "../a",
            "./a",
            "kvm:db",
            "libvirt:",
            "proxmox:a/b",
        ] {
            let error = wrong.parse::<Pattern>().expect_err(wrong).to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        // A colon inside a cgroup's name is no platform prefix.
        assert!(is("system.slice/a:b.service", "system.slice/a:b.service"));
    }

    #[test]
    fn nobody_looks_where_nothing_can_be() {
        let libvirt: Pattern = "libvirt:*".parse().expect("known");
        assert!(libvirt.may_match_below(&path("machine.slice")));
        assert!(!libvirt.may_match_below(&path("system.slice")));
        assert!(!libvirt.may_match_below(&path("machine.slice/db.scope")));
        let unit: Pattern = "systemd:a.service".parse().expect("known");
        assert!(unit.may_match_below(&path("system.slice/b.service")));
    }
}
