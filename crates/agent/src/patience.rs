//! Questions to file systems, none of which is waited for longer than a bound.
//!
//! A call to a file cannot be taken back. While a server of NFS or FUSE is silent, the call hangs. The few threads of a [`Crew`] ask all
//! questions of a caller. While some hang, the crew has more threads. A path is silent when its own call takes longer than [`PATIENCE`].
//! The wait for its turn does not count: a slow file system may answer many questions late. A silent path is not asked again before its
//! call has come back, for any number of callers. Callers do not wait for each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parda_awake::Instant;

use crate::crew::{Crew, SLOW};
use crate::locked::locked;

/// Longest wait for a file system's answer, after which the agent continues without the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Advice on a file system that does not answer.
pub(crate) const LOOK_BEHIND: &str =
    "see whether the server (NFS, FUSE) or the array behind it answers";

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

/// News of a path.
enum News<T> {
    /// The question about this path begins now.
    Begun(PathBuf, Instant),
    /// Its answers, each with the number of the question.
    Answered(PathBuf, Vec<(usize, T)>),
}

/// Paths that did not answer, with the time of the question. They are asked again when they have answered.
static SILENT: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

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
    let mut paths: BTreeMap<PathBuf, Vec<(usize, Question<T>)>> = BTreeMap::new();
    for (number, question) in questions.into_iter().enumerate() {
        paths.entry(question.path.clone()).or_default().push((number, question));
    }
    paths.retain(|path, _| !locked(&SILENT).contains_key(path));
    // Paths that have not answered, with the time since when they are asked.
    let mut awaited: BTreeMap<PathBuf, Option<Instant>> =
        paths.keys().map(|path| (path.clone(), None)).collect();
    let (crew, (told, is_told)) = (Crew::new("look"), channel());
    for (path, questions) in paths {
        let told = told.clone();
        crew.push(move || answer(path, questions, &told));
    }
    crew.hire();
    let (mut next, mut heard) = (Instant::now() + SLOW, Instant::now());
    let mut take = |news, awaited: &mut BTreeMap<PathBuf, Option<Instant>>| match news {
        News::Begun(path, at) => drop(awaited.insert(path, Some(at))),
        News::Answered(path, of) => {
            awaited.remove(&path);
            of.into_iter().for_each(|(number, answer)| answers[number] = Some(answer));
        }
    };
    while !awaited.is_empty() {
        let now = Instant::now();
        match is_told.recv_timeout(next.saturating_duration_since(now)) {
            Ok(news) => take(news, &mut awaited),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if now < next {
            continue;
        }
        next = now + SLOW.min(patience / 10);
        crew.hire();
        let is_silent = |since: Instant| now.saturating_duration_since(since) >= patience;
        // A thread that answers has the lock: no path is silent that has answered.
        let mut silent = locked(&SILENT);
        is_told.try_iter().for_each(|news| take(news, &mut awaited));
        awaited.retain(|path, asked| {
            let Some(since) = asked.filter(|since| is_silent(*since)) else { return true };
            // Later calls do not ask about it, so that one line is logged.
            if silent.insert(path.clone(), since).is_none() {
                tracing::warn!(path = %path.display(), "does not answer within {patience:?}: {LOOK_BEHIND}");
            }
            false
        });
        drop(silent);
        if crew.fault().is_none() {
            heard = now;
        } else if is_silent(heard) {
            // Without threads nothing is known of the rest.
            break;
        }
    }
    answers
}

/// Answers all questions about a path. The caller may have gone on without the answers.
fn answer<T>(path: PathBuf, questions: Vec<(usize, Question<T>)>, told: &Sender<News<T>>) {
    let _ = told.send(News::Begun(path.clone(), Instant::now()));
    let answers = questions.into_iter().map(|(number, question)| (number, (question.ask)()));
    let answers = answers.collect();
    let mut silent = locked(&SILENT);
    if let Some(since) = silent.remove(&path) {
        tracing::info!(path = %path.display(), after = ?since.elapsed(), "has answered");
    }
    let _ = told.send(News::Answered(path, answers));
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

    /// Asks at a new place with more patience where a busy machine starts a thread too late for its answer.
    fn patiently<T>(place: &str, mut ask: impl FnMut(&str, Duration) -> Option<T>) -> T {
        let mut seconds = [1, 10, 60].into_iter();
        let answers =
            seconds.find_map(|s| ask(&format!("test/{place}/{s}"), Duration::from_secs(s)));
        answers.expect("no answer within a minute")
    }

    #[test]
    fn a_path_that_hangs_costs_the_others_no_answer_and_is_asked_again_when_it_has_answered() {
        let mut hangs = Vec::new();
        let a = patiently("a", |place, brief| {
            let [a, b, c] = ["a", "b", "c"].map(|name| format!("{place}/{name}"));
            let [(first, one), (same, two)] = [hanging(&a), hanging(&a)];
            hangs.extend([one, two]);
            let asked = vec![first, answered(&b), same, answered(&c)];
            let answers = ask_within(asked, brief);
            assert_eq!([answers[0], answers[2]], [None, None]);
            ([answers[1], answers[3]] == [Some(1), Some(1)]).then_some(a)
        });
        // As long as the call hangs, no caller waits for it again.
        let again = vec![answered(&a), answered("test/b")];
        assert_eq!(ask_within(again, LONG), [None, Some(1)]);
        drop(hangs);
        let begun = Instant::now();
        while locked(&SILENT).contains_key(Path::new(&a)) {
            assert!(begun.elapsed() < LONG, "it is never asked again");
            std::thread::yield_now();
        }
        assert_eq!(ask_within(vec![answered(&a)], LONG), [Some(1)]);
    }

    #[test]
    fn a_queue_of_slow_answers_is_no_silence() {
        // Longer than the patience in all, and each much shorter.
        let patience = Duration::from_secs(2);
        let slow = |n| {
            let ask = || std::thread::sleep(Duration::from_millis(50));
            Question::new(Path::new(&format!("test/slow/{n}")), ask)
        };
        let begun = Instant::now();
        let answers = ask_within((0..500).map(slow).collect(), patience);
        assert!(answers.iter().all(Option::is_some));
        assert!(begun.elapsed() > patience, "it proves nothing: {:?}", begun.elapsed());
    }

    #[test]
    fn of_many_paths_that_hang_each_has_one_thread_and_the_rest_is_answered() {
        patiently("many", |place, brief| {
            let (mut asked, hangs): (Vec<_>, Vec<_>) =
                (0..50).map(|n| hanging(&format!("{place}/{n}"))).unzip();
            asked.push(answered(&format!("{place}/z")));
            let answers = ask_within(asked, brief);
            assert!(answers[..50].iter().all(Option::is_none));
            drop(hangs);
            (answers[50] == Some(1)).then_some(())
        });
    }

    #[test]
    fn nobody_waits_for_what_others_ask() {
        let (slow, answers) = hanging("test/same/a");
        let first = std::thread::spawn(move || ask_within(vec![slow], LONG));
        let asked = vec![answered("test/same/a"), answered("test/same/b")];
        assert_eq!(ask_within(asked, LONG), [Some(1), Some(1)]);
        answers.send(7).unwrap();
        assert_eq!(first.join().unwrap(), [Some(7)]);
    }
}
