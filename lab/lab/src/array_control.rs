//! Control socket of a running array: the state of its exports, and faults to inject. Requests and
//! answers are lines of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use parda_agent::socket::{PATIENCE, Server};
use parda_agent::status::DiskStatus;
use parda_array::{Array, FaultError, Nanos};
use parda_block::Handle;
use parda_control::Instant;
use serde::{Deserialize, Serialize};

/// A request at the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayRequest {
    /// The state alone: `"status"`.
    Status,
    /// Fails a drive, counted from 0: `{"fail_drive":2}`.
    FailDrive(u32),
    /// Replaces the failed drive and rebuilds it: `"rebuild"`.
    Rebuild,
    /// Enables or disables the write cache: `{"write_cache":false}`.
    WriteCache(bool),
    /// Slows all drives down by a factor, relative to the preset: `{"slow":2.0}`.
    Slow(f64),
}

/// State of an array after a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// Reason why the request was refused, if it was.
    pub error: Option<String>,
    /// Rebuilt fraction of a failed drive, 0 to 1. `None` if no drive is missing.
    pub rebuilt: Option<f64>,
    /// Counters of each export, in the order of the LUNs.
    pub exports: Vec<DiskStatus>,
}

/// Sends a request to the array at a socket and returns its answer.
///
/// # Errors
/// The socket cannot be reached, or the answer is not an array's. A refused request is no error:
/// its reason is in the answer.
pub fn ask(socket: &Path, request: ArrayRequest) -> io::Result<ArrayStatus> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let line = serde_json::to_string(&request)? + "\n";
    stream.write_all(line.as_bytes())?;
    Ok(serde_json::from_reader(stream)?)
}

/// A request for the array's thread, and the channel for its answer.
type PendingRequest = (ArrayRequest, SyncSender<Result<Option<f64>, FaultError>>);

/// Receiving end of requests, in the array's thread.
pub(crate) type RequestQueue = Receiver<PendingRequest>;

/// Executes the requests that have arrived.
pub(crate) fn execute(requests: &RequestQueue, now: Instant, array: &mut Array) {
    while let Ok((request, answer)) = requests.try_recv() {
        let now = Nanos(now.0);
        let done = match request {
            ArrayRequest::Status => Ok(()),
            ArrayRequest::FailDrive(drive) => array.fail_drive(now, drive),
            ArrayRequest::Rebuild => array.start_rebuild(now),
            ArrayRequest::WriteCache(on) => array.set_write_cache(now, on),
            ArrayRequest::Slow(slow) => array.set_slow(now, slow),
        };
        // The caller may have given up.
        let _ = answer.send(done.map(|()| array.rebuilt_fraction()));
    }
}

/// Answers requests at a socket, for the array that `handle` controls and whose exports have these
/// names.
pub(crate) fn serve(
    socket: &Path,
    requests: Sender<PendingRequest>,
    handle: Weak<Handle>,
    exports: Vec<String>,
) -> io::Result<Server> {
    Server::start(socket, move |mut stream| {
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let status = match serde_json::from_str(&line) {
            Ok(request) => answer(&requests, &handle, &exports, request)?,
            Err(error) => {
                let error = Some(format!("not a request: {error}"));
                ArrayStatus { error, rebuilt: None, exports: Vec::new() }
            }
        };
        let text = serde_json::to_string(&status)? + "\n";
        stream.write_all(text.as_bytes())
    })
}

fn answer(
    requests: &Sender<PendingRequest>,
    handle: &Weak<Handle>,
    exports: &[String],
    request: ArrayRequest,
) -> io::Result<ArrayStatus> {
    let gone = || io::Error::other("the array's thread has ended");
    let (answer, answered) = sync_channel(1);
    requests.send((request, answer)).map_err(|_| gone())?;
    // Asking for the status wakes the array's thread, which then executes its requests.
    let handle = handle.upgrade().ok_or_else(gone)?;
    handle.stats().map_err(|_| gone())?;
    let done = answered.recv_timeout(PATIENCE).map_err(io::Error::other)?;
    let stats = handle.stats().map_err(|_| gone())?;
    let exports = exports.iter().zip(&stats.vms);
    Ok(ArrayStatus {
        error: done.as_ref().err().map(ToString::to_string),
        rebuilt: done.ok().flatten(),
        exports: exports
            .map(|(name, stats)| DiskStatus::without_shares(name.clone(), stats))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array_server::{ArrayData, ArrayOptions, run_array};
    use parda_array::Preset;

    /// Answers of an idle array to a sequence of requests.
    fn answers(preset: Preset, requests: &[ArrayRequest]) -> Vec<ArrayStatus> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control");
        let listen = format!("unix:{}", dir.path().join("array").display()).parse().unwrap();
        let mut options = ArrayOptions::of_preset(preset.params(), vec![listen], ArrayData::Memory);
        options.control = Some(socket.clone());
        let mut answers = Vec::new();
        run_array(options, |_| {
            answers.extend(requests.iter().map(|&request| ask(&socket, request).unwrap()));
        })
        .unwrap();
        assert!(!socket.exists(), "it leaves nothing behind");
        answers
    }

    #[test]
    fn an_array_that_does_nothing_else_takes_what_happens_to_it() {
        use ArrayRequest::{FailDrive, Rebuild, Slow, Status, WriteCache};
        let requests =
            [Status, FailDrive(2), FailDrive(3), WriteCache(false), Rebuild, Slow(2.0), Status];
        let answers = answers(Preset::Cx340Raid5Vms, &requests);
        let errors: Vec<_> = answers.iter().map(|answer| answer.error.as_deref()).collect();
        let second = Some("drive 3 cannot fail: drive 2 has failed and is not rebuilt");
        assert_eq!(errors, [None, None, second, None, None, None, None]);
        assert_eq!([answers[0].rebuilt, answers[1].rebuilt], [None, Some(0.0)]);
        assert!(answers[6].rebuilt.is_some_and(|part| part < 1.0));
        let names: Vec<_> = answers[0].exports.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!((names[0], names.last()), ("lun0", Some(&"exchange")));
    }

    #[test]
    fn what_cannot_happen_is_answered_by_name() {
        let [fails] =
            answers(Preset::Cx340Raid0, &[ArrayRequest::FailDrive(2)]).try_into().unwrap();
        assert_eq!(fails.error.as_deref(), Some("drive 2 cannot fail: RAID-0 has no redundancy"));
    }

    #[test]
    fn requests_are_written_as_the_manual_says() {
        let manual = include_str!("../../../docs/array-model.md");
        let all = [
            ArrayRequest::Status,
            ArrayRequest::FailDrive(2),
            ArrayRequest::Rebuild,
            ArrayRequest::WriteCache(false),
            ArrayRequest::Slow(2.0),
        ];
        for request in all {
            let text = serde_json::to_string(&request).unwrap();
            assert!(manual.contains(&format!("`{text}`")), "{text}");
        }
    }
}
