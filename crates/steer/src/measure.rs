//! Measurements of a device between two readings. Latency from issue to completion, by direction
//! and size; mean outstanding IOs; and the demand of each cgroup.

mod ebpf;
mod find;
mod flow;
mod histogram;
mod layout;
mod little;
mod reading;
mod whole;

pub use ebpf::{Ebpf, RunTime};
pub use histogram::Histogram;
pub use little::Little;
pub use reading::{CgroupIos, Class, DeviceReading, Measure, MeasureError, Method, Watched};

/// Method to use for measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum MethodChoice {
    /// eBPF if it is available, else Little's law.
    #[default]
    Auto,
    /// eBPF, or an error.
    Ebpf,
    /// Little's law, although eBPF may be available.
    Little,
}

/// Begins to measure. Dropping the result ends it.
///
/// # Errors
///
/// The device cannot be measured with the chosen method.
pub fn open(watched: &Watched, choice: MethodChoice) -> Result<Box<dyn Measure>, MeasureError> {
    let why = match choice {
        MethodChoice::Little => None,
        MethodChoice::Ebpf => return Ok(Box::new(Ebpf::open(watched)?)),
        MethodChoice::Auto => match Ebpf::open(watched) {
            Ok(ebpf) => return Ok(Box::new(ebpf)),
            Err(e) => Some(e.to_string()),
        },
    };
    Ok(Box::new(Little::open(std::path::Path::new("/"), watched, why)?))
}
