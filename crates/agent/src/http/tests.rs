use super::*;

#[test]
fn what_is_not_served_is_named() {
    let mut status = Status {
        host: "h".into(),
        version: "1".into(),
        pid: 1,
        uptime_s: 1.0,
        policy: None,
        http: Vec::new(),
        pages: None,
        tokens_fault: None,
        reload: None,
        volumes: Vec::new(),
    };
    assert_eq!(lacking(&status), "");
    let volume = serde_json::json!({
        "name": "array", "mode": "parda", "latency_threshold_ms": 30.0, "cluster_latency_ms": null,
        "source": "local", "window": null, "beta": 0.0, "shares": 0, "active_shares": 0.0,
        "outstanding": 0.0, "held": 0, "connections": 0, "ticks": 0, "exchange": null, "disks": [],
        "fault": "no such file",
        "listeners": [{ "address": "unix:s", "state_s": 1.0, "fault": "in\nuse\u{202e}" }],
    });
    status.volumes.push(serde_json::from_value(volume).unwrap());
    assert_eq!(
        lacking(&status),
        "volume array does not run: no such file\nvolume array: unix:s: in\\nuse\\u202e\n"
    );
}
