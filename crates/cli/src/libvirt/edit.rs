//! Changes of a definition. All text that they do not name stays as it is, byte for byte.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use parda_address::Address;
use roxmltree::Node;

use super::domain::{Disk, Domain, Source, child, elements};
use super::qos::{BEFORE, MEMORY, NAMESPACE, ours};
use super::xml;

/// A range of a text, and its replacement.
type Edit = (Range<usize>, String);

/// Memory that the agent can map.
const SHARED: &str =
    "<memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>";

/// Attributes of `<driver>` that libvirt refuses for vhost-user: QEMU has no part in the IO.
const OF_QEMU: [&str; 9] = [
    "cache",
    "error_policy",
    "rerror_policy",
    "io",
    "ioeventfd",
    "copy_on_read",
    "discard",
    "iothread",
    "detect_zeroes",
];

/// Elements of a disk that libvirt refuses for vhost-user, and that the agent does the work of.
const OF_AGENT: [&str; 3] = ["iotune", "throttlefilters", "backingStore"];

/// Elements that libvirt refuses for vhost-user, and without which the guest would have another disk.
const OF_GUEST: [&str; 7] =
    ["readonly", "serial", "wwn", "vendor", "product", "geometry", "blockio"];

fn edited(xml: &str, mut edits: Vec<Edit>) -> String {
    let mut text = xml.to_owned();
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    edits.into_iter().for_each(|(range, new)| text.replace_range(range, &new));
    text
}

impl Disk {
    /// The definition with another source of this disk. `delay`: seconds that QEMU waits for an NBD server that is lost.
    ///
    /// # Errors
    /// The disk's element differs too much from libvirt's form, or libvirt would refuse it with this source.
    pub(super) fn with(&self, xml: &str, source: &Source, delay: u64) -> Result<String, String> {
        let unlike = || "its XML is not as libvirt writes it".to_owned();
        let kind = self.kind.clone().ok_or_else(unlike)?;
        let element = self.source_element.clone().ok_or_else(unlike)?;
        let before = xml[..element.start].rsplit('\n').next().unwrap_or_default();
        let indent = if before.trim().is_empty() { before } else { "" };
        let text = |path: &Path| path.to_str().map(escaped).ok_or("a path of it is no text");
        let (word, new) = match source {
            Source::Path { path, block: true } => {
                ("block", format!("<source dev='{}'/>", text(path)?))
            }
            Source::Path { path, block: false } => {
                ("file", format!("<source file='{}'/>", text(path)?))
            }
            Source::Nbd { address, export } => {
                let host = match address {
                    Address::Unix(path) => format!("transport='unix' socket='{}'", text(path)?),
                    Address::Tcp { host, port } => {
                        format!("name='{}' port='{port}'", escaped(host))
                    }
                    _ => return Err(unlike()),
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
            Source::Vhost(socket) => {
                let socket = text(socket)?;
                let new = format!(
                    "<source type='unix' path='{socket}'>\n{indent}  <reconnect enabled='yes' timeout='1'/>\n{indent}</source>"
                );
                ("vhostuser", new)
            }
            Source::Other(_) => return Err(unlike()),
        };
        let mut edits = vec![(element, new), (kind, word.to_owned())];
        if matches!(source, Source::Vhost(_)) {
            edits.extend(self.for_vhost(xml)?);
        }
        Ok(edited(xml, edits))
    }

    /// Edits beside the source that libvirt needs for vhost-user.
    fn for_vhost(&self, xml: &str) -> Result<Vec<Edit>, String> {
        let document = xml::parse(xml)?;
        let mut nodes = document.descendants();
        let Some(disk) = nodes.find(|node| node.range() == self.element) else { return Ok(vec![]) };
        if let Some(name) = OF_GUEST.into_iter().find(|name| child(disk, name).is_some()) {
            return Err(format!(
                "has <{name}>, which libvirt refuses for vhost-user: serve it by NBD"
            ));
        }
        let bus =
            child(disk, "target").and_then(|target| target.attribute("bus")).unwrap_or("no bus");
        if bus != "virtio" {
            return Err(format!(
                "has the bus {bus}, and vhost-user is for virtio: serve it by NBD"
            ));
        }
        let mut edits = Vec::new();
        match (disk.attribute_node("snapshot"), disk.attributes().next_back()) {
            (Some(snapshot), _) => edits.push((snapshot.range_value(), "no".to_owned())),
            (None, Some(last)) => {
                let end = last.range().end;
                edits.push((end..end, " snapshot='no'".to_owned()));
            }
            (None, None) => {}
        }
        let driver = child(disk, "driver").into_iter().flat_map(|driver| driver.attributes());
        let of_qemu = driver.filter(|attribute| OF_QEMU.contains(&attribute.name()));
        edits.extend(of_qemu.map(|attribute| (with_space(xml, attribute.range()), String::new())));
        let gone = OF_AGENT.into_iter().flat_map(|name| elements(disk, name));
        edits.extend(gone.map(|node| (with_space(xml, node.range()), String::new())));
        Ok(edits)
    }

    /// The definition with this disk's whole element replaced.
    pub(super) fn replaced(&self, xml: &str, by: &str) -> String {
        edited(xml, vec![(self.element.clone(), by.to_owned())])
    }

    /// Whether QEMU holds the guest to a limit of this disk.
    pub(super) fn is_limited(&self, xml: &str) -> bool {
        let text = self.text(xml);
        OF_AGENT[..2].iter().any(|name| text.contains(&format!("<{name}")))
    }

    /// Text of the disk in its definition.
    pub(super) fn text<'a>(&self, xml: &'a str) -> &'a str {
        &xml[self.element.clone()]
    }
}

/// A range with the white space before it.
fn with_space(xml: &str, range: Range<usize>) -> Range<usize> {
    xml[..range.start].trim_end().len()..range.end
}

/// The definition with notes about a disk in its metadata, as attributes. Existing notes stay.
pub(super) fn noted(xml: &str, target: &str, notes: &[(&str, &str)]) -> Result<String, String> {
    let document = xml::parse(xml)?;
    let root = document.root_element();
    let known = ours(root).and_then(|ours| disk_of(ours, target));
    let has = |key: &str| known.is_some_and(|known| known.has_attribute(key));
    let notes = notes.iter().filter(|(key, _)| !has(key));
    let notes: String = notes.map(|(key, text)| format!(" {key}=\"{}\"", escaped(text))).collect();
    if let Some(at) = known.and_then(|known| known.attribute_node("target")) {
        return Ok(edited(xml, vec![(at.range().end..at.range().end, notes)]));
    }
    let target = escaped(target);
    let disk = |prefix: &str| format!("<{prefix}disk target=\"{target}\"{notes}/>");
    let whole = format!(
        "<parda:domain xmlns:parda=\"{NAMESPACE}\">\n      {}\n    </parda:domain>",
        disk("parda:")
    );
    let edit = match (ours(root), child(root, "metadata")) {
        (Some(ours), _) => {
            let prefix = ours.lookup_prefix(NAMESPACE).map(|prefix| format!("{prefix}:"));
            last_in(xml, ours, &disk(&prefix.unwrap_or_default()))
        }
        (None, Some(metadata)) => last_in(xml, metadata, &whole),
        (None, None) => {
            let sizes = ["maxMemory", "memory"].into_iter().filter_map(|name| child(root, name));
            let at = sizes.map(|size| size.range().start).min().ok_or("its XML has no <memory>")?;
            (at..at, format!("<metadata>\n    {whole}\n  </metadata>\n  "))
        }
    };
    Ok(edited(xml, vec![edit]))
}

/// Puts text into an element, after all that it has.
fn last_in(xml: &str, element: Node<'_, '_>, new: &str) -> Edit {
    let range = element.range();
    let text = &xml[range.clone()];
    let end = text.rfind("</").filter(|_| !text.ends_with("/>"));
    match end {
        Some(at) => {
            let at = with_space(xml, range.start + at..range.end).start;
            (at..at, format!("\n      {new}"))
        }
        None => {
            let name = text[1..].split([' ', '\n', '/', '>']).next().unwrap_or_default();
            (range.end - 2..range.end, format!(">\n      {new}\n    </{name}>"))
        }
    }
}

fn disk_of<'a, 'i>(ours: Node<'a, 'i>, target: &str) -> Option<Node<'a, 'i>> {
    elements(ours, "disk").find(|disk| disk.attribute("target") == Some(target))
}

/// The definition without the notes of `attach` about a disk, and without elements that had nothing else.
pub(super) fn forgotten(xml: &str, target: &str) -> Result<String, String> {
    let document = xml::parse(xml)?;
    let ours = ours(document.root_element());
    let Some((ours, disk)) = ours.and_then(|ours| Some((ours, disk_of(ours, target)?))) else {
        return Ok(xml.to_owned());
    };
    let alone = |node: Node<'_, '_>| node.children().filter(Node::is_element).count() == 1;
    let is_note = |name: &str| ["path", BEFORE].contains(&name);
    let notes = disk.attributes().filter(|attribute| is_note(attribute.name()));
    let edits: Vec<Edit> =
        if disk.attributes().any(|other| other.name() != "target" && !is_note(other.name())) {
            notes.map(|note| (with_space(xml, note.range()), String::new())).collect()
        } else {
            let empty = alone(ours) && ours.attributes().len() == 0;
            let gone = match (empty, ours.parent()) {
                (true, Some(metadata)) if alone(metadata) => metadata,
                (true, _) => ours,
                (false, _) => disk,
            };
            vec![(with_space(xml, gone.range()), String::new())]
        };
    Ok(edited(xml, edits))
}

/// The definition with memory that the agent can map. The metadata has notes of a disk already.
///
/// # Errors
/// The domain has other memory.
pub(super) fn with_shared_memory(xml: &str) -> Result<String, String> {
    let document = xml::parse(xml)?;
    let root = document.root_element();
    let mut cells = root.descendants().filter(|node| node.has_tag_name("cell"));
    if cells.any(|cell| cell.attribute("memAccess").is_some_and(|access| access != "shared")) {
        return Err(
            "the domain has a NUMA cell whose memAccess is not 'shared', as vhost-user needs it"
                .to_owned(),
        );
    }
    if let Some(backing) = child(root, "memoryBacking") {
        let value = |name, key| child(backing, name).and_then(|node| node.attribute(key));
        let is_memory =
            value("source", "type") == Some("memfd") || child(backing, "hugepages").is_some();
        return match value("access", "mode") == Some("shared") && is_memory {
            true => Ok(xml.to_owned()),
            false => Err(
                "vhost-user shares the guest's memory, and the domain has a <memoryBacking> that does not: add <source type='memfd'/> \
                 and <access mode='shared'/> to it"
                    .to_owned(),
            ),
        };
    }
    let sizes = ["maxMemory", "memory", "currentMemory", "blkiotune", "memtune"];
    let sizes = sizes.into_iter().filter_map(|name| child(root, name));
    let at = sizes.map(|size| size.range().end).max().ok_or("its XML has no <memory>")?;
    let mut edits = vec![(at..at, format!("\n  {SHARED}"))];
    if let Some(ours) = ours(root) {
        let start = ours.range().start;
        let name = xml[start..].find([' ', '\n', '/', '>']).unwrap_or_default();
        edits.push((start + name..start + name, format!(" {MEMORY}=\"shared\"")));
    }
    Ok(edited(xml, edits))
}

/// The definition without the shared memory that [`with_shared_memory`] gave it, if no disk needs that any more.
pub(super) fn without_shared_memory(xml: &str) -> Result<String, String> {
    let document = xml::parse(xml)?;
    let root = document.root_element();
    let needs = |disk: &Disk| matches!(disk.source, Source::Vhost(_));
    let Some(note) = ours(root).and_then(|ours| ours.attribute_node(MEMORY)) else {
        return Ok(xml.to_owned());
    };
    if Domain::parse(xml)?.disks.iter().any(needs) {
        return Ok(xml.to_owned());
    }
    let own = xml::parse(SHARED)?;
    let backing =
        child(root, "memoryBacking").filter(|node| differing(*node, own.root_element()).is_none());
    let gone = backing.map(|node| node.range()).into_iter().chain([note.range()]);
    Ok(edited(xml, gone.map(|range| (with_space(xml, range), String::new())).collect()))
}

/// Name of the first element in which two definitions differ, if any. Only its name, as its content may be a password. White space and the
/// order of attributes do not count, as libvirt rewrites metadata and sources. Nor does `<reconnect>` count, which older versions of
/// libvirt leave out.
fn differing(one: Node<'_, '_>, other: Node<'_, '_>) -> Option<String> {
    let name = |node: &Node<'_, '_>| {
        let element = if node.is_element() { Some(*node) } else { node.parent_element() };
        format!("<{}", element.map_or("", |element| element.tag_name().name()))
    };
    let attributes = |node: Node<'_, '_>| {
        let each = node.attributes();
        let each = each.map(|of| {
            (of.namespace().map(str::to_owned), of.name().to_owned(), of.value().to_owned())
        });
        each.collect::<BTreeSet<_>>()
    };
    let text = |node: Node<'_, '_>| match node.is_element() {
        true => None,
        false => node.text().map(|text| text.trim().to_owned()),
    };
    if one.tag_name() != other.tag_name()
        || attributes(one) != attributes(other)
        || text(one) != text(other)
    {
        return Some(name(&other));
    }
    let counts = |node: &Node<'_, '_>| match node.is_element() {
        true => node.tag_name().name() != "reconnect",
        false => node.text().is_some_and(|text| !text.trim().is_empty()),
    };
    let these: Vec<_> = one.children().filter(counts).collect();
    let those: Vec<_> = other.children().filter(counts).collect();
    let within = these.iter().zip(&those).find_map(|(one, other)| differing(*one, *other));
    let more = these.get(those.len()).or(those.get(these.len()));
    within.or_else(|| more.map(name))
}

/// First element in which libvirt's current definition differs from the given one, if any.
pub(super) fn unlike(given: &str, has: &str) -> Option<String> {
    match (xml::parse(given), xml::parse(has)) {
        (Ok(given), Ok(has)) => differing(given.root_element(), has.root_element()),
        _ => Some("its form".to_owned()),
    }
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
    use super::super::domain::tests::XML;
    use super::*;

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
    fn what_libvirt_has_is_compared_in_all_but_its_words() {
        let nbd = Source::Nbd { address: Address::Unix("/s".into()), export: "x".to_owned() };
        let given = Domain::parse(XML).unwrap().disks[0].with(XML, &nbd, 60).unwrap();
        assert_eq!(unlike(&given, &given), None);
        let has = |from: &str, to: &str| {
            let has = given.replacen(from, to, 1);
            assert_ne!(has, given);
            unlike(&given, &has)
        };
        assert_eq!(has("<reconnect delay='60'/>", ""), None);
        assert_eq!(has("name='x'", "name='y'").unwrap(), "<source");
        assert_eq!(has("</devices>", "<rng/></devices>").unwrap(), "<rng");
        assert_eq!(has("</domain>", "  <evil/>\n</domain>").unwrap(), "<evil");
        assert_eq!(has("cache='none'", "cache='unsafe'").unwrap(), "<driver");
        assert_eq!(has("/dev/vg/x", "/dev/vg/y").unwrap(), "<source");
        assert_eq!(has("name='x'", "name='x' tls='yes'").unwrap(), "<source");
    }

    /// As libvirt writes it.
    const DEFINED: &str = "<domain type='qemu'>
  <name>d</name>
  <memory unit='KiB'>65536</memory>
  <currentMemory unit='KiB'>65536</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <devices>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native' queues='4'/>
      <source dev='/dev/vg/x'/>
      <backingStore/>
      <target dev='vda' bus='virtio'/>
      <iotune>
        <total_iops_sec>500</total_iops_sec>
      </iotune>
    </disk>
  </devices>
</domain>
";

    /// The first disk behind a socket of vhost-user, as `attach` does it.
    fn with_vhost(xml: &str) -> Result<String, String> {
        let disk = &Domain::parse(xml)?.disks[0];
        let changed = disk.with(xml, &Source::Vhost("/run/a&b".into()), 0)?;
        let notes = [("path", "/dev/vg/x"), (BEFORE, disk.text(xml))];
        with_shared_memory(&noted(&changed, "vda", &notes)?)
    }

    /// The way back, as `detach` goes it.
    fn without_vhost(xml: &str) -> String {
        let disk = &Domain::parse(xml).unwrap().disks[0];
        let before = disk.qos.as_ref().unwrap().before.clone().unwrap();
        let xml = without_shared_memory(&disk.replaced(xml, &before)).unwrap();
        forgotten(&xml, "vda").unwrap()
    }

    #[test]
    fn a_disk_goes_to_vhost_user_and_back_with_the_memory_of_its_guest() {
        let changed = with_vhost(DEFINED).unwrap();
        let disk = "<disk type='vhostuser' device='disk' snapshot='no'>
      <driver name='qemu' type='raw' queues='4'/>
      <source type='unix' path='/run/a&amp;b'>
        <reconnect enabled='yes' timeout='1'/>
      </source>
      <target dev='vda' bus='virtio'/>
    </disk>";
        assert!(changed.contains(disk), "{changed}");
        let memory = format!("</currentMemory>\n  {SHARED}\n  <vcpu");
        assert!(changed.contains(&memory), "{changed}");
        assert!(changed.contains(" memory=\"shared\""), "{changed}");
        let again = Domain::parse(&changed).unwrap();
        assert_eq!(again.disks[0].source, Source::Vhost("/run/a&b".into()));
        assert_eq!(again.disks[0].refused, None);
        assert_eq!(without_vhost(&changed), DEFINED);
        // Memory that is shared already stays so.
        let own = "<memoryBacking><hugepages/><access mode='shared'/></memoryBacking>\n  <vcpu";
        let own = DEFINED.replace("<vcpu", own);
        assert_eq!(without_vhost(&with_vhost(&own).unwrap()), own);
    }

    #[test]
    fn what_libvirt_refuses_for_vhost_user_is_said_before() {
        let refused = |from: &str, to: &str| {
            let xml = DEFINED.replacen(from, to, 1);
            assert_ne!(xml, DEFINED);
            with_vhost(&xml).unwrap_err()
        };
        assert!(refused("<iotune>", "<serial>1</serial><iotune>").contains("<serial>"));
        assert!(refused("bus='virtio'", "bus='sata'").contains("has the bus sata"));
        let private = "<memoryBacking><locked/></memoryBacking><vcpu";
        assert!(refused("<vcpu", private).contains("<access mode='shared'/>"));
        let numa = "<cpu><numa><cell id='0' memAccess='private'/></numa></cpu><vcpu";
        assert!(refused("<vcpu", numa).contains("NUMA cell"));
    }

    #[test]
    fn notes_of_a_disk_leave_the_metadata_of_others() {
        let note = |xml: &str| noted(xml, "vda", &[("path", "/a\"b")]).unwrap();
        let others = "<metadata>\n    <x:y xmlns:x=\"urn:x\"/>\n  </metadata>\n  <memory";
        let others = DEFINED.replacen("<memory", others, 1);
        let own = |inside: &str| {
            let own = format!("<p:domain xmlns:p=\"{NAMESPACE}\" shares=\"5\"{inside}");
            others.replacen("<x:y", &format!("{own}<x:y"), 1)
        };
        let end = "\n    </p:domain>";
        for xml in [
            DEFINED.to_owned(),
            others.clone(),
            own("/>").replace("/><x:y", &format!(">{end}<x:y")),
            own(&format!(">\n      <p:disk target=\"vdb\"/>{end}")),
            own(&format!(">\n      <p:disk target=\"vda\" tenant=\"t\"/>{end}")),
        ] {
            let noted = note(&xml);
            assert_eq!(note(&noted), noted, "once");
            assert!(noted.contains(" path=\"/a&quot;b\""), "{noted}");
            assert_eq!(forgotten(&noted, "vda").unwrap(), xml);
        }
        let noted = note(&own("/>"));
        assert!(noted.contains("<p:disk target=\"vda\" path="), "{noted}");
        let has =
            noted.replace("target=\"vda\" path=\"/a&quot;b\"", "path='/a&#34;b'  target='vda'");
        assert_eq!(unlike(&noted, &has), None);
        assert_eq!(unlike(&noted, &has.replace("&#34;b", "&#34;c")).unwrap(), "<disk");
    }
}
