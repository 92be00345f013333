//! Water-filling: each VM gets the rate that it wants, up to a common rate per share.

/// Demand of one VM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// Shares of the VM.
    pub shares: f64,
    /// Rate that the VM would use if it could, per second. Infinite if it is unknown.
    pub rate: f64,
}

/// The rate per share at which `rate` is used up. `None` if all VMs get the rate that they want.
#[must_use]
pub fn level(wants: &[Want], rate: f64) -> Option<f64> {
    if wants.iter().map(|want| want.rate).sum::<f64>() <= rate {
        return None;
    }
    let mut by_need: Vec<&Want> = wants.iter().filter(|want| want.shares > 0.0).collect();
    by_need.sort_by(|a, b| (a.rate / a.shares).total_cmp(&(b.rate / b.shares)));
    let mut shares: f64 = by_need.iter().map(|want| want.shares).sum();
    let mut left = rate;
    for want in by_need {
        // VMs that want less than the level leave the rest to the others.
        if want.rate / want.shares >= left / shares {
            return Some(left / shares);
        }
        left -= want.rate;
        shares -= want.shares;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants<const N: usize>(of: [(f64, f64); N]) -> [Want; N] {
        of.map(|(shares, rate)| Want { shares, rate })
    }

    #[test]
    fn all_that_want_more_stand_at_one_level() {
        assert_eq!(level(&wants([(2.0, f64::INFINITY), (1.0, f64::INFINITY)]), 900.0), Some(300.0));
        assert_eq!(level(&wants([(2.0, 5000.0), (1.0, 5000.0)]), 900.0), Some(300.0));
    }

    #[test]
    fn what_a_light_one_leaves_goes_to_the_others_by_shares() {
        let found = level(&wants([(2.0, 100.0), (1.0, f64::INFINITY), (3.0, 4000.0)]), 900.0);
        assert_eq!(found, Some(200.0));
    }

    #[test]
    fn where_all_have_what_they_want_nobody_is_bounded() {
        assert_eq!(level(&wants([(2.0, 300.0), (1.0, 600.0)]), 900.0), None);
        assert_eq!(level(&[], 900.0), None);
    }
}
