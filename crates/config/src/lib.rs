//! The text of parda's configuration: TOML documents whose errors point at file, line and value, numbers and
//! percentages. Also the settings of the control law, which the agent and the scenario language share.

// For `with_vm_settings`, which names this crate's types here as in other crates.
extern crate self as parda_config;

mod amount;
mod bounds;
mod changes;
mod control;
mod document;
mod limit;
mod limit_key;
pub mod quantity;
mod replace;
mod short;
mod tenant;
mod threshold;
mod tunables;
mod values;
mod vm;

pub use amount::Amount;
pub use control::NAMES_FILES;
pub use document::{Document, Error, TablePart, likely, quoted};
pub use limit::LimitSetting;
pub use replace::replace;
pub use short::short;
pub use tenant::{TenantName, TenantSettings, tenants, wrong_tenants};
pub use threshold::{AutoSetting, IdleProbeSetting, ThresholdSetting};
pub use tunables::{ControlSettings, TUNABLES, Tunable};
pub use values::{CostSetting, Fairness, LineSetting, OutsiderSetting, SizeModelSetting};
pub use vm::{
    DEFAULT_SHARES, DISK_SETTINGS, DRAIN, DiskSetting, Holder, VmSettings, wrong_shares,
    wrong_target,
};
