//! `parda set`.

use std::collections::BTreeSet;

use clap::Args;
use parda_api::Changed;
use parda_terminal::{Failure, output};
use serde_json::{Map, Value};

use crate::agent::api::{Agent, segment};

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda set vm1 shares=2000                          kept in the state file, if one is configured
  parda set vm1 shares=2000 latency_target=10ms --temporary
  parda set vm1 drain=true                           no new connections; parda drain has more
  parda set --volume array latency_threshold=20ms    a setting of the volume's law
  parda set vm1 --reset shares                       what the configuration says
  parda set vm1 limit=none                           no limit, whatever the configuration says
  parda set vm1 --reset-all
  parda set --disk a=b shares=2000                   a disk with = in its name
  parda set --disk a=b --reset-all
  parda set --tenant gold 'limit={ iops = 3000 }'    a tenant, on this host: do the same on all hosts

The change is checked as the configuration is, and the answer has the values in force. No connection closes.
Over TCP it takes --url http://ADDRESS:PORT and --token-file with a token of the role write.")]
pub(crate) struct Set {
    /// Name of the disk, or of the VM of a steered device. None: the volume's own settings, as in [volume.control]
    #[arg(value_name = "VM")]
    vm: Option<String>,
    /// New values
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Name of the disk, for a name with = in it
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,
    /// Name of a tenant, whose settings on this host are changed
    #[arg(long, value_name = "NAME", conflicts_with = "disk")]
    tenant: Option<String>,
    /// Name of the volume, if there are several
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Keep it until the agent ends, not in its state file
    #[arg(long, conflicts_with_all = ["reset", "reset_all"])]
    temporary: bool,
    /// Give a setting back to the configuration file
    #[arg(long, value_name = "KEY", conflicts_with = "settings")]
    reset: Option<String>,
    /// Give all settings of the disk, or of the volume, back to the configuration file
    #[arg(long, conflicts_with_all = ["settings", "reset"])]
    reset_all: bool,
    /// Write the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Set {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        // Without a disk, or with a disk named by --disk, the first argument is a setting as well.
        let (disk, first) = match (&self.vm, &self.disk) {
            (vm, Some(disk)) => (Some(disk.as_str()), vm.as_deref()),
            (Some(text), None) if text.contains('=') => (None, Some(text.as_str())),
            (vm, None) => (vm.as_deref(), None),
        };
        if let (Some(disk), Some(tenant)) = (disk, &self.tenant) {
            return Err(Failure::usage(format!(
                "{disk}: is no setting of the tenant {tenant}: leave one out"
            )));
        }
        let settings = first.into_iter().chain(self.settings.iter().map(String::as_str));
        let mut settings = once(settings)?;
        self.check(first)?;
        if self.temporary && !settings.is_empty() {
            temporarily(&mut settings)?;
        }
        let volume = self.agent.volume_of(self.volume.as_deref(), disk, self.tenant.as_deref())?;
        let mut path = format!("volumes/{}", segment(&volume));
        if let Some(disk) = disk {
            path += &format!("/disks/{}", segment(disk));
        }
        if let Some(tenant) = &self.tenant {
            path += &format!("/tenants/{}", segment(tenant));
        }
        let changed: Changed = match (&self.reset, self.reset_all) {
            (Some(key), _) => {
                self.agent.ask("DELETE", &format!("{path}/overrides/{}", segment(key)), None)?
            }
            (None, true) => self.agent.ask("DELETE", &format!("{path}/overrides"), None)?,
            (None, false) if settings.is_empty() => {
                return Err(Failure::usage("nothing to set: parda set vm1 shares=2000"));
            }
            (None, false) => self.agent.ask("PATCH", &path, Some(&Value::Object(settings)))?,
        };
        output::tell_as(self.json, &changed, told)
    }

    /// Refuses a setting beside a reset, which would have no effect. `first`: the first argument, if it is a setting.
    fn check(&self, first: Option<&str>) -> Result<(), Failure> {
        let reset = match (&self.reset, self.reset_all) {
            (Some(key), _) => format!("--reset {key}"),
            (None, true) => "--reset-all".to_owned(),
            (None, false) => return Ok(()),
        };
        match (first, &self.disk) {
            (None, _) => Ok(()),
            (Some(text), Some(_)) => {
                Err(Failure::usage(format!("{text}: cannot be set with {reset}: leave one out")))
            }
            (Some(text), None) => Err(Failure::usage(format!(
                "{text}: cannot be set with {reset}: leave one out; if it is the name of a disk: --disk {text}"
            ))),
        }
    }
}

/// Has a change last until the agent ends.
pub(crate) fn temporarily(body: &mut Map<String, Value>) -> Result<(), Failure> {
    match body.insert("keep".to_owned(), "until_restart".into()) {
        None => Ok(()),
        Some(_) => Err(Failure::usage("keep: is set by --temporary as well: leave one out")),
    }
}

/// Settings by their keys, each of which is named once.
pub(crate) fn once<'a>(
    texts: impl Iterator<Item = &'a str>,
) -> Result<Map<String, Value>, Failure> {
    let texts: Vec<&str> = texts.collect();
    different(&texts)?;
    texts.into_iter().map(setting).collect()
}

/// Checks that no two settings have one key.
pub(crate) fn different(texts: &[&str]) -> Result<(), Failure> {
    let mut keys = BTreeSet::new();
    for text in texts {
        let key = text.split_once('=').map_or(*text, |(key, _)| key);
        if !keys.insert(key) {
            return Err(Failure::usage(format!("{text}: {key} is set twice: give it one value")));
        }
    }
    Ok(())
}

/// A setting as the API takes it: numbers, truths, tables and texts in quotes as such, all else as text.
pub(crate) fn setting(text: &str) -> Result<(String, Value), Failure> {
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(Failure::usage(format!("{text}: must be KEY=VALUE")));
    };
    let table = inline_table(value).and_then(|table| serde_json::to_value(table).ok());
    let plain = table.or_else(|| serde_json::from_str(value).ok());
    let plain = plain.filter(|value: &Value| !value.is_array() && !value.is_null());
    Ok((key.to_owned(), plain.unwrap_or_else(|| value.into())))
}

/// A table that is written as TOML has it within a line: `{ iops = 500 }`.
fn inline_table(value: &str) -> Option<toml::Value> {
    let document = value.starts_with('{').then(|| format!("value = {value}"))?;
    toml::from_str::<toml::Table>(&document).ok()?.remove("value")
}

fn told(changed: &Changed) -> String {
    let mut text = String::new();
    let of = match (&changed.disk, &changed.tenant) {
        (Some(disk), _) => format!("volume {}, disk {disk}", changed.volume),
        (None, Some(tenant)) => format!("volume {}, tenant {tenant}", changed.volume),
        (None, None) => format!("volume {}", changed.volume),
    };
    let value = |value: &Value| match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    };
    for setting in &changed.settings {
        let of_all = match (setting.setting.as_str(), changed.all_shares, setting.in_force.as_f64())
        {
            ("shares", Some(all), Some(shares)) if all > 0 => format!(
                "; {} of the {all} shares of all hosts that are heard",
                part(shares / all as f64)
            ),
            _ => String::new(),
        };
        let line = format!(
            "{of}: {} = {} (before: {}), {}{of_all}{}",
            setting.setting,
            value(&setting.in_force),
            value(&setting.before),
            setting.from.words(),
            if setting.took_effect { "" } else { "; NOT in force yet" },
        );
        text += &(output::line(&line) + "\n");
    }
    if text.is_empty() {
        text = output::line(&format!("{of}: nothing was changed live"));
    }
    text
}

/// A part in percent, of which none is rounded to nothing or all.
fn part(part: f64) -> String {
    let percent = 100.0 * part;
    match percent {
        0.0..0.1 => "less than 0.1 %".to_owned(),
        99.95..100.0 => "more than 99.9 %".to_owned(),
        10.0..=99.0 => format!("{percent:.0} %"),
        _ => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_all_shares_is_told_and_none_is_rounded_to_all() {
        assert_eq!(
            [0.5, 0.0112, 0.999_96, 1.0, 0.0001].map(part),
            ["50 %", "1.1 %", "more than 99.9 %", "100.0 %", "less than 0.1 %"]
        );
        let changed = |all_shares| Changed {
            volume: "array".to_owned(),
            disk: Some("vm1".to_owned()),
            tenant: None,
            settings: vec![parda_api::ChangedSetting {
                setting: "shares".to_owned(),
                before: 1000.into(),
                in_force: 1_000_000.into(),
                configured: Value::Null,
                from: parda_api::ValueFrom::State,
                took_effect: true,
            }],
            all_shares,
        };
        let line = told(&changed(Some(1_003_000)));
        assert!(
            line.ends_with("99.7 % of the 1003000 shares of all hosts that are heard\n"),
            "{line}"
        );
        assert!(!told(&changed(None)).contains('%'));
    }

    #[test]
    fn numbers_and_truths_are_sent_as_such() {
        let sent = |text: &str| setting(text).map(|pair| pair.1).unwrap_or_default();
        assert_eq!(sent("shares=2000"), serde_json::json!(2000));
        assert_eq!(sent("burst=1.5"), serde_json::json!(1.5));
        assert_eq!(sent("latency_threshold=20ms"), serde_json::json!("20ms"));
        assert_eq!(sent("a=true"), serde_json::json!(true));
        assert_eq!(sent("mode=[1]"), serde_json::json!("[1]"));
        assert_eq!(sent("tenant=\"100\""), serde_json::json!("100"));
        assert_eq!(sent("limit={ iops = 500 }"), serde_json::json!({ "iops": 500 }));
        assert_eq!(sent("limit={ iops"), serde_json::json!("{ iops"));
        for text in ["shares", "=1"] {
            assert!(setting(text).err().unwrap().message.ends_with("must be KEY=VALUE"));
        }
    }

    /// Refusal of a command that no agent is asked for.
    fn refused(arguments: &[&str]) -> String {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            set: Set,
        }
        let arguments = [&["set", "--url", "http://127.0.0.1:1", "--volume", "san"], arguments];
        let command: Command = clap::Parser::try_parse_from(arguments.concat()).unwrap();
        let failure = command.set.run().err().unwrap();
        assert_eq!(failure.code, 2, "{}", failure.message);
        failure.message
    }

    #[test]
    fn a_setting_beside_a_reset_is_refused() {
        for reset in [&["--reset", "latency_threshold"][..], &["--reset-all"]] {
            let beside = |more: &[&str]| refused(&[more, reset].concat());
            let reset = reset.join(" ");
            assert_eq!(
                beside(&["a=b"]),
                format!(
                    "a=b: cannot be set with {reset}: leave one out; if it is the name of a disk: --disk a=b"
                )
            );
            assert_eq!(
                beside(&["shares=5", "--disk", "vm1"]),
                format!("shares=5: cannot be set with {reset}: leave one out")
            );
        }
    }

    #[test]
    fn a_change_is_kept_in_one_place() {
        for keep in ["keep=state", "keep=until_restart"] {
            assert_eq!(
                refused(&["vm1", "shares=5", keep, "--temporary"]),
                "keep: is set by --temporary as well: leave one out"
            );
        }
    }

    #[test]
    fn a_setting_that_is_named_twice_is_refused() {
        let sent = |texts: &[&str]| once(texts.iter().copied()).map(|settings| settings.len());
        assert_eq!(sent(&["shares=5", "burst=1"]).ok(), Some(2));
        let refused = sent(&["shares=5", "burst=1", "shares=3000"]).err().unwrap();
        assert!(refused.message.starts_with("shares=3000: shares is set twice"));
        assert!(different(&["shares=5", "burst"]).is_ok());
        assert!(different(&["shares=5", "shares"]).is_err(), "set, and unset");
    }
}
