//! What some numbers say of what they were drawn from.

/// Mean and variance; of a single number there is no telling how it varies, and that is 0.
pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

/// The mean and its standard error.
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let (mean, variance) = spread(values);
    (mean, (variance / values.len() as f64).sqrt())
}
