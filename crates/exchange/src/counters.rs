//! Counters of records read from slots and from etcd.

use crate::slot::SlotFault;

/// Counters of the records that a host read since the start. A record counts at each look that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounters {
    /// Valid records of this volume.
    pub records: u64,
    /// Intact records of another volume.
    pub other_volume: u64,
    /// Records of another format version.
    pub other_version: u64,
    /// Records whose checksum does not match.
    pub damaged: u64,
    /// Intact records with a field out of range, or of another slot or key.
    pub malformed: u64,
    /// Slots or values that hold neither zeros nor a record.
    pub foreign: u64,
    /// Looks at which somebody else had written to this host's slot.
    pub slot_conflicts: u64,
}

impl RecordCounters {
    pub(crate) fn count_fault(&mut self, fault: &SlotFault) {
        *match fault {
            SlotFault::NotARecord => &mut self.foreign,
            SlotFault::Version(_) => &mut self.other_version,
            SlotFault::Checksum => &mut self.damaged,
            SlotFault::WrongSlot(_) | SlotFault::Malformed(_) => &mut self.malformed,
        } += 1;
    }

    /// Values that were ignored, by reason.
    #[must_use]
    pub fn ignored(&self) -> [(&'static str, u64); 5] {
        let RecordCounters { other_volume, other_version, damaged, malformed, foreign, .. } = *self;
        [
            ("other_volume", other_volume),
            ("other_version", other_version),
            ("damaged", damaged),
            ("malformed", malformed),
            ("foreign", foreign),
        ]
    }
}
