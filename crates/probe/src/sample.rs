//! Statistics of a sample.

/// Mean and variance. The variance of a single number is 0.
#[must_use]
pub fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

/// Mean and standard error.
#[must_use]
pub fn mean(values: &[f64]) -> (f64, f64) {
    let (mean, variance) = spread(values);
    (mean, (variance / values.len() as f64).sqrt())
}
