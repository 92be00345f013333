//! What a definition says of how its disks are to be served: `<iotune>`, `<blkiotune>`, and metadata of parda's own.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use parda_config::LimitSetting;
use roxmltree::Node;
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

/// How a disk is to be served.
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
    /// That of a disk. `path`: its file or device, if it is one.
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
        if has("size_iops_sec") {
            ignored("<size_iops_sec>: an IO counts as one, whatever its size");
        }
        if has("group_name") {
            ignored("<group_name>: the limit is of this disk alone; a tenant has one for several");
        }
        let rates = |of: Node<'_, '_>| {
            Some(limit(of)).filter(|(limit, _)| *limit != LimitSetting::default())
        };
        let (of_iotune, of_device) = (iotune.and_then(rates), device.and_then(rates));
        if of_iotune.is_some() && of_device.is_some() {
            ignored("rates of <blkiotune>: the disk has an <iotune>");
        }
        let Some((limit, whole)) = of_iotune.or(of_device) else { return };
        if !whole {
            ignored("bursts (…_max): the rates have different ones");
        }
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

/// The limit that an element's rates set, with the burst if that is the same for all of them, and whether nothing was left out. 0 stands for
/// no limit.
fn limit(of: Node<'_, '_>) -> (LimitSetting, bool) {
    let number = |name: &str| {
        let value = child(of, name)?.text()?.trim().parse::<u64>().ok()?;
        (value > 0).then_some(value)
    };
    let mut bursts = Vec::new();
    let mut rate = |name: &str| {
        let rate = number(name)?;
        let most = number(&format!("{name}_max"));
        let secs = number(&format!("{name}_max_length")).unwrap_or(1);
        bursts.push(most.map(|most| (most as f64 / rate as f64, secs)));
        Some(rate)
    };
    let [total, reads, writes] = ["total", "read", "write"];
    let mut iops = |of: &str| rate(&format!("{of}_iops_sec")).map(|rate| rate as f64);
    let [iops, iops_reads, iops_writes] = [total, reads, writes].map(&mut iops);
    let mut bytes = |of: &str| rate(&format!("{of}_bytes_sec")).map(ByteSize);
    let [bandwidth, bandwidth_reads, bandwidth_writes] = [total, reads, writes].map(&mut bytes);
    let limit = LimitSetting {
        iops,
        iops_reads,
        iops_writes,
        bandwidth,
        bandwidth_reads,
        bandwidth_writes,
        ..LimitSetting::default()
    };
    match bursts.first() {
        Some(Some((factor, secs))) if bursts.iter().all(|other| *other == bursts[0]) => {
            let burst_for = Some(Duration::from_secs(*secs));
            (LimitSetting { burst: Some(*factor), burst_for, ..limit }, true)
        }
        _ => (limit, bursts.iter().all(Option::is_none)),
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;

    /// The settings of `vda`, a device with these elements, of a domain with those; and what is ignored.
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

    fn limit_of(iotune: &str) -> (Option<LimitSetting>, Vec<String>) {
        let (settings, ignored) = read(&format!("<iotune>{iotune}</iotune>"), "").unwrap();
        #[derive(serde::Deserialize)]
        struct Settings {
            limit: Option<LimitSetting>,
        }
        (toml::from_str::<Settings>(&settings).unwrap().limit, ignored)
    }

    #[test]
    fn an_iotune_is_a_limit_with_the_burst_that_all_its_rates_have() {
        let rates = "<read_iops_sec>400</read_iops_sec><total_bytes_sec>1048576</total_bytes_sec>";
        let expected = LimitSetting {
            iops_reads: Some(400.0),
            bandwidth: Some(ByteSize::mib(1)),
            ..LimitSetting::default()
        };
        let zero = "<write_iops_sec>0</write_iops_sec>";
        assert_eq!(limit_of(&format!("{rates}{zero}")), (Some(expected), vec![]));
        let one = "<read_iops_sec_max>800</read_iops_sec_max>";
        let (found, ignored) = limit_of(&format!("{rates}{one}"));
        assert_eq!(found, Some(expected), "a burst of one rate only");
        assert_eq!(ignored, ["bursts (…_max): the rates have different ones"]);
        let other = "<total_bytes_sec_max>2097152</total_bytes_sec_max>";
        let (burst, burst_for) = (Some(2.0), Some(Duration::from_secs(1)));
        let bursts = LimitSetting { burst, burst_for, ..expected };
        assert_eq!(limit_of(&format!("{rates}{one}{other}")), (Some(bursts), vec![]));
        assert_eq!(limit_of(zero), (None, vec![]));
        let (_, ignored) = limit_of(&format!(
            "{rates}<size_iops_sec>4096</size_iops_sec><group_name>g</group_name>"
        ));
        assert!(ignored[0].starts_with("<size_iops_sec>"), "{ignored:?}");
        assert!(ignored[1].starts_with("<group_name>"), "{ignored:?}");
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
