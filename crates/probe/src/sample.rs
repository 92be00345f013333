//! Statistics of a sample.

/// Mean and variance. The variance of a single number is 0.
pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

/// Mean and standard error.
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let (mean, variance) = spread(values);
    (mean, (variance / values.len() as f64).sqrt())
}

/// Half the width of the 95 % confidence interval of the mean of independent values. `None` for fewer than three values.
#[must_use]
pub fn half_width(values: &[f64]) -> Option<f64> {
    (values.len() >= 3).then(|| student(values.len() - 1) * mean(values).1)
}

/// Two-sided 95 % quantiles of Student's t for 1 to 4 degrees of freedom.
const T_95: [f64; 4] = [12.706, 4.303, 3.182, 2.776];

/// Two-sided 95 % quantile of Student's t, within 0.3 %. From 5 degrees of freedom on by Abramowitz and Stegun 26.7.5.
fn student(freedom: usize) -> f64 {
    if let Some(t) = freedom.checked_sub(1).and_then(|place| T_95.get(place)) {
        return *t;
    }
    let (z, n) = (1.959_964_f64, freedom as f64);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        // 1 to 5: standard deviation 1.5811, t of 4 is 2.776: 2.776 · 1.5811 / √5.
        let half = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.963).abs() < 0.001, "{half}");
        assert_eq!(half_width(&[1.0, 2.0]), None);
        assert_eq!(half_width(&[2.0; 100]), Some(0.0));
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (4, 2.776)] {
            assert_eq!(student(freedom), t);
        }
        for (freedom, t) in [(5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((student(freedom) / t - 1.0).abs() < 0.003, "{freedom}: {}", student(freedom));
        }
    }
}
