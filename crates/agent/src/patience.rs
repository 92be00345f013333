//! Questions to file systems, none of which is waited for longer than a bound.
//!
//! A call to a file cannot be taken back: where a server of NFS or FUSE does not answer, it hangs. All questions of a caller are asked on one
//! thread. If they take long, each path that is left gets a thread of its own, so that the caller has all answers that there are after
//! [`PATIENCE`]. A path that hangs is not asked again before its call has come back: it has one thread, however often it is asked about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a file system may take to answer before the agent goes on without its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Question about a path.
pub(crate) struct Question<T> {
    path: PathBuf,
    ask: Box<dyn FnOnce() -> T + Send>,
}

impl<T> Question<T> {
    pub(crate) fn new(path: &Path, ask: impl FnOnce() -> T + Send + 'static) -> Self {
        Question { path: path.to_owned(), ask: Box::new(ask) }
    }
}

/// Questions about one path, each with its number.
type Asked<T> = (PathBuf, Vec<(usize, Question<T>)>);

type Queue<T> = Arc<Mutex<VecDeque<Asked<T>>>>;

/// Paths that are being asked about, since when.
static UNANSWERED: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

/// Held by the caller whose questions are asked: who comes next knows which paths hang.
static TURN: Mutex<()> = Mutex::new(());

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks all questions. `None` for those of which the file system does not answer.
pub(crate) fn ask<T: Send + 'static>(questions: Vec<Question<T>>) -> Vec<Option<T>> {
    ask_within(questions, PATIENCE)
}

/// Asks one question.
pub(crate) fn ask_one<T: Send + 'static>(question: Question<T>) -> Option<T> {
    ask(vec![question]).pop().flatten()
}

fn ask_within<T: Send + 'static>(
    questions: Vec<Question<T>>,
    patience: Duration,
) -> Vec<Option<T>> {
    let mut answers: Vec<Option<T>> = questions.iter().map(|_| None).collect();
    let _turn = locked(&TURN);
    let mut by_path: BTreeMap<PathBuf, Vec<(usize, Question<T>)>> = BTreeMap::new();
    for (number, question) in questions.into_iter().enumerate() {
        by_path.entry(question.path.clone()).or_default().push((number, question));
    }
    by_path.retain(|path, _| !locked(&UNANSWERED).contains_key(path));
    let paths: Vec<PathBuf> = by_path.keys().cloned().collect();
    let numbers = by_path.values().flatten().map(|(number, _)| *number);
    let mut awaited: BTreeSet<usize> = numbers.collect();
    let queue: Queue<T> = Arc::new(Mutex::new(by_path.into_iter().collect()));
    let (told, is_told) = channel();
    let begun = Instant::now();
    let mut until = begun + patience / 10;
    let mut on_time = true;
    if !awaited.is_empty() {
        start(&queue, &told);
    }
    while !awaited.is_empty() {
        match is_told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((number, answer)) => {
                answers[number] = Some(answer);
                awaited.remove(&number);
            }
            Err(RecvTimeoutError::Timeout) if on_time => {
                on_time = false;
                until = begun + patience;
                let rest = locked(&queue).len();
                (0..rest).for_each(|_| start(&queue, &told));
            }
            Err(_) => break,
        }
    }
    if !awaited.is_empty() {
        let unanswered = locked(&UNANSWERED);
        // Later calls do not ask about them, so that this is said once.
        for path in paths.iter().filter(|path| unanswered.contains_key(*path)) {
            tracing::warn!(path = %path.display(), "does not answer within {patience:?}");
        }
    }
    answers
}

/// Starts a thread that asks until nothing is left to be asked.
fn start<T: Send + 'static>(queue: &Queue<T>, told: &Sender<(usize, T)>) {
    let (queue, told) = (Arc::clone(queue), told.clone());
    let work = move || {
        loop {
            let Some((path, questions)) = locked(&queue).pop_front() else { return };
            let asked = Unanswered::new(path);
            let answers: Vec<_> = questions.into_iter().map(|(n, q)| (n, (q.ask)())).collect();
            // Before anybody hears of them, and asks again.
            drop(asked);
            // Who asked may have gone on without.
            answers.into_iter().for_each(|answer| drop(told.send(answer)));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("look".to_owned()).spawn(work) {
        tracing::error!("cannot start a thread to look at files: {error}");
    }
}

/// A path that is being asked about, until this is dropped.
struct Unanswered(PathBuf);

impl Unanswered {
    fn new(path: PathBuf) -> Self {
        locked(&UNANSWERED).insert(path.clone(), Instant::now());
        Unanswered(path)
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let since = locked(&UNANSWERED).remove(&self.0);
        if let Some(after) = since.map(|since| since.elapsed()).filter(|after| *after >= PATIENCE) {
            tracing::info!(path = %self.0.display(), ?after, "has answered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// A question whose answer comes when something is sent.
    fn hanging(path: &str) -> (Question<u32>, Sender<u32>) {
        let (sender, receiver) = channel();
        (Question::new(Path::new(path), move || receiver.recv().unwrap_or_default()), sender)
    }

    fn answered(path: &str) -> Question<u32> {
        Question::new(Path::new(path), || 1)
    }

    #[test]
    fn a_path_that_hangs_costs_the_others_no_answer_and_is_asked_again_when_it_has_answered() {
        let brief = Duration::from_secs(1);
        let (first, hangs) = hanging("test/a");
        let (same, hangs_too) = hanging("test/a");
        let asked = vec![first, answered("test/b"), same, answered("test/c")];
        assert_eq!(ask_within(asked, brief), [None, Some(1), None, Some(1)]);
        // As long as it hangs nobody waits for it again.
        let again = vec![answered("test/a"), answered("test/b")];
        assert_eq!(ask_within(again, LONG), [None, Some(1)]);
        drop((hangs, hangs_too));
        while locked(&UNANSWERED).contains_key(Path::new("test/a")) {
            std::thread::yield_now();
        }
        assert_eq!(ask_within(vec![answered("test/a")], LONG), [Some(1)]);
    }

    #[test]
    fn of_many_paths_that_hang_each_has_one_thread_and_the_rest_is_answered() {
        let brief = Duration::from_secs(1);
        let (mut asked, hangs): (Vec<_>, Vec<_>) =
            (0..50).map(|n| hanging(&format!("test/many/{n}"))).unzip();
        asked.push(answered("test/many/z"));
        let answers = ask_within(asked, brief);
        assert!(answers[..50].iter().all(Option::is_none));
        assert_eq!(answers[50], Some(1));
        drop(hangs);
    }
}
