//! The XML of a domain: its disks, and other sources for them. All other text of the definition stays as it is, byte for byte.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use parda_address::Address;
use parda_config::LimitSetting;
use roxmltree::{Document, Node};

/// The definition of a domain.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    /// As libvirt writes it; empty in a definition that it has not seen.
    pub(super) uuid: String,
    pub(super) disks: Vec<Disk>,
}

/// A disk of a domain.
#[derive(Debug)]
pub(super) struct Disk {
    /// Name of the device, as `vda`.
    pub(super) target: String,
    pub(super) source: Source,
    pub(super) read_only: bool,
    /// What `<iotune>` says, as the agent's limit.
    pub(super) limit: Option<LimitSetting>,
    /// Reason why it cannot be served as it is.
    pub(super) refused: Option<String>,
    element: Range<usize>,
    /// Value of its attribute `type`, if it has one.
    kind: Option<Range<usize>>,
    source_element: Option<Range<usize>>,
}

/// Place of a disk's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A file or block device that QEMU opens.
    Path { path: PathBuf, block: bool },
    /// An export of an NBD server.
    Nbd { address: Address, export: String },
    /// Any other `type` of `<disk>`, such as `volume`.
    Other(String),
}

impl Domain {
    pub(super) fn parse(xml: &str) -> Result<Domain, String> {
        let document = Document::parse(xml).map_err(|error| error.to_string())?;
        let root = document.root_element();
        let name = child(root, "name").and_then(|name| name.text()).unwrap_or_default();
        if root.tag_name().name() != "domain" || name.is_empty() {
            return Err("is no definition of a domain".to_owned());
        }
        let devices = child(root, "devices");
        let disks = devices.into_iter().flat_map(|devices| elements(devices, "disk"));
        let uuid = child(root, "uuid").and_then(|uuid| uuid.text()).unwrap_or_default().to_owned();
        Ok(Domain { name: name.to_owned(), uuid, disks: disks.map(Disk::new).collect() })
    }
}

impl Disk {
    fn new(disk: Node<'_, '_>) -> Disk {
        let target = child(disk, "target").and_then(|target| target.attribute("dev"));
        let source_element = child(disk, "source");
        let source = source(disk.attribute("type").unwrap_or("file"), source_element);
        let refused = refusal(disk, source_element, &source);
        let kind = disk.attribute_node("type").map(|kind| kind.range_value());
        Disk {
            target: target.unwrap_or("?").to_owned(),
            source,
            read_only: child(disk, "readonly").is_some(),
            limit: child(disk, "iotune").map(limit).filter(|limit| limit.fault().is_none()),
            refused,
            element: disk.range(),
            kind,
            source_element: source_element.map(|source| source.range()),
        }
    }

    /// The definition with another source of this disk; `None` if the disk's element is too unlike what libvirt writes.
    pub(super) fn with(&self, xml: &str, source: &Source, delay: u64) -> Option<String> {
        let (kind, element) = (self.kind.clone()?, self.source_element.clone()?);
        let before = xml[..element.start].rsplit('\n').next().unwrap_or_default();
        let indent = if before.trim().is_empty() { before } else { "" };
        let (word, new) = match source {
            Source::Path { path, block } => {
                let path = escaped(path.to_str()?);
                match block {
                    true => ("block", format!("<source dev='{path}'/>")),
                    false => ("file", format!("<source file='{path}'/>")),
                }
            }
            Source::Nbd { address, export } => {
                let host = match address {
                    Address::Unix(path) => {
                        format!("transport='unix' socket='{}'", escaped(path.to_str()?))
                    }
                    // `served` refuses it.
                    Address::Vhost(_) => return None,
                    Address::Tcp { host, port } => {
                        format!("name='{}' port='{port}'", escaped(host))
                    }
                };
                let reconnect = match delay {
                    0 => String::new(),
                    delay => format!("{indent}  <reconnect delay='{delay}'/>\n"),
                };
                let name = escaped(export);
                let new = format!(
                    "<source protocol='nbd' name='{name}'>\n{indent}  <host {host}/>\n{reconnect}{indent}</source>"
                );
                ("network", new)
            }
            Source::Other(_) => return None,
        };
        let mut changed = xml.to_owned();
        // The attribute stands before the element.
        changed.replace_range(element, &new);
        changed.replace_range(kind, word);
        Some(changed)
    }

    /// The definition with the source of this disk in the words of another definition that has the same one; `None` if it has not.
    fn in_words_of(&self, xml: &str, other: &Disk, words: &str) -> Option<String> {
        let (from, to) = (self.source_element.clone()?, other.source_element.clone()?);
        let mut text = xml.to_owned();
        text.replace_range(from, &words[to]);
        (self.source == other.source && self.refused.is_none()).then_some(text)
    }

    /// Text of the disk in its definition.
    pub(super) fn text<'a>(&self, xml: &'a str) -> &'a str {
        &xml[self.element.clone()]
    }
}

/// Place of the first difference between the definition that libvirt has and the one that it was given, if there is one. Sources that changed since
/// `before` may be in libvirt's words; all else has to be the same text.
pub(super) fn unlike(before: &str, given: &str, has: &str) -> Option<String> {
    let disks = |xml: &str| Domain::parse(xml).map(|domain| domain.disks).unwrap_or_default();
    let (old, new) = (disks(before), disks(given));
    let mut text = has.to_owned();
    for (at, (old, new)) in old.iter().zip(&new).enumerate() {
        if old.source != new.source {
            // Ranges of the text are those of the text as it is now.
            let now = disks(&text);
            let same = now.get(at).and_then(|now| now.in_words_of(&text, new, given));
            let Some(same) = same else { return Some(format!("the source of {}", new.target)) };
            text = same;
        }
    }
    if text == given {
        return None;
    }
    let (mut has, mut given) = (text.lines(), given.lines());
    loop {
        match (has.next(), given.next()) {
            (None, None) => return Some("the ends of lines".to_owned()),
            (one, other) if one == other => {}
            (Some(line), _) | (None, Some(line)) => {
                // Not more of it: it may be a password.
                let tag = line.trim().split([' ', '/', '>']).next().unwrap_or_default();
                return Some(tag.to_owned());
            }
        }
    }
}

fn elements<'a, 'i>(of: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    of.children().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.is_element() && node.tag_name().name() == name)
}

/// The limit that an `<iotune>` sets, with its burst if that is the same for all its rates. 0 stands for no limit.
fn limit(iotune: Node<'_, '_>) -> LimitSetting {
    let number = |name: &str| {
        let value = child(iotune, name)?.text()?.trim().parse::<u64>().ok()?;
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
            LimitSetting { burst: Some(*factor), burst_for, ..limit }
        }
        _ => limit,
    }
}

fn source(kind: &str, element: Option<Node<'_, '_>>) -> Source {
    let other = || Source::Other(kind.to_owned());
    let attribute = |name| element.and_then(|source| source.attribute(name));
    let path = |path: Option<&str>, block| {
        path.map(|path| Source::Path { path: path.into(), block }).unwrap_or_else(other)
    };
    match (kind, attribute("protocol")) {
        ("file", _) => path(attribute("file"), false),
        ("block", _) => path(attribute("dev"), true),
        ("network", Some("nbd")) => {
            let host = element.and_then(|source| child(source, "host"));
            let address = host.and_then(address);
            let export = attribute("name").unwrap_or_default().to_owned();
            address.map_or_else(other, |address| Source::Nbd { address, export })
        }
        _ => other(),
    }
}

/// Address of an NBD server.
fn address(host: Node<'_, '_>) -> Option<Address> {
    match host.attribute("transport") {
        Some("unix") => Some(Address::Unix(host.attribute("socket")?.into())),
        None | Some("tcp") => {
            let port = host.attribute("port").map_or(Some(10809), |port| port.parse().ok())?;
            Some(Address::Tcp { host: host.attribute("name")?.to_owned(), port })
        }
        Some(_) => None,
    }
}

/// Reason why a disk cannot change between a path and NBD: more is known of it than both can say.
fn refusal(disk: Node<'_, '_>, element: Option<Node<'_, '_>>, source: &Source) -> Option<String> {
    let device = disk.attribute("device").unwrap_or("disk");
    if device != "disk" {
        return Some(format!("is a {device}"));
    }
    if let Source::Other(kind) = source {
        return Some(format!("its source is of type {kind:?}, no path and no NBD server"));
    }
    let format = child(disk, "driver").and_then(|driver| driver.attribute("type")).unwrap_or("raw");
    if format != "raw" {
        return Some(format!(
            "its image is {format}, and the agent serves raw ones: convert it, or serve it through qemu-storage-daemon"
        ));
    }
    let known = ["file", "dev", "protocol", "name", "index"];
    let more = element.and_then(|source| {
        let attribute = source.attributes().find(|attribute| !known.contains(&attribute.name()));
        let child = source.children().find(|child| {
            child.is_element() && !["host", "reconnect"].contains(&child.tag_name().name())
        });
        let child = child.map(|child| child.tag_name().name());
        attribute.map(|attribute| attribute.name()).or(child)
    });
    if let Some(more) = more {
        return Some(format!("its source has {more:?}, which would be lost"));
    }
    let names = ["shareable", "mirror", "encryption", "auth", "transient"];
    if let Some(name) = names.into_iter().find(|name| child(disk, name).is_some()) {
        return Some(format!("has <{name}>"));
    }
    let backed = child(disk, "backingStore");
    let backed = backed.is_some_and(|backing| backing.children().any(|node| node.is_element()));
    backed.then(|| "has a backing store".to_owned())
}

fn escaped(text: &str) -> String {
    let of = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '\'' => "&apos;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => format!("&#{};", c as u32),
        c => c.to_string(),
    };
    text.chars().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='qemu'>
  <name>d&amp;b</name>
  <!-- <disk type='file'/> -->
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='/mnt/a b&apos;s.img' index='1'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' slot='0x04'/>
    </disk>
    <disk type=\"block\"><source dev='/dev/vg/x'/><target dev='vdb'/><readonly/></disk>
  </devices>
</domain>
";

    #[test]
    fn a_disk_goes_to_nbd_and_back_and_nothing_else_changes() {
        let domain = Domain::parse(XML).unwrap();
        assert_eq!(domain.name, "d&b");
        let [first, second] = &domain.disks[..] else { panic!("{domain:?}") };
        assert_eq!(first.source, Source::Path { path: "/mnt/a b's.img".into(), block: false });
        assert!(first.refused.is_none() && second.refused.is_none() && second.read_only);
        let address = Address::Unix("/run/<s>".into());
        let nbd = Source::Nbd { address, export: "d&b-vda".to_owned() };
        let changed = first.with(XML, &nbd, 60).unwrap();
        let expected = XML.replacen("type='file' d", "type='network' d", 1).replace(
            "<source file='/mnt/a b&apos;s.img' index='1'/>",
            "<source protocol='nbd' name='d&amp;b-vda'>\n        \
             <host transport='unix' socket='/run/&lt;s&gt;'/>\n        \
             <reconnect delay='60'/>\n      </source>",
        );
        assert_eq!(changed, expected);
        let again = Domain::parse(&changed).unwrap();
        assert_eq!((&again.disks[0].source, &again.disks[0].refused), (&nbd, &None));
        let back = again.disks[0].with(&changed, &first.source, 0).unwrap();
        assert_eq!(back, XML.replace(" index='1'", ""));
        let tcp = Address::Tcp { host: "127.0.0.1".to_owned(), port: 10810 };
        let tcp = Source::Nbd { address: tcp, export: "x".to_owned() };
        let changed = second.with(XML, &tcp, 0).unwrap();
        assert_eq!(Domain::parse(&changed).unwrap().disks[1].source, tcp);
        assert!(changed.contains("<disk type=\"network\">"), "{changed}");
    }

    #[test]
    fn an_iotune_is_a_limit_with_the_burst_that_all_its_rates_have() {
        let limit = |iotune: &str| {
            let disk = format!("<readonly/><iotune>{iotune}</iotune>");
            let xml = XML.replacen("<readonly/>", &disk, 1);
            Domain::parse(&xml).unwrap().disks[1].limit
        };
        let rates = "<read_iops_sec>400</read_iops_sec><total_bytes_sec>1048576</total_bytes_sec>";
        let expected = LimitSetting {
            iops_reads: Some(400.0),
            bandwidth: Some(ByteSize::mib(1)),
            ..LimitSetting::default()
        };
        let zero = "<write_iops_sec>0</write_iops_sec>";
        assert_eq!(limit(&format!("{rates}{zero}")), Some(expected));
        let one = "<read_iops_sec_max>800</read_iops_sec_max>";
        assert_eq!(limit(&format!("{rates}{one}")), Some(expected), "a burst of one rate only");
        let other = "<total_bytes_sec_max>2097152</total_bytes_sec_max>";
        let (burst, burst_for) = (Some(2.0), Some(Duration::from_secs(1)));
        let bursts = LimitSetting { burst, burst_for, ..expected };
        assert_eq!(limit(&format!("{rates}{one}{other}")), Some(bursts));
        assert_eq!(limit(zero), None);
    }

    #[test]
    fn what_libvirt_has_is_compared_in_all_but_the_words_of_a_source() {
        let nbd = Source::Nbd { address: Address::Unix("/s".into()), export: "x".to_owned() };
        let given = Domain::parse(XML).unwrap().disks[0].with(XML, &nbd, 60).unwrap();
        assert_eq!(unlike(XML, &given, &given), None);
        let has = |from: &str, to: &str| {
            let has = given.replacen(from, to, 1);
            assert_ne!(has, given);
            unlike(XML, &given, &has)
        };
        assert_eq!(has("<reconnect delay='60'/>", ""), None);
        assert_eq!(has("name='x'", "name='y'").unwrap(), "the source of vda");
        assert_eq!(has("</devices>", "<rng/></devices>").unwrap(), "<rng");
        assert_eq!(has("</domain>", "  <evil/>\n</domain>").unwrap(), "<evil");
        assert_eq!(has("cache='none'", "cache='unsafe'").unwrap(), "<driver");
        assert_eq!(has("/dev/vg/x", "/dev/vg/y").unwrap(), "<disk");
        assert_eq!(has("name='x'", "name='x' tls='yes'").unwrap(), "the source of vda");
    }

    #[test]
    fn a_disk_that_says_more_than_a_path_is_left_alone() {
        let with = |from: &str, to: &str| {
            let xml = XML.replacen(from, to, 1);
            assert_ne!(xml, XML);
            Domain::parse(&xml).unwrap().disks[0].refused.clone().expect(to)
        };
        assert!(with("type='raw'", "type='qcow2'").contains("its image is qcow2"));
        assert!(with("device='disk'", "device='cdrom'").contains("is a cdrom"));
        assert!(with("index='1'/>", "index='1'><seclabel/></source>").contains("seclabel"));
        assert!(with("index='1'", "startupPolicy='optional'").contains("startupPolicy"));
        assert!(with("<target dev='vda'", "<shareable/><target dev='vda'").contains("shareable"));
        assert!(with("type='file' d", "type='volume' d").contains("volume"));
        assert!(Domain::parse("<network><name>n</name></network>").is_err());
        assert!(Domain::parse("<domain>").is_err());
    }
}
