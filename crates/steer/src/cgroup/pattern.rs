//! Patterns that say which cgroups are VMs.
//!
//! A pattern is a path below the cgroup root, whose names may contain `*` and `?`; `**` stands for any number of names. Platforms
//! have short forms: `libvirt:db`, `proxmox:100`, `kubernetes:*`, `systemd:postgresql.service`. These name a VM as its platform
//! does, wherever the platform puts its cgroup.
//!
//! systemd escapes `-` inside a name as `\x2d`. Patterns match both the escaped and the unescaped name.

use std::str::FromStr;

use wildmatch::WildMatch;

use crate::cgroup::platform::{Made, shortened, unescaped};

/// A pattern. Each cgroup that matches is one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    of: Of,
}

/// The cgroups of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// A path below the cgroup root.
    Path(Vec<Part>),
    /// Of a domain of libvirt, by its name.
    Domain(String),
    /// Of a VM or container of Proxmox, by its number.
    Proxmox(String),
    /// Of a pod, by its uid.
    Pod(String),
    /// Of a unit of the host's systemd or of one of its users.
    Unit(String),
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

    /// Whether a path below the cgroup root matches, of what a platform made there. `domain`: the whole name of a domain of libvirt,
    /// where it is known.
    pub(crate) fn matches(
        &self,
        path: &[String],
        made: Option<&Made>,
        domain: Option<&str>,
    ) -> bool {
        match (&self.of, made) {
            (Of::Path(parts), _) => matches(parts, path),
            (Of::Domain(name), Some(Made::Domain(of))) => match domain {
                Some(domain) => glob(name, domain),
                None if is_one(name) => of.may_be(name),
                None => glob(&shortened(name), &of.rest),
            },
            (Of::Proxmox(number), Some(Made::Proxmox(of))) => glob(number, of),
            (Of::Pod(uid), Some(Made::Pod(of))) => glob(&dashed(uid), &dashed(of)),
            (Of::Unit(unit), _) => path.split_last().is_some_and(|(name, above)| {
                is_named(unit, name) && above.iter().all(|name| holds_units(name))
            }),
            _ => false,
        }
    }

    /// Whether it names one cgroup and not a kind: it has no `*` and no `?`.
    pub(crate) fn is_one(&self) -> bool {
        is_one(&self.text)
    }

    /// The one domain of libvirt that it names.
    pub(crate) fn domain(&self) -> Option<&str> {
        match &self.of {
            Of::Domain(name) if is_one(name) => Some(name),
            _ => None,
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let of = match text.split_once(':') {
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
                platform.cgroups(text, what)?
            }
            _ => Of::Path(parts(text, text)?),
        };
        Ok(Pattern { text: text.to_owned(), of })
    }
}

impl Platform {
    /// The cgroups that the platform makes for this name.
    fn cgroups(self, text: &str, what: &str) -> Result<Of, String> {
        let name = what.to_owned();
        Ok(match self {
            Platform::Libvirt => Of::Domain(name),
            Platform::Proxmox if what.chars().all(|c| c.is_ascii_digit() || "*?".contains(c)) => {
                Of::Proxmox(name)
            }
            Platform::Proxmox => {
                return Err(format!(
                    "{text:?}: {what:?} is no number of a VM or container: Proxmox names their cgroups so, as in proxmox:100"
                ));
            }
            Platform::Kubernetes => Of::Pod(name),
            Platform::Systemd => Of::Unit(name),
        })
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
            is_named(pattern, name) && matches(rest, path)
        }
        _ => false,
    }
}

/// Matches the name of a directory, also without systemd's escapes.
fn is_named(pattern: &str, name: &str) -> bool {
    glob(pattern, name) || glob(pattern, &unescaped(name))
}

/// Whether a cgroup holds units of the host: a slice, or the manager of a user. The units of a container are below its scope or
/// service.
fn holds_units(name: &str) -> bool {
    name.ends_with(".slice") || (name.starts_with("user@") && name.ends_with(".service"))
}

/// Matches a name: `*` stands for any characters, `?` for one.
#[must_use]
pub fn glob(pattern: &str, name: &str) -> bool {
    WildMatch::new(pattern).matches(name)
}

fn is_one(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// A pod's uid, of whose cgroup systemd's driver writes `_` for `-`.
fn dashed(uid: &str) -> String {
    uid.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    fn is(pattern: &str, cgroup: &str) -> bool {
        let (pattern, path): (Pattern, _) = (pattern.parse().expect(pattern), path(cgroup));
        pattern.matches(&path, Made::of(&path).as_ref(), None)
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
        let uid = "1b-2c";
        for (pattern, cgroup, name) in [
            ("libvirt:db", r"machine.slice/machine-qemu\x2d3\x2ddb.scope", "db"),
            ("libvirt:*", r"machine.slice/machine-qemu\x2d12\x2dweb\x2d1.scope", "web-1"),
            ("libvirt:db", r"machine.slice/machine-prod.slice/machine-qemu\x2d3\x2ddb.scope", "db"),
            ("libvirt:db", r"own.slice/own-prod.slice/machine-lxc\x2d3\x2ddb.scope", "db"),
            ("libvirt:db", "machine/qemu-7-db.libvirt-qemu", "db"),
            ("libvirt:db", "own.partition/prod.partition/ch-7-db.libvirt-ch", "db"),
            ("libvirt:1-2", r"machine.slice/machine-qemu\x2d3\x2d1\x2d2.scope", "1-2"),
            ("proxmox:100", "qemu.slice/100.scope", "100"),
            ("proxmox:*", "lxc/101", "101"),
            (
                "kubernetes:*",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice",
                "pod1b_2c",
            ),
            ("kubernetes:1b-2c", "kubepods.slice/kubepods-pod1b_2c.slice", "pod1b_2c"),
            ("kubernetes:1b-*", "kubepods/besteffort/pod1b-2c", "pod1b-2c"),
            (
                uid,
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1b_2c.slice",
                "pod1b_2c",
            ),
            (
                uid,
                "a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-besteffort.slice/a-b-kubepods-besteffort-pod1b_2c.slice",
                "pod1b_2c",
            ),
            (uid, "kubelet/kubepods/burstable/pod1b-2c", "pod1b-2c"),
            (uid, "a/b/kubepods/pod1b-2c", "pod1b-2c"),
            (
                uid,
                "system.slice/docker-0a.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1b_2c.slice",
                "pod1b_2c",
            ),
            (uid, "docker/0a/kubelet/kubepods/besteffort/pod1b-2c", "pod1b-2c"),
        ] {
            let pods = format!("kubernetes:{pattern}");
            let pattern = if pattern == uid { &pods } else { pattern };
            assert!(is(pattern, cgroup), "{pattern} {cgroup}");
            assert_eq!(Made::of(&path(cgroup)).expect(cgroup).name(), name);
        }
        assert!(is("systemd:postgresql*.service", "system.slice/postgresql.service"));
        for cgroup in ["my.service", "user.slice/user-1.slice/user@1.service/app.slice/my.service"]
        {
            assert!(is("systemd:my.service", cgroup));
        }
    }

    #[test]
    fn a_pattern_without_a_star_is_one_vm_and_no_other() {
        let scope = |name: &str| format!(r"machine.slice/machine-qemu\x2d{name}.scope");
        for (pattern, cgroup) in [
            ("libvirt:db", scope(r"7\x2dprod\x2ddb")),
            ("libvirt:plain", scope(r"7\x2dmy\x2dplain")),
            ("libvirt:db", scope(r"3\x2ddb2")),
            ("libvirt:db", scope(r"3\x2ddb\x2d4\x2ddb")),
            ("libvirt:db", scope(r"\x2ddb")),
            ("libvirt:db", scope(r"embed\x2d0a1b2c3d\x2d7\x2ddb")),
            ("libvirt:db", r"machine.slice/machine-web\x2d3\x2ddb.scope".to_owned()),
            (
                "libvirt:db",
                r"machine.slice/a.scope/machine.slice/machine-qemu\x2d3\x2ddb.scope".to_owned(),
            ),
            ("libvirt:db", "machine/qemu-7-prod-db.libvirt-qemu".to_owned()),
            ("libvirt:db", "machine/qemu-7-db.libvirt-lxc".to_owned()),
            ("libvirt:db", "machine/qemu-7-db.libvirt-qemu/emulator".to_owned()),
            ("proxmox:10", "qemu.slice/100.scope".to_owned()),
            ("proxmox:*", "qemu.slice/swtpm-100.scope".to_owned()),
            ("proxmox:*", "lxc/web".to_owned()),
            ("kubernetes:1b-2c", "kubepods.slice/kubepods-pod1b_2c3.slice".to_owned()),
            ("kubernetes:2c", "kubepods.slice/kubepods-pod1b_pod2c.slice".to_owned()),
            ("systemd:my.service", "lxc/101/ns/system.slice/my.service".to_owned()),
            ("systemd:my.service", "machine.slice/machine-a.scope/payload/my.service".to_owned()),
            ("kubernetes:*", "kubepods/burstable".to_owned()),
            ("kubernetes:*", "mykubepods/pod1".to_owned()),
            ("kubernetes:*", "kubepods.slice/kubepods-burstable.slice".to_owned()),
            ("kubernetes:*", "kubepods.slice/other-pod1.slice".to_owned()),
        ] {
            assert!(!is(pattern, &cgroup), "{pattern} {cgroup}");
        }
    }

    #[test]
    fn domains_are_found_by_what_libvirt_leaves_of_their_names() {
        let long = "n".repeat(70);
        let of = |id: &str, bytes: usize| {
            format!("machine/qemu-{id}-{}.libvirt-qemu", "n".repeat(bytes))
        };
        for (name, rest) in [
            ("db_1", "db1"),
            ("Oracle DB (prod)", "OracleDBprod"),
            ("a--b..c", "a-b.c"),
            ("-.a-", "a"),
            ("a_-b", "a-b"),
            ("a-_-b", "a-b"),
            // As releases before had it.
            ("a-_-b", "a--b"),
            ("größe:1", "gre1"),
        ] {
            let cgroup = format!("machine/qemu-1-{rest}.libvirt-qemu");
            assert!(is(&format!("libvirt:{name}"), &cgroup), "{name} {cgroup}");
        }
        let nothing = r"machine.slice/machine-qemu\x2d7.scope";
        assert!(
            is("libvirt:数据库", nothing) && is("libvirt:*", nothing) && !is("libvirt:a", nothing)
        );
        // The cut is at 64 bytes of the whole.
        for (id, bytes) in [("7", 57), ("12345", 53)] {
            assert!(is(&format!("libvirt:{long}"), &of(id, bytes)));
            assert!(!is(&format!("libvirt:{long}"), &of(id, bytes - 1)));
        }
        for (pattern, rest) in [("db_*", "db1"), ("Oracle DB*", "OracleDBprod")] {
            assert!(is(
                &format!("libvirt:{pattern}"),
                &format!("machine/qemu-1-{rest}.libvirt-qemu")
            ));
        }
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
            "proxmox:web",
        ] {
            let error = wrong.parse::<Pattern>().expect_err(wrong).to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        // A colon inside a cgroup's name is no platform prefix.
        assert!(is("system.slice/a:b.service", "system.slice/a:b.service"));
    }
}
