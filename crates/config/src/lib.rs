//! The text of parda's configuration: TOML documents whose errors point at file, line and value,
//! numbers and percentages, and the settings of the control law, which the agent and the scenario language share.

mod amount;
mod bounds;
mod changes;
mod control;
mod document;
pub mod quantity;
mod short;
mod threshold;
mod tunables;
mod vm;

pub use amount::Amount;
pub use control::{
    ControlSettings, Fairness, LineSetting, NamedSizeModel, Resolved, SizeModelSetting, UNITS,
};
pub use document::{Document, Error};
pub use short::short;
pub use threshold::{AutoSetting, IdleProbeSetting, ThresholdSetting};
pub use tunables::{TUNABLES, Tunable};
pub use vm::{VM_SETTINGS, wrong_burst, wrong_shares, wrong_target};
