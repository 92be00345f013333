//! The XML of a domain: its disks.

use std::ops::Range;
use std::path::PathBuf;

use parda_address::Address;
use roxmltree::Node;

use super::qos::Qos;
use super::xml;

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
    /// Service settings in the definition, or their fault.
    pub(super) qos: Result<Qos, String>,
    /// Reason why it cannot be served as it is.
    pub(super) refused: Option<String>,
    pub(super) element: Range<usize>,
    /// Value of its attribute `type`, if it has one.
    pub(super) kind: Option<Range<usize>>,
    pub(super) source_element: Option<Range<usize>>,
}

/// Place of a disk's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A file or block device that QEMU opens.
    Path { path: PathBuf, block: bool },
    /// An export of an NBD server.
    Nbd { address: Address, export: String },
    /// A socket of vhost-user-blk.
    Vhost(PathBuf),
    /// Any other `type` of `<disk>`, such as `volume`.
    Other(String),
}

impl Domain {
    pub(super) fn parse(xml: &str) -> Result<Domain, String> {
        let document = xml::parse(xml)?;
        let root = document.root_element();
        let name = child(root, "name").and_then(|name| name.text()).unwrap_or_default();
        if root.tag_name().name() != "domain" || name.is_empty() {
            return Err("is no definition of a domain".to_owned());
        }
        let devices = child(root, "devices");
        let disks = devices.into_iter().flat_map(|devices| elements(devices, "disk"));
        let uuid = child(root, "uuid").and_then(|uuid| uuid.text()).unwrap_or_default().to_owned();
        Ok(Domain {
            name: name.to_owned(),
            uuid,
            disks: disks.map(|disk| Disk::new(root, disk)).collect(),
        })
    }
}

impl Disk {
    fn new(root: Node<'_, '_>, disk: Node<'_, '_>) -> Disk {
        let target = child(disk, "target").and_then(|target| target.attribute("dev"));
        let target = target.unwrap_or("?").to_owned();
        let source_element = child(disk, "source");
        let source = source(disk.attribute("type").unwrap_or("file"), source_element);
        let refused = refusal(disk, source_element, &source);
        let kind = disk.attribute_node("type").map(|kind| kind.range_value());
        let path = match &source {
            Source::Path { path, .. } => Some(&**path),
            _ => None,
        };
        let qos = Qos::read(root, disk, &target, path);
        Disk {
            target,
            source,
            read_only: child(disk, "readonly").is_some(),
            qos,
            refused,
            element: disk.range(),
            kind,
            source_element: source_element.map(|source| source.range()),
        }
    }
}

pub(super) fn elements<'a, 'i>(
    of: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    of.children().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

pub(super) fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.is_element() && node.tag_name().name() == name)
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
        ("vhostuser", _) => attribute("path").map_or_else(other, |path| Source::Vhost(path.into())),
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

/// Reason why a disk cannot change between a path and a socket of the agent. Only a raw disk without further
/// settings can.
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
    let known: &[_] = match source {
        Source::Vhost(_) => &["type", "path"],
        _ => &["file", "dev", "protocol", "name", "index"],
    };
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::libvirt) const XML: &str = "<domain type='qemu'>
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
