//! Files that workloads are taken from: job files and traces.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parda_config::{Document, Error};

use crate::fio::{Imported, import};
use crate::trace::{Trace, read};

/// Cache of the files that were read, so that each is read once for all clients.
#[derive(Debug, Default)]
pub struct Sources {
    jobs: RefCell<BTreeMap<PathBuf, Document>>,
    traces: RefCell<BTreeMap<PathBuf, Arc<Trace>>>,
}

/// A path relative to the document that names it.
fn beside(document: &Document, path: &Path) -> PathBuf {
    Path::new(document.name()).parent().unwrap_or(Path::new("")).join(path)
}

impl Sources {
    /// A job of a job file.
    pub(crate) fn job(
        &self,
        document: &Document,
        path: &Path,
        job: Option<&str>,
    ) -> Result<Imported, Error> {
        let path = beside(document, path);
        let known = self.jobs.borrow().get(&path).cloned();
        let file = match known {
            Some(file) => file,
            None => {
                let file = Document::read(&path)?;
                self.jobs.borrow_mut().insert(path, file.clone());
                file
            }
        };
        import(&file, job)
    }

    /// The trace in a file, read on first use and shared afterwards.
    pub(crate) fn trace(&self, document: &Document, path: &Path) -> Result<Arc<Trace>, Error> {
        let path = beside(document, path);
        if let Some(trace) = self.traces.borrow().get(&path) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(read(&path, |_| {})?);
        self.traces.borrow_mut().insert(path, Arc::clone(&trace));
        Ok(trace)
    }
}
