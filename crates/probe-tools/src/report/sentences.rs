//! Sentences for the reason codes of a document.

use super::words::{ms, short};
use parda_probe::{
    Advice, AdviceReason, Evidence, Growth, LeftOut, OpenQuestion, ProbeDocument, ProbeLoad,
    Suspect, Suspicion,
};

/// A suspicion and its evidence: `read cache: With 4 KiB, …`.
pub(crate) fn suspicion(suspicion: &Suspicion) -> String {
    let evidence: Vec<String> =
        suspicion.evidence.iter().map(|e| evidence(suspicion.what, e)).collect();
    let what = match suspicion.what {
        Suspect::Memory => "memory",
        Suspect::Stalls => "stalls",
        Suspect::ReadCache => "read cache",
        Suspect::WriteCache => "write cache",
        Suspect::Prefetch => "prefetch",
        Suspect::Limit => "limit",
    };
    format!("{what}: {}", evidence.join(" "))
}

fn evidence(what: Suspect, evidence: &Evidence) -> String {
    match evidence {
        Evidence::TooFast { mix, mean_ms } => {
            format!("{mix} take {} one at a time: that is memory, not a medium.", ms(*mean_ms))
        }
        Evidence::TwoKinds { mix, outstanding, fast, up_to_ms, from_ms } => {
            let (fast, up_to, from) = (fast * 100.0, ms(*up_to_ms), ms(*from_ms));
            let why = if what == Suspect::Stalls {
                "they wait for something else, such as garbage collection, others' load, or a busy host"
            } else {
                "some come from a cache"
            };
            format!(
                "With {mix}, {outstanding} outstanding, {fast:.0} % of the IOs take up to {up_to} and the \
                 others from {from} on: {why}."
            )
        }
        Evidence::LatencyFalls { mix, outstanding, first_ms, last_ms } => format!(
            "With {mix}, {outstanding} outstanding, latency falls from {} to {} while it is measured: a \
             cache fills.",
            ms(*first_ms),
            ms(*last_ms)
        ),
        Evidence::WritesBeforeReads { mix, outstanding, writes_ms, reads_ms } => format!(
            "With {outstanding} outstanding, {mix} take {}, reads {}: they are acknowledged before they \
             are on the medium.",
            ms(*writes_ms),
            ms(*reads_ms)
        ),
        Evidence::ThroughputFalls { outstanding, first_iops, last_iops } => format!(
            "With {outstanding} outstanding, throughput falls from {} to {} IOPS while it is measured: a \
             cache is full.",
            short(*first_iops),
            short(*last_iops)
        ),
        Evidence::ReadAhead { mix, outstanding, sequential_ms, random_ms } => format!(
            "With {outstanding} outstanding, {mix} take {}, random ones {}: they are read ahead, by the \
             device or by what is before it.",
            ms(*sequential_ms),
            ms(*random_ms)
        ),
        Evidence::RoundIops { mix, from_outstanding, iops } => {
            limit(&mix.to_string(), &format!("{iops:.0} IOPS"), *from_outstanding)
        }
        Evidence::RoundRate { mix, from_outstanding, bytes_per_s } => {
            let rate = format!("{} MB/s", short(bytes_per_s / 1e6));
            limit(&mix.to_string(), &rate, *from_outstanding)
        }
    }
}

fn limit(mix: &str, limit: &str, from: f64) -> String {
    format!(
        "With {mix}, throughput stays at {limit} from {from:.0} outstanding on, a round number: a limit that \
         somebody set, or that of a link or a front end, not of the medium."
    )
}

/// Purpose of the table of thresholds.
pub(crate) const CHOICES: &str = "A client that keeps few IOs outstanding, as a database does, has IOPS by latency alone: no shares help it, a lower \
    threshold does. What each costs all clients together is in the second column.";

/// A question that the probe cannot answer, and the reason.
#[must_use]
pub fn unknown(unknown: &OpenQuestion) -> String {
    match unknown {
        OpenQuestion::NoSweep => {
            "Where the knee is: no mix was run with more than one number outstanding.".to_owned()
        }
        OpenQuestion::KneeBeyond { mix, deepest, growth } => {
            let grows = growth.map_or(String::new(), |Growth { from_outstanding, by }| {
                format!(
                    ": throughput still grew by {:.1} % from {from_outstanding:.0} to {deepest:.0}",
                    by * 100.0
                )
            });
            format!(
                "Where the knee of {mix} is: {deepest:.0} outstanding did not go far enough beyond it{grows}."
            )
        }
        OpenQuestion::KneeUnsure { mix, part, within } => format!(
            "Where exactly the knee of {mix} is: {:.0} % of the peak are reached within ±{:.0} % of the \
             latency given.",
            part * 100.0,
            within * 100.0
        ),
        OpenQuestion::Writes => {
            "What writes do: none were allowed. On RAID they cost several drive IOs each, and \
                            a write cache hides that until it is full."
                .to_owned()
        }
        OpenQuestion::Sizes => {
            "What size costs: fewer than three sizes were run with one outstanding.".to_owned()
        }
        OpenQuestion::SizesBetween { off } => format!(
            "What a size costs between those that were run: latency is no straight line of it, which misses \
             one by {:.0} %.",
            off * 100.0
        ),
        OpenQuestion::Unsettled { load: ProbeLoad { mix, outstanding }, more } => {
            let others = if *more == 0 { String::new() } else { format!(" and {more} more") };
            format!(
                "What some loads come to when they last: {mix} at {outstanding} outstanding{others} never \
                 settled, and are not what they would be in the long run."
            )
        }
        OpenQuestion::OtherLoad { load: ProbeLoad { mix, outstanding }, outstanding: measured } => {
            format!(
                "Whether the load was what was asked for: with {outstanding} asked for, {} were outstanding \
             ({mix}).",
                short(*measured)
            )
        }
        OpenQuestion::Repeatability => "How repeatable this is: nothing was run twice.".to_owned(),
        OpenQuestion::OtherHosts => {
            "What several hosts reach together: this was one host, and the array's knee \
                                may lie beyond what one host can drive."
                .to_owned()
        }
        OpenQuestion::OtherLoads => {
            "What others did to the array meanwhile: their load looks like a slower device."
                .to_owned()
        }
        OpenQuestion::LeftOut { time_s, what } => {
            let what: Vec<&str> = what.iter().map(left_out).collect();
            format!("What was left out, as {time_s:.0} s are too few: {}.", what.join(", "))
        }
        OpenQuestion::TimeUp => "What the loads left say: its time was up.".to_owned(),
        OpenQuestion::TargetFailed { load, error } => {
            format!("What came after {load}: the target failed: {error}")
        }
    }
}

fn left_out(what: &LeftOut) -> &'static str {
    match what {
        LeftOut::LoadsNearKnee => "all but one load beside the knee",
        LeftOut::Mixes => "mixes",
        LeftOut::InnerSizes => "all but three sizes",
        LeftOut::OtherSweeps => "all mixes but the first",
        LeftOut::Sizes => "sizes",
        LeftOut::Repeats => "repeats",
        LeftOut::Depths => "every other depth",
    }
}

/// A reason for the advice.
pub(crate) fn why(why: &AdviceReason) -> String {
    match why {
        AdviceReason::Knee { mix, part, peak_iops, latency_ms, outstanding } => format!(
            "With {mix} throughput is {:.0} % of its peak of {} IOPS at a latency of {} (95 % sure: {} to \
             {}), with {} outstanding.",
            part * 100.0,
            short(*peak_iops),
            ms(latency_ms.value),
            ms(latency_ms.low),
            ms(latency_ms.high),
            short(*outstanding),
        ),
        AdviceReason::LittleBeyond { outstanding, gain, latency_ratio } => format!(
            "More buys little: with {outstanding:.0} outstanding throughput is {:.1} % higher than at the \
             threshold, latency {} times as high.",
            gain * 100.0,
            short(*latency_ratio),
        ),
        AdviceReason::Waits { service_ms, waits_ms, threshold_ms } => format!(
            "One IO alone takes {}: at the threshold an IO waits {} of its {}.",
            ms(*service_ms),
            ms(*waits_ms),
            ms(*threshold_ms),
        ),
        AdviceReason::AboveKnee { by } => format!(
            "The threshold lies {:.1} % above the knee, for its uncertainty and a number to remember.",
            by * 100.0
        ),
        AdviceReason::Outstanding { outstanding, window } => format!(
            "At the threshold {} are outstanding in the whole cluster. A host that is alone needs a window \
             of that; {window:.0} leaves it a tenth of room.",
            short(*outstanding),
        ),
        AdviceReason::FirstMix { mix } => {
            format!("The advice is for {mix}, which was named first.")
        }
        AdviceReason::OtherKnee { mix, latency_ms, outstanding } => format!(
            "With {mix} the knee is at {}, with {} outstanding.",
            ms(*latency_ms),
            short(*outstanding),
        ),
    }
}

/// The lines for `parda.toml`.
pub(crate) fn snippet(document: &ProbeDocument, advice: &Advice) -> String {
    let about = document.findings.curves.first().map_or(String::new(), |curve| {
        format!(
            "# {}: {:.0} % of a peak of {} IOPS.\n",
            curve.mix,
            advice.throughput_fraction * 100.0,
            short(curve.peak_iops.value),
        )
    });
    format!(
        "[volume.control]\n{about}latency_threshold = \"{}\"\nwindow_max = {:.0}\n",
        duration((advice.latency_threshold_ms * 1e6).round() as u64),
        advice.window_max,
    )
}

/// A time as the configuration spells it: `30.5ms`, `142us`.
fn duration(nanos: u64) -> String {
    match nanos {
        nanos if nanos >= 1_000_000 => format!("{}ms", nanos as f64 / 1e6),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::document;
    use parda_probe::LoadMix;

    const READS: LoadMix = LoadMix { size: 4096, read_percent: 100, random_percent: 100 };

    #[test]
    fn thresholds_are_written_as_configuration_has_them() {
        let written = [69_000_000, 30_500_000, 144_000, 1_020_000, 520].map(duration);
        assert_eq!(written, ["69ms", "30.5ms", "144us", "1.02ms", "520ns"]);
    }

    #[test]
    fn the_snippet_is_configuration() {
        let document = document();
        let advice = document.findings.advice.as_ref().unwrap();
        let snippet = snippet(&document, advice);
        assert!(snippet.starts_with("[volume.control]\n# "), "{snippet}");
        assert!(snippet.contains("ms\"\nwindow_max = 11\n"), "{snippet}");
    }

    #[test]
    fn evidence_is_told_with_its_numbers() {
        let kinds = Evidence::TwoKinds {
            mix: READS,
            outstanding: 1,
            fast: 1.0 / 3.0,
            up_to_ms: 0.25,
            from_ms: 18.0,
        };
        let told = suspicion(&Suspicion { what: Suspect::ReadCache, evidence: vec![kinds] });
        let expected = "33 % of the IOs take up to 250 µs and the others from 18 ms on";
        assert!(told.starts_with("read cache: ") && told.contains(expected), "{told}");
        let flat = Evidence::RoundIops { mix: READS, from_outstanding: 8.0, iops: 2000.0 };
        let told = suspicion(&Suspicion { what: Suspect::Limit, evidence: vec![flat] });
        assert!(
            told.contains("stays at 2000 IOPS from 8 outstanding on, a round number"),
            "{told}"
        );
        let full = [
            Evidence::WritesBeforeReads {
                mix: LoadMix { read_percent: 0, ..READS },
                outstanding: 1,
                writes_ms: 0.2,
                reads_ms: 17.7,
            },
            Evidence::ThroughputFalls { outstanding: 1, first_iops: 5000.0, last_iops: 180.0 },
        ];
        let full = Suspicion { what: Suspect::WriteCache, evidence: full.to_vec() };
        let told = suspicion(&full);
        assert!(told.contains("take 200 µs, reads 17.7 ms"), "{told}");
        assert!(told.contains("to 180 IOPS while it is measured: a cache is full"), "{told}");
    }

    #[test]
    fn what_cannot_be_told_is_said_with_the_load_that_shows_it() {
        let load = ProbeLoad { mix: READS, outstanding: 8 };
        let told = unknown(&OpenQuestion::Unsettled { load, more: 2 });
        let expected = "4 KiB, reads, random at 8 outstanding and 2 more never settled";
        assert!(told.contains(expected), "{told}");
        let told = unknown(&OpenQuestion::OtherLoad { load, outstanding: 19.2 });
        assert!(told.contains("with 8 asked for, 19.2 were outstanding"), "{told}");
        let growth = Some(Growth { from_outstanding: 128.0, by: 1.0 });
        let told = unknown(&OpenQuestion::KneeBeyond { mix: READS, deepest: 256.0, growth });
        let expected = "256 outstanding did not go far enough beyond it: throughput still grew by 100.0 % from 128 to 256.";
        assert!(told.ends_with(expected), "{told}");
    }
}
