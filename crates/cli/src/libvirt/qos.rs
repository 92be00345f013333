//! What a definition says of how its disks are to be served: `<iotune>`, `<blkiotune>`, and metadata of parda's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use parda_config::LimitSetting;
use roxmltree::Node;
use serde::Deserialize;
use toml::{Table, Value};

use super::domain::{child, elements};
use super::place::same_file;

/// Namespace of `<parda:domain>` in `<metadata>`: one element for the domain, and in it a `<parda:disk target='vda'>` for each disk.
pub(super) const NAMESPACE: &str = "urn:parda:libvirt";

/// Shares of a weight of libvirt: its default weight, 500, stands for the default shares, 1000.
const SHARES_PER_WEIGHT: i64 = 2;

/// Keys of `[[volume.disk]]` that are attributes of the metadata. A disk's count over its domain's.
const KEYS: [&str; 5] = ["tenant", "shares", "reservation", "latency_target", "lock"];

/// Attributes that say where a disk is: the volume, and the path of data that the agent serves.
const PLACES: [&str; 2] = ["volume", "path"];

/// Attribute of a disk with its element from before `attach`, where the element cannot be made from the path.
pub(super) const BEFORE: &str = "before";

/// Attribute of the domain whose memory `attach` shares.
pub(super) const MEMORY: &str = "memory";

/// Service settings of a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Qos {
    /// The settings as keys of `[[volume.disk]]`.
    pub(super) settings: Table,
    /// Volume that the metadata names.
    pub(super) volume: Option<String>,
    /// Place of the data that the metadata names.
    pub(super) path: Option<String>,
    /// The disk's element from before `attach`.
    pub(super) before: Option<String>,
    /// Elements that have no counterpart, each with the reason.
    pub(super) ignored: Vec<String>,
}

impl Qos {
    /// Reads the settings of a disk. `path`: its file or device, if any.
    ///
    /// # Errors
    /// The metadata has a fault.
    pub(super) fn read(
        root: Node<'_, '_>,
        disk: Node<'_, '_>,
        target: &str,
        path: Option<&Path>,
    ) -> Result<Qos, String> {
        let mut qos = Qos::default();
        qos.read_metadata(root, target).map_err(|why| format!("its metadata: {why}"))?;
        let known = qos.path.clone();
        let path = path.or(known.as_deref().map(Path::new));
        let device = qos.read_blkiotune(root, path);
        qos.read_limit(disk, device);
        Ok(qos)
    }

    fn read_metadata(&mut self, root: Node<'_, '_>, target: &str) -> Result<(), String> {
        let Some(ours) = ours(root) else { return Ok(()) };
        let disks: Vec<_> = elements(ours, "disk").collect();
        if let Some(unknown) =
            ours.children().find(|node| node.is_element() && node.tag_name().name() != "disk")
        {
            return Err(format!("<{}> is no element of it: <disk> is", unknown.tag_name().name()));
        }
        let targets: BTreeSet<_> = all_disks(root).filter_map(target_of).collect();
        let is_there =
            |of: &Node<'_, '_>| of.attribute("target").is_some_and(|name| targets.contains(name));
        if let Some(lost) = disks.iter().find(|disk| !is_there(disk)) {
            let target = lost.attribute("target").unwrap_or_default();
            return Err(format!("target = {target:?}: the domain has no such disk"));
        }
        let own = disks.iter().filter(|disk| disk.attribute("target") == Some(target));
        for element in std::iter::once(&ours).chain(own) {
            for attribute in element.attributes() {
                self.take(attribute.name(), attribute.value())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, key: &str, text: &str) -> Result<(), String> {
        let text_of = match key {
            BEFORE => Some(&mut self.before),
            "volume" => Some(&mut self.volume),
            "path" => Some(&mut self.path),
            _ => None,
        };
        if let Some(place) = text_of {
            *place = Some(text.to_owned());
            return Ok(());
        }
        let value = match key {
            "target" | MEMORY => return Ok(()),
            "shares" | "reservation" => text.parse::<u32>().map(|number| i64::from(number).into()),
            key if KEYS.contains(&key) => Ok(text.into()),
            _ => {
                let known = [&KEYS[..], &PLACES].concat().join(", ");
                return Err(format!("{key} is no key of it: there are {known}"));
            }
        };
        let value: Value =
            value.map_err(|_| format!("{key} = {text:?}: must be a whole number"))?;
        self.settings.insert(key.to_owned(), value);
        Ok(())
    }

    /// Reads the weight as shares. Returns the element of the disk's device, which may have limits.
    fn read_blkiotune<'a, 'i>(
        &mut self,
        root: Node<'a, 'i>,
        path: Option<&Path>,
    ) -> Option<Node<'a, 'i>> {
        let tune = child(root, "blkiotune")?;
        let is = |device: Node<'_, '_>, path: &Path| {
            path_of(device).is_some_and(|own| same_file(Path::new(own), path).unwrap_or(false))
        };
        let own = path.and_then(|path| elements(tune, "device").find(|device| is(*device, path)));
        let used = |device: &Node<'a, 'i>| {
            let disks = all_disks(root).filter_map(|disk| child(disk, "source")?.attribute("dev"));
            Some(*device) == own || disks.map(Path::new).any(|path| is(*device, path))
        };
        let unused = elements(tune, "device").filter(|device| !used(device)).filter_map(path_of);
        self.ignored
            .extend(unused.map(|path| {
                format!("<blkiotune> of {path}: no disk of the domain is this device")
            }));
        let weight = |of: Node<'_, '_>| child(of, "weight")?.text()?.trim().parse::<i64>().ok();
        let weight = own.and_then(weight).or_else(|| weight(tune)).filter(|weight| *weight > 0);
        if let Some(weight) = weight {
            let shares = Value::from(SHARES_PER_WEIGHT * weight);
            self.settings.entry("shares").or_insert(shares);
        }
        own
    }

    /// Reads the limit of a disk: its `<iotune>`, or the rates of its device in `<blkiotune>`.
    fn read_limit(&mut self, disk: Node<'_, '_>, device: Option<Node<'_, '_>>) {
        let mut ignored = |what: &str| self.ignored.push(what.to_owned());
        if child(disk, "throttlefilters").is_some() {
            ignored("<throttlefilters>: QEMU holds the guest to these groups alone");
        }
        let iotune = child(disk, "iotune");
        let has = |name| iotune.and_then(|iotune| child(iotune, name)).is_some();
        if has("group_name") {
            ignored("<group_name>: the limit is of this disk alone; a tenant has one for several");
        }
        let (of_iotune, of_device) = (iotune.map(words), device.map(words));
        let [of_iotune, of_device] =
            [of_iotune, of_device].map(|words| words.filter(|words| !words.is_empty()));
        if of_iotune.is_some() && of_device.is_some() {
            ignored("rates of <blkiotune>: the disk has an <iotune>");
        }
        let Some(words) = of_iotune.or(of_device) else { return };
        let limit = match LimitSetting::deserialize(Value::Table(words)) {
            Ok(limit) => limit,
            Err(error) => return ignored(&format!("<iotune>: {}", error.message())),
        };
        if let Some(fault) = limit.fault() {
            return ignored(&format!("<iotune>: {fault}"));
        }
        // All values of a limit have a form in TOML.
        if let Ok(limit) = Value::try_from(limit) {
            self.settings.insert("limit".to_owned(), limit);
        }
    }
}

/// The element of parda's own in the metadata of a domain.
pub(super) fn ours<'a, 'i>(root: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
    child(root, "metadata")?.children().find(|node| node.has_tag_name((NAMESPACE, "domain")))
}

fn all_disks<'a, 'i>(root: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    child(root, "devices").into_iter().flat_map(|devices| elements(devices, "disk"))
}

/// Path of a device of `<blkiotune>`.
fn path_of<'a>(device: Node<'a, '_>) -> Option<&'a str> {
    child(device, "path")?.text()
}

fn target_of<'a>(disk: Node<'a, '_>) -> Option<&'a str> {
    child(disk, "target")?.attribute("dev")
}

/// The numbers of an element that sets rates, by their names, which a limit knows. 0 stands for no limit.
fn words(of: Node<'_, '_>) -> Table {
    let number = |node: Node<'_, '_>| {
        let number = node.text()?.trim().parse::<i64>().ok()?;
        (number > 0).then(|| (node.tag_name().name().to_owned(), number))
    };
    let rates = |(name, _): &(String, i64)| name.contains("_sec");
    let mut words: BTreeMap<_, _> = of.children().filter_map(number).filter(rates).collect();
    let bursts: Vec<_> = words.keys().filter(|name| name.ends_with("_max")).cloned().collect();
    // QEMU lets a length of one second stand without its burst.
    words.retain(|name, _| {
        name.strip_suffix("_length").is_none_or(|burst| bursts.iter().any(|name| name == burst))
    });
    words.into_iter().map(|(name, number)| (name, number.into())).collect()
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;

    /// Settings of `vda`, a device with the elements `disk`, in a domain with the elements `domain`. Beside them the ignored
    /// elements.
    fn read(disk: &str, domain: &str) -> Result<(String, Vec<String>), String> {
        let xml = format!(
            "<domain>{domain}<devices><disk type='block'><source dev='/dev/null'/><target dev='vda'/>{disk}</disk></devices></domain>"
        );
        let document = Document::parse(&xml).unwrap();
        let root = document.root_element();
        let disk = all_disks(root).next().unwrap();
        let qos = Qos::read(root, disk, "vda", Some(Path::new("/dev/null")))?;
        Ok((qos.settings.to_string(), qos.ignored))
    }

    /// Limit of an `<iotune>` with these elements, in TOML, and the ignored elements.
    fn limit_of(iotune: &str) -> (String, Vec<String>) {
        let (settings, ignored) = read(&format!("<iotune>{iotune}</iotune>"), "").unwrap();
        let settings: Table = toml::from_str(&settings).unwrap();
        (settings.get("limit").map(ToString::to_string).unwrap_or_default(), ignored)
    }

    fn elements_of(words: &[(&str, u64)]) -> String {
        words.iter().map(|(name, value)| format!("<{name}>{value}</{name}>")).collect()
    }

    #[test]
    fn an_iotune_is_a_limit_whose_rates_have_their_own_bursts() {
        let plain = [("read_iops_sec", 400), ("total_bytes_sec", 1_048_576), ("write_iops_sec", 0)];
        let of = |more: &[(&str, u64)]| limit_of(&elements_of(&[&plain, more].concat()));
        let limit = "{ bandwidth = \"1MiB\", iops_reads = 400.0 }";
        assert_eq!(of(&[]), (limit.to_owned(), vec![]));
        assert_eq!(of(&[("read_iops_sec_max_length", 1)]).0, limit, "a length without a burst");
        let burst = of(&[("read_iops_sec_max", 800), ("read_iops_sec_max_length", 30)]);
        let limit = "{ bandwidth = \"1MiB\", iops_reads = 400.0, iops_reads_max = 800.0, iops_reads_max_length = \"30s\" }";
        assert_eq!(burst, (limit.to_owned(), vec![]), "a burst of one rate only");
        let other = of(&[("total_bytes_sec_max", 2_097_152), ("size_iops_sec", 8192)]);
        let limit = "{ bandwidth = \"1MiB\", bandwidth_max = \"2MiB\", iops_reads = 400.0, iops_size = \"8KiB\" }";
        assert_eq!(other, (limit.to_owned(), vec![]));
        assert_eq!(limit_of("<read_iops_sec>0</read_iops_sec>"), (String::new(), vec![]));
        let (limit, ignored) = of(&[("read_iops_sec_max", 300)]);
        assert_eq!(limit, "");
        assert!(ignored[0].starts_with("<iotune>: has iops_reads_max = 300"), "{ignored:?}");
        let (_, ignored) = limit_of("<read_iops_sec>1</read_iops_sec><group_name>g</group_name>");
        assert!(ignored[0].starts_with("<group_name>"), "{ignored:?}");
    }

    #[test]
    fn a_weight_is_shares_and_that_of_the_device_counts_over_that_of_the_domain() {
        let tune = |inside: &str| {
            let domain = format!("<blkiotune><weight>500</weight>{inside}</blkiotune>");
            read("", &domain).unwrap()
        };
        assert_eq!(tune("").0, "shares = 1000\n");
        let device = |path: &str| {
            let rates = "<read_iops_sec>100</read_iops_sec>";
            tune(&format!("<device><path>{path}</path><weight>750</weight>{rates}</device>"))
        };
        let (settings, ignored) = device("/dev/../dev/null");
        assert!(settings.contains("shares = 1500"), "{settings}");
        assert!(settings.contains("iops_reads = 100"), "{settings}");
        assert!(ignored.is_empty(), "{ignored:?}");
        let (settings, ignored) = device("/dev/zero");
        assert_eq!(settings, "shares = 1000\n");
        assert_eq!(ignored, ["<blkiotune> of /dev/zero: no disk of the domain is this device"]);
    }

    #[test]
    fn metadata_counts_over_a_weight_and_a_wrong_key_is_named() {
        let meta = |domain: &str, disks: &str| {
            let ours = format!("<p:domain xmlns:p='{NAMESPACE}' {domain}>{disks}</p:domain>");
            let weight = "<blkiotune><weight>100</weight></blkiotune>";
            read("", &format!("<metadata><x/>{ours}</metadata>{weight}"))
        };
        let disk = "<p:disk target='vda' shares='3000' latency_target='10ms'/>";
        assert_eq!(
            meta("tenant='gold' shares='7'", disk).unwrap().0,
            "latency_target = \"10ms\"\nshares = 3000\ntenant = \"gold\"\n"
        );
        assert_eq!(meta("", "").unwrap().0, "shares = 200\n");
        let wrong = |domain: &str, disks: &str| meta(domain, disks).unwrap_err();
        assert!(wrong("share='7'", "").contains("share is no key of it"));
        assert!(wrong("shares='many'", "").contains("must be a whole number"));
        assert!(wrong("", "<p:disk target='vdb'/>").contains("the domain has no such disk"));
        assert!(wrong("", "<p:disks/>").contains("<disks> is no element of it"));
    }
}
