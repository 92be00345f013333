//! Concave regression: the nearest curve on which each further outstanding IO gains no more throughput than the one before.
//!
//! A closed loop over servers and queues has such a curve near its peak. A disk drive with fewer than three outstanding IOs
//! has not, as its queue gives it nothing to choose from.

/// Most passes over all conditions.
const SWEEPS: usize = 2000;

/// Largest violation of a condition that is accepted, as a fraction of the throughput.
const MET: f64 = 1e-7;

/// Replaces `y`, at ascending `x`, by the nearest concave values, by weighted least squares. Their slopes never rise, and the last
/// slope is not negative. Hildreth's method, with a multiplier for each condition.
pub(super) fn concave(x: &[f64], y: &mut [f64], weights: &[f64]) {
    let last = y.len().saturating_sub(1);
    if last < 2 {
        return;
    }
    let scale = y[last].abs().max(f64::MIN_POSITIVE);
    // Each condition is a sum that must not be negative, in units of throughput. The sum is the height of the middle of three above
    // their chord.
    let mut conditions: Vec<[(usize, f64); 3]> = (1..last)
        .map(|at| {
            let way = (x[at] - x[at - 1]) / (x[at + 1] - x[at - 1]);
            [(at - 1, way - 1.0), (at, 1.0), (at + 1, -way)]
        })
        .collect();
    conditions.push([(last - 1, -1.0), (last, 1.0), (last, 0.0)]);
    let mut multipliers = vec![0.0_f64; conditions.len()];
    for _ in 0..SWEEPS {
        let mut most = 0.0_f64;
        for (condition, multiplier) in conditions.iter().zip(&mut multipliers) {
            let short: f64 = condition.iter().map(|(at, part)| part * y[*at]).sum();
            let give: f64 = condition.iter().map(|(at, part)| part * part / weights[*at]).sum();
            let by = (-short / give).max(-*multiplier);
            *multiplier += by;
            for (at, part) in condition {
                y[*at] += by * part / weights[*at];
            }
            most = most.max((by * give).abs());
        }
        if most < MET * scale {
            break;
        }
    }
    // Falls that are left are rounding errors.
    for at in 1..=last {
        y[at] = y[at].max(y[at - 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bends_the_right_way_stays_and_what_does_not_is_bent_no_more_than_needed() {
        let x = [8.0, 16.0, 24.0, 32.0, 64.0];
        let fine = [50.0, 90.0, 110.0, 120.0, 120.0];
        let mut y = fine;
        concave(&x, &mut y, &[1.0; 5]);
        assert_eq!(y, fine);
        // The third is too low for what comes after it.
        let mut y = [50.0, 90.0, 120.0, 170.0, 170.0];
        concave(&x, &mut y, &[1.0; 5]);
        let slopes: Vec<f64> =
            x.windows(2).zip(y.windows(2)).map(|(x, y)| (y[1] - y[0]) / (x[1] - x[0])).collect();
        assert!(slopes.windows(2).all(|s| s[0] >= s[1] - 1e-4) && slopes[3] >= 0.0, "{y:?}");
        let sum: f64 = y.iter().sum();
        assert!((sum - 600.0).abs() < 0.01, "the mean stays: {y:?}");
    }

    #[test]
    fn what_is_known_surely_is_bent_least() {
        let mut y = [100.0, 90.0, 120.0];
        concave(&[1.0, 2.0, 3.0], &mut y, &[1.0, 1e6, 1.0]);
        let right = [80.0, 90.0, 100.0];
        assert!(y.iter().zip(right).all(|(y, right)| (y - right).abs() < 0.01), "{y:?}");
    }
}
