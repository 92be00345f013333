#![allow(warnings)]
use parda_config::Document;
use parda_scenario::Study;
use parda_scenario::set::{Setting, with_settings};
use parda_sim::{Keep, SimOptions, run};
use std::path::Path;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let set: Vec<Setting> = a[5..].iter().map(|t| t.parse().unwrap()).collect();
    let document = with_settings(&Document::read(Path::new(&a[1])).unwrap(), &set).unwrap();
    let study = Study::parse(&document).unwrap_or_else(|e| panic!("{e}"));
    let (from, to): (usize, usize) = (a[3].parse().unwrap(), a[4].parse().unwrap());
    for r in &study.runs {
        if !r.name().contains(&a[2]) {
            continue;
        }
        let out = run(&r.scenario, &SimOptions { series: Keep::All, ..Default::default() }, |_| ())
            .unwrap();
        let s = out.series.unwrap();
        println!("hosts {:?}", s.hosts.iter().map(|h| h.name.clone()).collect::<Vec<_>>());
        for i in from..to.min(s.at.len()) {
            let iops: f64 = s.hosts.iter().map(|h| h.iops[i]).sum();
            let lat: f64 = s
                .hosts
                .iter()
                .map(|h| h.iops[i] * h.device_latency_ms[i].unwrap_or(0.0))
                .sum::<f64>()
                / iops;
            print!("{:4} {:6.0} {:7.2} |", s.at[i], iops, lat);
            for h in s.hosts.iter().take(6) {
                print!(
                    " {:7.3}/{:5.0}/{:6.1}",
                    h.window[i].unwrap_or(-1.0),
                    h.iops[i],
                    h.device_latency_ms[i].unwrap_or(0.0)
                );
            }
            println!(" thr {:.1}", s.hosts[0].latency_threshold_ms[i].unwrap_or(0.0));
        }
        return;
    }
}
