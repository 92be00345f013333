//! The transport over slots: PARDA's file on the shared volume (§4), one slot per host. In each period a host
//! does one read and one write. The read covers the header and the slots in use, the write its own slot.

use std::fmt;
use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::claim::{Claim, SlotChoice};
use crate::counters::RecordCounters;
use crate::exchange::{Collected, Exchange, ExchangeError, ExchangeEvent, Standing};
use crate::header::{Header, PlaceFault, PlaceId};
use crate::identity::{Identity, Sequence, VolumeId};
use crate::message::{Message, Publication};
use crate::reach::ALL_EVERY;
use crate::region::{Block, FileState, Region, RegionFault, RegionImage, SlotIndex};
use crate::slot::{self, Content, SlotFault, SlotRecord};
use crate::table::Table;

/// Settings of an exchange over slots.
#[derive(Clone, Debug)]
pub struct SlotSettings {
    /// Name and run of this host.
    pub me: Identity,
    /// The volume of the exchange.
    pub volume: VolumeId,
    /// Choice of this host's slot: a given one, or any that is free.
    pub choice: SlotChoice,
    /// Our own period. Periods of other hosts count as at least as long when a slot is judged to be free.
    pub period: Span,
    /// The command that makes the place, for messages.
    pub make: String,
}

/// An exchange over the slots of a region.
pub struct SlotExchange {
    region: Box<dyn Region>,
    me: Identity,
    volume: VolumeId,
    sequence: Sequence,
    claim: Claim,
    make: String,
    /// Identity of the place in use, and when it was made. Only a place that was made later takes its place.
    known: Option<(PlaceId, u64)>,
    /// File that was read last, if the place is a whole file.
    file: Option<FileState>,
    /// Events since the last collection.
    noticed: Vec<ExchangeEvent>,
    /// Whether the place was read and found right since the last write.
    looked: bool,
    /// All slots, as the last successful reads have shown them.
    table: Option<Table>,
    /// Number of collections since the start.
    looks: u64,
    /// Number of slots to read the next time. `None`: all.
    reach: Option<u32>,
    counters: RecordCounters,
}

impl SlotExchange {
    /// An exchange over `region`. The first collection opens and reads it.
    ///
    /// # Errors
    /// The region does not have the slot that is configured.
    pub fn new(
        region: impl Region + 'static,
        settings: SlotSettings,
    ) -> Result<SlotExchange, ExchangeError> {
        let slots = region.slots();
        if let SlotChoice::Fixed(slot) = settings.choice
            && !slots.contains(slot)
        {
            let count = slots.get();
            return Err(ExchangeError::new(format!(
                "slot {slot} does not exist: there are {count} slots, from 0 to {}",
                count - 1
            )));
        }
        Ok(SlotExchange {
            region: Box::new(region),
            me: settings.me.clone(),
            volume: settings.volume,
            sequence: Sequence::default(),
            make: settings.make.clone(),
            known: None,
            file: None,
            noticed: Vec::new(),
            looked: false,
            claim: Claim::new(settings),
            table: None,
            looks: 0,
            reach: None,
            counters: RecordCounters::default(),
        })
    }

    /// Our slot. `None` before one is chosen.
    #[must_use]
    pub fn slot(&self) -> Option<SlotIndex> {
        self.claim.slot()
    }

    /// Counters since the start.
    #[must_use]
    pub fn counters(&self) -> RecordCounters {
        self.counters
    }

    /// The error of a place that is not written.
    fn unwritten(&self, why: impl fmt::Display) -> ExchangeError {
        ExchangeError::new(format!("exchange {}: {why}", self.region.place()))
    }

    /// The error of our slot, which holds data that is not ours to destroy.
    fn occupied(&self, slot: SlotIndex) -> ExchangeError {
        let what = SlotFault::NotARecord;
        self.unwritten(format!(
            "slot {slot} {what}; not written. If it may be erased, fill it with zeros"
        ))
    }

    /// Reads the header and the slots that are in use. Unless the header belongs to this volume's exchange,
    /// writes are refused.
    fn look(&mut self) -> Result<RegionImage, ExchangeError> {
        self.looked = false;
        let all = self.region.slots();
        // After a failure all slots are read, as any of them may have changed.
        let slots = self.reach.take().map_or(all, |reach| all.front(reach));
        let image = match self.region.read_front(slots) {
            Err(RegionFault::Missing) => {
                return Err(self.unusable(&PlaceFault::Missing));
            }
            image => image.map_err(|fault| self.unwritten(fault))?,
        };
        match self.judge(&image) {
            Ok(header) => {
                self.notice(&header, image.file());
                self.looked = true;
                self.reach = Some(slots.get());
                Ok(image)
            }
            Err(fault) => {
                self.region.close();
                Err(self.unusable(&fault))
            }
        }
    }

    fn judge(&self, image: &RegionImage) -> Result<Header, PlaceFault> {
        let header =
            Header::decode(image.header()).map_err(|fault| match (fault, image.file()) {
                // An empty file that no host has used may be a file that is still to be made an exchange.
                (PlaceFault::Blank | PlaceFault::Damaged, Some(FileState { bytes, .. }))
                    if bytes < Block::BYTES as u64 && (bytes > 0 || self.known.is_some()) =>
                {
                    PlaceFault::Cut(bytes)
                }
                (PlaceFault::Blank, _) if self.known.is_some() => PlaceFault::Erased,
                (fault, _) => fault,
            })?;
        let (found, configured) = (header.slots.get(), self.region.slots().get());
        if let Some(volume) = header.volume.as_ref().filter(|volume| volume.id() != self.volume) {
            return Err(PlaceFault::Volume(volume.as_str().to_owned()));
        }
        if found != configured {
            return Err(PlaceFault::Slots { found, configured });
        }
        // All hosts decide alike: both times come from the makers of the places.
        match self.known.filter(|(known, made)| *known != header.place && *made >= header.made_ns) {
            Some((known, _)) => Err(PlaceFault::Replaced { found: header.place, known }),
            None => Ok(header),
        }
    }

    /// Notes the place and file in use. An event reports another place, another file or a cut file.
    fn notice(&mut self, header: &Header, file: Option<FileState>) {
        let now = (header.place, header.made_ns);
        let before = self.known.replace(now).filter(|before| *before != now);
        let file_before = std::mem::replace(&mut self.file, file);
        if let Some((known, _)) = before {
            self.noticed.push(ExchangeEvent::warning(format!(
                "the exchange was made anew: this host uses place {} in place of {known}",
                header.place
            )));
            return;
        }
        let (Some(before), Some(file)) = (file_before, file) else { return };
        if before.inode != file.inode {
            self.noticed.push(ExchangeEvent::warning(format!(
                "the path of the exchange leads to another file, inode {} in place of {}, with the same header: a copy. \
                 This host uses it; do all hosts see it?",
                file.inode, before.inode
            )));
        }
        let needed = self.region.slots().place_bytes();
        if file.bytes < before.bytes.min(needed) {
            self.noticed.push(ExchangeEvent::warning(format!(
                "the file of the exchange was cut to {} bytes of {needed}: it grows again, and each host writes its slot \
                 again",
                file.bytes
            )));
        }
    }

    /// The error of a place that is not this volume's exchange, with what to do.
    fn unusable(&self, fault: &PlaceFault) -> ExchangeError {
        let advice = match fault {
            PlaceFault::Missing | PlaceFault::Blank if self.known.is_none() => {
                format!(". Make it, once, on one host: {}", self.make)
            }
            PlaceFault::Missing | PlaceFault::Blank | PlaceFault::Erased => {
                format!(". Make it anew, on one host: {}; all hosts then use it", self.make)
            }
            PlaceFault::Cut(_) => format!(
                ". Remove the file, and make it anew, on one host: {}; all hosts then use it",
                self.make
            ),
            PlaceFault::OldFormat => format!(
                ". Make a new one elsewhere, as with {}, and name it on all hosts",
                self.make
            ),
            PlaceFault::Foreign(_) => ". Is the path right?".to_owned(),
            PlaceFault::Volume(_) => {
                ". Is the path right, and `name` of the [[volume]] as on the other hosts?"
                    .to_owned()
            }
            PlaceFault::Slots { found, .. } => {
                format!(". Set slots = {found} here, as on the other hosts")
            }
            _ => String::new(),
        };
        self.unwritten(format!("{fault}. Nothing was written{advice}"))
    }

    /// The slot to write to, if there is one and a write destroys no other data in it.
    fn writable_slot(&self) -> Result<SlotIndex, ExchangeError> {
        let Some(table) = &self.table else {
            return Err(self.unwritten("not written before it could be read once"));
        };
        let Some(slot) = self.claim.slot() else {
            let is_noise = |content: &Content| *content == Content::Fault(SlotFault::NotARecord);
            let noise = table.contents().filter(|(_, content)| is_noise(content)).count();
            let slots = self.region.slots().get();
            return Err(
                self.unwritten(format!("none of its {slots} slots is free: {}", remedy(noise)))
            );
        };
        if *table.content(slot) == Content::Fault(SlotFault::NotARecord) {
            return Err(self.occupied(slot));
        }
        Ok(slot)
    }

    /// Reads the place again, if there was a write or a failure since the last read.
    fn look_again(&mut self, slot: SlotIndex) -> Result<(), ExchangeError> {
        if self.looked {
            return Ok(());
        }
        let image = self.look()?;
        let block = image.slots().get(slot.0 as usize);
        match block.map(|block| slot::decode(block, slot)) {
            Some(Content::Fault(SlotFault::NotARecord)) | None => Err(self.occupied(slot)),
            Some(_) => Ok(()),
        }
    }

    fn try_publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        let slot = self.writable_slot()?;
        self.look_again(slot)?;
        self.sequence = self.sequence.next();
        let record = SlotRecord {
            volume: self.volume,
            slot,
            message: Message::new(self.me.clone(), self.sequence, publication.clone()),
        };
        let block = slot::encode(&record).map_err(ExchangeError::new)?;
        self.region.write(slot, &block).map_err(|fault| self.unwritten(fault))
    }

    fn messages(&mut self, table: &Table) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (_, content) in table.contents() {
            match content {
                Content::Empty => {}
                Content::Fault(fault) => self.counters.count_fault(fault),
                Content::Record(record) if record.volume != self.volume => {
                    self.counters.other_volume += 1;
                }
                Content::Record(record) => {
                    self.counters.records += 1;
                    if record.message.from != self.me {
                        messages.push(Arc::new(record.message.clone()));
                    }
                }
            }
        }
        messages
    }
}

/// Remedy where no slot is free. `noise`: slots with data that no host has written.
fn remedy(noise: usize) -> String {
    match noise {
        0 => "make a larger exchange and raise `slots` on all hosts, or wait until those of dead hosts expire"
            .to_owned(),
        _ => format!(
            "{noise} of them {}, so that no host takes them; `parda exchange show` lists them. If that data \
             may be erased, fill these slots with zeros",
            if noise == 1 { "holds neither zeros nor a record" } else { "hold neither zeros nor a record" }
        ),
    }
}

impl Exchange for SlotExchange {
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        let published = self.try_publish(publication);
        self.looked = false;
        if published.is_err() {
            self.region.close();
        }
        published
    }

    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        self.looks += 1;
        if self.looks.wrapping_add(self.me.host.id().0).is_multiple_of(ALL_EVERY) {
            self.reach = None;
        }
        let image = self.look()?;
        let table = match self.table.take() {
            None => Table::new(now, image.slots()),
            Some(mut table) => {
                table.look(now, image.slots());
                table
            }
        };
        let mut events = std::mem::take(&mut self.noticed);
        events.extend(self.claim.observe(now, &table, &mut self.counters));
        self.reach = Some(self.claim.reach(now, &table));
        let messages = self.messages(&table);
        self.table = Some(table);
        Ok(Collected { messages, events })
    }

    /// Forgets the identity of the place, so that the present place is accepted.
    fn reload(&mut self) {
        self.known = None;
        self.reach = None;
    }

    fn loads_array(&self) -> bool {
        true
    }

    fn standing(&self) -> Standing {
        Standing::Slots { slot: self.slot(), counters: self.counters }
    }
}

#[cfg(test)]
mod tests;
