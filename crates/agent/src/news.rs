//! Faults that are logged when they are new.

/// Notes a fault. True if it is another one than before.
pub(crate) fn is_news(last: &mut Option<String>, fault: &str) -> bool {
    last.replace(fault.to_owned()).as_deref() != Some(fault)
}

/// A fault that is news only if it lasts.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    told: Option<String>,
    in_a_row: u32,
}

impl Lasting {
    /// Notes a failure. True if the fault is to be logged now: new, and after more than `tolerated` failures in a row.
    pub(crate) fn fails(&mut self, fault: &str, tolerated: u32) -> bool {
        self.in_a_row += 1;
        self.in_a_row > tolerated && is_news(&mut self.told, fault)
    }

    /// Notes a success. True if this ends a fault that was logged.
    pub(crate) fn ends(&mut self) -> bool {
        self.in_a_row = 0;
        self.told.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_are_no_news_and_what_lasts_is_told_once_and_so_is_its_end() {
        let mut lasting = Lasting::default();
        for _ in 0..10 {
            assert!(!lasting.fails("late", 2) && !lasting.fails("late", 2));
            assert!(!lasting.ends());
        }
        let told: Vec<bool> = (0..5).map(|_| lasting.fails("late", 2)).collect();
        assert_eq!(told, [false, false, true, false, false]);
        assert!(lasting.fails("refused", 2), "another fault");
        assert!(lasting.ends() && !lasting.ends());
        assert!(lasting.fails("no such file", 0));
    }
}
