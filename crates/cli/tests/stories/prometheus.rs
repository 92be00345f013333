//! A real Prometheus with the rules that are shipped, scraping agents each second.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::metrics::{CONTRIB, free_port, get};
use crate::stage::{Process, Stage, until, until_within};

/// How long an alert may take to fire or to be cleared: some look back 5 minutes.
const PATIENCE: Duration = Duration::from_secs(480);

pub(crate) struct Prometheus {
    port: u16,
    _process: Process,
}

impl Prometheus {
    /// Starts one that has scraped all agents at these ports. Of the rules one thing is changed: a condition holds for 2 s before its alert
    /// fires, in place of minutes.
    pub(crate) fn start(stage: &Stage, agents: &[u16]) -> Prometheus {
        let rules = Path::new(CONTRIB).join("prometheus/parda.rules.yml");
        let rules = std::fs::read_to_string(rules).unwrap();
        let soon = |line: &str| match line.split_once("for: ") {
            Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 2s\n"),
            _ => format!("{line}\n"),
        };
        stage.write("rules.yml", rules.lines().map(soon).collect::<String>());
        stage.write("prometheus.yml", scraping(agents));
        let port = free_port();
        let listen = format!("--web.listen-address=127.0.0.1:{port}");
        let line = [
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            "--web.enable-lifecycle",
            &listen,
        ];
        let prometheus = Prometheus { port, _process: stage.start("prometheus", &line) };
        until("all agents are scraped", || {
            prometheus.query("up == 1").is_some_and(|found| found.len() == agents.len())
        });
        prometheus
    }

    /// Scrapes the agents at these ports from now on, and no others.
    pub(crate) fn look_at(&self, stage: &Stage, agents: &[u16]) {
        stage.write("prometheus.yml", scraping(agents));
        let url = format!("http://127.0.0.1:{}/-/reload", self.port);
        stage.ok(&["curl", "-sSf", "-X", "POST", &url]);
    }

    /// Labels and values of a query.
    pub(crate) fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (_, body) = get(self.port, &format!("/api/v1/query?query={escaped}"))?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned()
    }

    pub(crate) fn has(&self, expression: &str) -> bool {
        self.query(expression).is_some_and(|found| !found.is_empty())
    }

    /// Labels of all alerts that fire.
    pub(crate) fn firing(&self) -> Vec<Value> {
        let (_, body) = get(self.port, "/api/v1/alerts").unwrap();
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        let Value::Array(alerts) = answer["data"]["alerts"].take() else { panic!("{body}") };
        let firing = alerts.into_iter().filter(|alert| alert["state"] == "firing");
        firing.map(|mut alert| alert["labels"].take()).collect()
    }

    /// Whether an alert fires that has these labels.
    pub(crate) fn fires(&self, alert: &str, labels: &[(&str, &str)]) -> bool {
        self.firing().iter().any(|firing| {
            firing["alertname"] == alert
                && labels.iter().all(|(name, value)| firing[name] == *value)
        })
    }

    /// Waits until an alert fires that has these labels.
    pub(crate) fn until_fires(&self, alert: &str, labels: &[(&str, &str)]) {
        assert!(self.query("up").is_some(), "Prometheus answers");
        until(&format!("{alert} {labels:?} fires"), || self.fires(alert, labels));
    }

    /// Waits until an alert does not fire.
    pub(crate) fn until_cleared(&self, alert: &str) {
        until_within(PATIENCE, &format!("{alert} is cleared"), || !self.fires(alert, &[]));
    }

    /// Waits until no alert fires.
    pub(crate) fn until_all_cleared(&self) {
        until_within(PATIENCE, "all alerts are cleared", || self.firing().is_empty());
    }
}

/// A configuration that scrapes agents each second.
fn scraping(agents: &[u16]) -> String {
    let targets: Vec<_> = agents.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
    format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\n\
         scrape_configs:\n- job_name: parda\n  static_configs:\n  - targets: [{}]\n",
        targets.join(", ")
    )
}
