//! Questions to file systems, none of which is waited for longer than a bound.
//!
//! A call to a file cannot be taken back: where a server of NFS or FUSE does not answer, it hangs. All questions of a caller are asked by the
//! few threads of a [`Crew`], which has more where some hang. A path is silent when its own call takes longer than [`PATIENCE`], however long
//! it had to wait for its turn: many questions to a slow file system take their time, and are answered. A path that hangs is not asked again
//! before its call has come back: it has one thread, however often it is asked about. Who asks about other paths meanwhile does not wait for
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::crew::{Crew, SLOW};
use crate::locked::locked;

/// How long a file system may take to answer before the agent goes on without its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// What to do about a file system that does not answer.
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

/// Questions about one path, each with its number, and the mark that they are being asked.
type Asked<T> = (Mark, Vec<(usize, Question<T>)>);

type ByPath<T> = BTreeMap<PathBuf, Vec<(usize, Question<T>)>>;

/// News of a path, by its number.
enum News<T> {
    /// It is asked about from now on.
    Begun(usize, Instant),
    /// Its answers, each with the number of the question.
    Answered(usize, Vec<(usize, T)>),
}

/// A path that is being asked about.
struct Unanswered {
    since: Instant,
    /// Who asked has gone on without the answer: nobody else waits for it.
    is_silent: bool,
}

static UNANSWERED: Mutex<BTreeMap<PathBuf, Unanswered>> = Mutex::new(BTreeMap::new());

/// Something was answered, or has become silent.
static NEWS: Condvar = Condvar::new();

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
    let mut rest: ByPath<T> = BTreeMap::new();
    for (number, question) in questions.into_iter().enumerate() {
        rest.entry(question.path.clone()).or_default().push((number, question));
    }
    while !rest.is_empty() {
        let (free, asked) = mark(rest);
        if !free.is_empty() {
            ask_free(free, patience, &mut answers);
        }
        rest = wait_for(asked);
    }
    answers
}

/// Marks those paths that nobody asks about. The others come back; but those that are silent do not.
fn mark<T>(paths: ByPath<T>) -> (Vec<Asked<T>>, ByPath<T>) {
    let mut unanswered = locked(&UNANSWERED);
    let (mut free, mut asked) = (Vec::new(), BTreeMap::new());
    for (path, questions) in paths {
        match unanswered.get(&path) {
            None => {
                unanswered
                    .insert(path.clone(), Unanswered { since: Instant::now(), is_silent: false });
                free.push((Mark(path), questions));
            }
            Some(other) if other.is_silent => {}
            Some(_) => drop(asked.insert(path, questions)),
        }
    }
    (free, asked)
}

/// Waits until nobody else asks about these paths any more, or they are silent. Those that are answered come back.
fn wait_for<T>(mut paths: ByPath<T>) -> ByPath<T> {
    let mut unanswered = locked(&UNANSWERED);
    loop {
        let is_asked =
            |path| unanswered.get(path).is_some_and(|other: &Unanswered| !other.is_silent);
        if !paths.keys().any(is_asked) {
            paths.retain(|path, _| !unanswered.contains_key(path));
            return paths;
        }
        unanswered = NEWS.wait(unanswered).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Asks what nobody else asks.
fn ask_free<T: Send + 'static>(free: Vec<Asked<T>>, patience: Duration, answers: &mut [Option<T>]) {
    let (crew, (told, is_told)) = (Crew::new("look"), channel());
    let paths: Vec<PathBuf> = free.iter().map(|(mark, _)| mark.0.clone()).collect();
    let mut awaited: BTreeSet<usize> = (0..paths.len()).collect();
    for (number, (mark, questions)) in free.into_iter().enumerate() {
        let told = told.clone();
        crew.push(move || {
            // Who asked may have gone on without.
            let tell = |news| drop(told.send(news));
            tell(News::Begun(number, mark.begins()));
            let answers = questions.into_iter().map(|(n, q)| (n, (q.ask)())).collect();
            // Before anybody hears of them, and asks again.
            drop(mark);
            tell(News::Answered(number, answers));
        });
    }
    crew.hire();
    let mut begun = BTreeMap::new();
    let (mut next, mut heard) = (Instant::now() + SLOW, Instant::now());
    while !awaited.is_empty() {
        let now = Instant::now();
        match is_told.recv_timeout(next.saturating_duration_since(now)) {
            Ok(News::Begun(path, at)) => drop(begun.insert(path, at)),
            Ok(News::Answered(path, of)) => {
                begun.remove(&path);
                awaited.remove(&path);
                of.into_iter().for_each(|(number, answer)| answers[number] = Some(answer));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if now < next {
            continue;
        }
        next = now + SLOW.min(patience / 10);
        crew.hire();
        let silent = |at: &Instant| now.saturating_duration_since(*at) >= patience;
        let hang: Vec<usize> =
            begun.iter().filter(|(_, at)| silent(at)).map(|(path, _)| *path).collect();
        for path in hang {
            begun.remove(&path);
            awaited.remove(&path);
            fall_silent(&paths[path], patience);
        }
        if crew.fault().is_none() {
            heard = now;
        } else if silent(&heard) {
            // Without threads nothing is known of the rest.
            return;
        }
    }
}

/// Nobody waits any more for the answer about a path.
fn fall_silent(path: &Path, patience: Duration) {
    let mut unanswered = locked(&UNANSWERED);
    if let Some(unanswered) = unanswered.get_mut(path) {
        // Later calls do not ask about it, so that this is said once.
        tracing::warn!(path = %path.display(), "does not answer within {patience:?}: {LOOK_BEHIND}");
        unanswered.is_silent = true;
    }
    NEWS.notify_all();
}

/// Mark that a path is being asked about, until this is dropped.
struct Mark(PathBuf);

impl Mark {
    /// The call begins; when that is.
    fn begins(&self) -> Instant {
        let now = Instant::now();
        if let Some(unanswered) = locked(&UNANSWERED).get_mut(&self.0) {
            unanswered.since = now;
        }
        now
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let answered = locked(&UNANSWERED).remove(&self.0);
        NEWS.notify_all();
        if let Some(answered) = answered.filter(|answered| answered.is_silent) {
            let after = answered.since.elapsed();
            tracing::info!(path = %self.0.display(), ?after, "has answered");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

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
        // As long as it hangs nobody waits for it again.
        let again = vec![answered(&a), answered("test/b")];
        assert_eq!(ask_within(again, LONG), [None, Some(1)]);
        drop(hangs);
        let begun = Instant::now();
        while locked(&UNANSWERED).contains_key(Path::new(&a)) {
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
    fn nobody_waits_for_what_others_ask_and_who_asks_the_same_has_its_answer_too() {
        let (slow, answers) = hanging("test/same/a");
        let first = std::thread::spawn(move || ask_within(vec![slow], LONG));
        while !locked(&UNANSWERED).contains_key(Path::new("test/same/a")) {
            std::thread::yield_now();
        }
        // Another path has no turn to wait for.
        assert_eq!(ask_within(vec![answered("test/same/b")], LONG), [Some(1)]);
        let asked = vec![answered("test/same/a"), answered("test/same/b")];
        let same = std::thread::spawn(move || ask_within(asked, LONG));
        answers.send(7).unwrap();
        assert_eq!(first.join().unwrap(), [Some(7)]);
        assert_eq!(same.join().unwrap(), [Some(1), Some(1)]);
    }

    #[test]
    fn what_falls_silent_is_silent_to_all_who_wait_for_it() {
        let (hangs, _answers) = hanging("test/silent");
        let first = std::thread::spawn(|| ask_within(vec![hangs], Duration::from_millis(500)));
        while !locked(&UNANSWERED).contains_key(Path::new("test/silent")) {
            std::thread::yield_now();
        }
        assert_eq!(ask_within(vec![answered("test/silent")], LONG), [None]);
        assert_eq!(first.join().unwrap(), [None]);
    }
}
