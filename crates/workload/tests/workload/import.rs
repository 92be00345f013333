//! Import of fio's job files: what is understood, what is refused and where, and that export and
//! import are inverse.
use std::process::Command;
use std::time::Duration;

use parda_config::Document;
use parda_control::Bytes;
use parda_workload::fio::{Imported, Job, JobTarget, import};
use parda_workload::keys::WorkloadKeys;
use parda_workload::{Bursts, Demand, Hot, LoadReader, SizePart, Sources, Workload};
use proptest::prelude::*;

fn of(options: &str) -> Result<Imported, String> {
    let text = format!("[global]\nioengine=libaio\n[db]\n{options}\n");
    import(&Document::new("t.fio", text), None).map_err(|e| e.to_string())
}

fn toml(options: &str) -> String {
    of(options).unwrap().workload.toml()
}

#[test]
fn a_job_means_what_it_means_to_fio() {
    for (options, workload) in [
        ("", "size = \"4KiB\", read = 100, random = 0, outstanding = 1"),
        (
            "rw=randrw\nrwmixread=67\npercentage_random=70\nbs=16k\niodepth=32",
            "size = \"16KiB\", read = 67, random = 70, outstanding = 32",
        ),
        (
            "readwrite=randrw\nrwmixwrite=20%\nblocksize=8k,8k\niodepth=4\nnumjobs=3",
            "size = \"8KiB\", read = 80, random = 100, outstanding = 12",
        ),
        (
            "rw=write\npercentage_random=70",
            "size = \"4KiB\", read = 0, random = 0, outstanding = 1",
        ),
        ("rw=randread\nbs=4k,512k", "size = \"4KiB\", read = 100, random = 100, outstanding = 1"),
        ("rw=rw", "size = \"4KiB\", read = 50, random = 0, outstanding = 1"),
        (
            "rw=randread\nbssplit=64k/30:4k/:8k/",
            "sizes = { \"4KiB\" = 35, \"8KiB\" = 35, \"64KiB\" = 30 }, read = 100, random = 100, \
             outstanding = 1",
        ),
        (
            "rw=randread\nrandom_distribution=zoned:90/10:10/90\nkb_base=1000\nbs=4KiB",
            "size = \"4KiB\", read = 100, random = 100, hot = { part = 10, hits = 90 }, \
             outstanding = 1",
        ),
        (
            "rw=randrw\nrwmixread=75\nrate_iops=300,100\nrate_process=poisson\niodepth=1024",
            "size = \"4KiB\", read = 75, random = 100, rate = 400",
        ),
        (
            "rw=randwrite\nthinktime=500ms\nthinktime_iotime=2",
            "size = \"4KiB\", read = 0, random = 100, outstanding = 1, on = \"2s\", off = \"500ms\"",
        ),
        (
            "rw=read\ndirect=1\nfilename=/dev/by-path/x\\:0\nruntime=60\ntime_based\ngroup_reporting\nfsync=0",
            "size = \"4KiB\", read = 100, random = 0, outstanding = 1",
        ),
    ] {
        assert_eq!(toml(options), format!("{{ {workload} }}"), "{options}");
    }
}

#[test]
fn the_disk_is_what_all_its_copies_use() {
    let disk = |options: &str| of(options).unwrap().disk.map(|disk| disk.0 >> 20);
    assert_eq!(disk("rw=randread"), None);
    assert_eq!(disk("rw=randread\nsize=100%"), None);
    assert_eq!(disk("rw=randread\nsize=2g\nnumjobs=4"), Some(8192));
    assert_eq!(disk("rw=randread\nsize=2g\nnumjobs=4\nfilename=/dev/sdx"), Some(2048));
}

#[test]
fn what_changes_the_load_and_has_no_counterpart_is_refused_with_its_line() {
    for (options, says) in [
        ("filename=/dev/a:/dev/b", "t.fio:4:1: filename=/dev/a:/dev/b: is several files"),
        ("rw=randtrim", "t.fio:4:1: rw=randtrim: must be read, write, rw, randread,"),
        ("rw=read:8", "t.fio:4:1: rw=read:8: must be"),
        (
            "\nbsrange=4k-64k",
            "t.fio:5:1: bsrange=4k-64k: has no counterpart in a workload: say with bssplit",
        ),
        (
            "rate=10m",
            "t.fio:4:1: rate=10m: has no counterpart in a workload: say it in IOs a second",
        ),
        ("zonesize=1m", "t.fio:4:1: zonesize=1m: has no counterpart in a workload: take it out"),
        ("fsync=8", "t.fio:4:1: fsync=8: has no counterpart"),
        ("bs=4KiB", "t.fio:4:1: bs=4KiB: is so many thousands in fio"),
        ("bs=1.5k", "t.fio:4:1: bs=1.5k: must be a size, such as 4k"),
        ("bs=1000", "t.fio:4:1: bs=1000: must be a multiple of 512 bytes"),
        ("rw=rw\nbs=4k,8k", "t.fio:5:1: bs=4k,8k: must say the same of reads and writes"),
        (
            "bssplit=4k/50:6k/50",
            "t.fio:4:1: bssplit=4k/50:6k/50: must be multiples of the smallest",
        ),
        ("bssplit=4k/50:8k/40", "t.fio:4:1: bssplit=4k/50:8k/40: must make 100% together"),
        (
            "rw=randread\nrandom_distribution=zipf:1.1",
            "t.fio:5:1: random_distribution=zipf:1.1: must",
        ),
        ("rw=read\nnumjobs=4", "t.fio:5:1: numjobs=4: each of them has streams of its own"),
        ("iodepth=8\nioengine=psync", "t.fio:4:1: iodepth=8: is 1 in fio, whose engine psync"),
        ("ioengine=cpuio", "t.fio:4:1: ioengine=cpuio: is not known here"),
        ("iodepth=0", "t.fio:4:1: iodepth=0: must be at least 1"),
        ("rate_iops=500", "t.fio:4:1: rate_iops=500: comes at even times"),
        (
            "rw=randrw\nrwmixread=70\nrate_iops=500\nrate_process=poisson",
            "t.fio:6:1: rate_iops=500: makes 500 reads and 500 writes a second, which are not",
        ),
        ("thinktime=5ms", "t.fio:4:1: thinktime=5ms: after so many IOs has no counterpart"),
        ("size=50%", "t.fio:4:1: size=50%: must be a size, such as 20g, or 100%"),
        ("rwmixread=170\nrw=rw", "t.fio:4:1: rwmixread=170: must be a percentage"),
    ] {
        let error = of(options).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn without_an_asynchronous_engine_fio_has_one_under_way() {
    let of = |text: &str| import(&Document::new("t.fio", text), None).map_err(|e| e.to_string());
    let error = of("[a]\niodepth=32\n").unwrap_err();
    assert!(error.starts_with("t.fio:2:1: iodepth=32: is 1 in fio, whose engine psync"), "{error}");
    assert!(of("[a]\niodepth=1\n").is_ok());
}

/// The workload that its TOML describes.
fn read(toml: &str) -> Workload {
    #[derive(serde::Deserialize)]
    struct File {
        workload: WorkloadKeys,
    }
    let document = Document::new("t.toml", format!("workload = {toml}"));
    let file: File = document.parse().unwrap();
    let sources = Sources::default();
    let (load, _) = LoadReader::new(&document, &sources).load("workload", &file.workload).unwrap();
    load.drawn().unwrap().clone()
}

prop_compose! {
    fn any_hot()(part in 1..=99u32, hits in 1..=100u32) -> Hot {
        Hot { part_percent: part.into(), hits_percent: hits.into() }
    }
}

fn any_sizes() -> impl Strategy<Value = Vec<SizePart>> {
    let one = (1..=256u64).prop_map(|n| vec![SizePart { size: Bytes(512 * n), percent: 100 }]);
    let two = (1..=64u64, 2..=16u64, 1..=99u32).prop_map(|(n, times, percent)| {
        let part = |n, percent| SizePart { size: Bytes(512 * n), percent };
        vec![part(n, percent), part(n * times, 100 - percent)]
    });
    prop_oneof![one, two]
}

prop_compose! {
    fn any_workload()(
        sizes in any_sizes(),
        read in prop_oneof![Just(0u32), Just(100), 0..=100u32],
        random in 0..=100u32,
        hot in proptest::option::of(any_hot()),
        outstanding in proptest::option::of(1..=4096u32),
        rate in 1..=1000u32,
        bursts in proptest::option::of((1..=9000u64, 1..=9000u64)),
    ) -> Workload {
        // Only what fio can express: whole numbers of reads and writes, and no bursts of them.
        let demand = match outstanding {
            Some(outstanding) => Demand::Closed { outstanding },
            None => Demand::Open { rate: f64::from(rate * 100) },
        };
        Workload {
            sizes,
            read_percent: read.into(),
            random_percent: random.into(),
            one_stream: false,
            trim_percent: 0.0,
            hot: hot.filter(|_| random > 0),
            demand,
            bursts: bursts.filter(|_| outstanding.is_some()).map(|(on, off)| Bursts {
                on: Duration::from_millis(on),
                off: Duration::from_millis(off),
            }),
        }
    }
}

proptest! {
    #[test]
    fn a_workload_comes_back_from_fios_words_as_it_went(workload in any_workload()) {
        let disk = Bytes(64 << 20);
        let mut job = Job::new("db");
        job.target(JobTarget::Path("/dev/sdx"));
        job.load(&workload, disk).unwrap();
        let imported = import(&Document::new("t.fio", job.section().unwrap()), None).unwrap();
        prop_assert_eq!(&imported, &Imported { job: "db".to_owned(), workload, disk: Some(disk) });
        // The workload also survives the syntax of scenarios.
        prop_assert_eq!(read(&imported.workload.toml()), imported.workload);
    }

    #[test]
    fn no_text_brings_the_reader_down(text in "[ -~\n]{0,200}", job in "\\PC{0,8}") {
        let document = Document::new("t.fio", text);
        let _ = import(&document, None);
        let _ = import(&document, Some(&job));
    }

    #[test]
    fn nor_do_options_with_strange_values(
        option in proptest::sample::select(&["rw", "bs", "bssplit", "size", "rate_iops", "iodepth",
            "numjobs", "thinktime", "thinktime_iotime", "random_distribution", "percentage_random",
            "rwmixread"][..]),
        value in "(zoned:)?[0-9kmgx,:/%.\\-]{0,24}",
        other in "[0-9kg]{0,20}",
    ) {
        let _ = of(&format!("rw=randrw\n{option}={value}\nnumjobs={other}"));
        let _ = of(&format!("rw=randrw\n{option}={value}\nthinktime_iotime={other}"));
    }
}

/// Sizes are parsed as a real fio parses them.
#[test]
fn sizes_are_read_as_fio_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.fio");
    for size in ["4k", "4KB", "8192", "0x1000", "1m"] {
        let text = format!("[a]\nioengine=null\nsize=1g\nfilename=x\nbs={size}\n");
        std::fs::write(&file, &text).unwrap();
        let parsed =
            Command::new("fio").args(["--parse-only", "--debug=parse"]).arg(&file).output();
        let parsed = String::from_utf8(parsed.unwrap().stdout).unwrap();
        let after = parsed.split(&format!("=bs, type=OPT_ULL, ptr={size}")).nth(1).unwrap();
        let fios: u64 =
            after.split("out=").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let ours = import(&Document::new("t.fio", text), None).unwrap().workload.grain();
        assert_eq!(ours, Bytes(fios), "{size}");
    }
}
