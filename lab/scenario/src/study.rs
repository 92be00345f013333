//! A study: one scenario, or several variants of it with a common answer.

use parda_config::{Document, Error};
use parda_workload::Traces;

use crate::answer::{Engine, PhaseAnswer, RunAnswer};
use crate::check::{check, expectations};
use crate::expectation::Expectation;
use crate::file::File;
use crate::plot::{ChartView, Plot, plots};
pub use crate::run::Run;
use crate::run::phases;
use crate::scenario::Scenario;
pub use crate::sweep::Sweep;
use crate::vary::{Variation, variations};

/// A study: one scenario to run, or several variants of it.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the scenario, from its `name` key.
    pub name: String,
    /// Title of the study, one line.
    pub title: String,
    /// Description: what the study shows and why. May be empty.
    pub description: String,
    /// Runs, in the order of the file. Never empty.
    pub runs: Vec<Run>,
    /// Expectations over all runs. The scenarios of the runs have none themselves.
    pub expectations: Vec<Expectation>,
    /// Charts to draw. Never empty.
    pub plots: Vec<Plot>,
}

impl Scenario {
    /// The scenario that a document describes.
    ///
    /// # Errors
    /// The document is not TOML, or has an unknown key or an invalid value; the error points at it. A
    /// document with variants is refused as well, since it describes several scenarios: see [`Study`].
    pub fn parse(document: &Document) -> Result<Scenario, Error> {
        let Study { mut runs, expectations, .. } = Study::parse(document)?;
        match runs.pop() {
            Some(Run { variant: None, scenario, .. }) => Ok(Scenario { expectations, ..scenario }),
            _ => Err(document.error("name", "has variants: name one of them")),
        }
    }
}

impl Study {
    /// The study that a document describes.
    ///
    /// # Errors
    /// As for [`Scenario::parse`]. Besides, a variant may be invalid.
    pub fn parse(document: &Document) -> Result<Study, Error> {
        Study::parse_swept(document, &[])
    }

    /// The study that a document describes, swept over `more` besides: every run once for each
    /// combination of the values. Its expectations hold for each combination.
    ///
    /// # Errors
    /// As for [`Study::parse`].
    pub fn parse_swept(document: &Document, more: &[Sweep]) -> Result<Study, Error> {
        Study::of(document, more, &Traces::default())
    }

    fn of(document: &Document, more: &[Sweep], traces: &Traces) -> Result<Study, Error> {
        let file: File = document.parse()?;
        // The base is checked without variants, so that a later error is the variant's.
        let base = check(document, &file, None, traces)?;
        let variations = variations(document, &file, more)?;
        let runs: Vec<Run> = if variations.is_empty() {
            vec![Run { variant: None, settings: Vec::new(), places: Vec::new(), scenario: base }]
        } else {
            let run = |variation: Variation| {
                let scenario = variation.scenario(document, traces)?;
                let Variation { name, settings, places, .. } = variation;
                let settings = settings.iter().map(|s| (s.path().to_owned(), s.text())).collect();
                Ok(Run { variant: Some(name), settings, places, scenario })
            };
            variations.into_iter().map(run).collect::<Result<_, Error>>()?
        };
        let Scenario { name, title, description, .. } = &runs[0].scenario;
        let (name, title, description) = (name.clone(), title.clone(), description.clone());
        let expectations = match more {
            [] => expectations(document, &file.expect, &phases(&runs))?,
            _ => {
                let once = Study::of(document, &[], traces)?;
                once.expected_of_each(&runs)
            }
        };
        let swept: Vec<&str> = more.iter().chain(&file.sweep).map(|s| s.key.as_str()).collect();
        let plots = plots(document, &file.plot, &runs, &title, &swept, !more.is_empty())?;
        Ok(Study { name, title, description, runs, expectations, plots })
    }

    /// The expectations of this study for each combination of the sweep that gave these runs.
    fn expected_of_each(self, swept: &[Run]) -> Vec<Expectation> {
        let known = phases(&self.runs);
        let first = self.runs[0].variant.as_deref();
        // The first run of the study occurs once with each combination.
        let combinations = swept.iter().filter_map(|run| {
            let variant = run.variant.as_deref()?;
            match first {
                None => Some(variant),
                Some(first) => variant.strip_prefix(first)?.strip_prefix(','),
            }
        });
        let of_one = |combination| {
            self.expectations
                .iter()
                .map(|expectation| {
                    let mut expectation = expectation.clone();
                    expectation.what = expectation.what.swept(combination, &known);
                    expectation.of = expectation.of.map(|of| of.swept(combination, &known));
                    expectation
                })
                .collect::<Vec<_>>()
        };
        combinations.flat_map(of_one).collect()
    }

    /// This study with these variants only, and the expectations that concern them alone.
    ///
    /// # Errors
    /// There is no variant of such a name.
    pub fn pick(mut self, variants: &[String]) -> Result<Study, String> {
        let named = |run: &Run, name: &String| run.variant.as_ref() == Some(name);
        for name in variants {
            if !self.runs.iter().any(|run| named(run, name)) {
                let known =
                    crate::metric::list(self.runs.iter().filter_map(|r| r.variant.as_deref()));
                let known = match known.as_str() {
                    "" => "the scenario has no variants".to_owned(),
                    known => format!("there is {known}"),
                };
                return Err(format!("there is no variant `{name}`; {known}"));
            }
        }
        self.runs.retain(|run| variants.iter().any(|name| named(run, name)));
        let known = phases(&self.runs);
        // An extreme over some variants differs from the extreme over all.
        self.expectations.retain(|e| {
            [Some(&e.what), e.of.as_ref()].into_iter().flatten().all(|m| m.is_of_one_of(&known))
        });
        self.plots.retain_mut(|plot| plot.pick(&known, variants));
        Ok(self)
    }

    /// Whether one of the plots shows this run over time.
    #[must_use]
    pub fn plots_over_time(&self, run: &Run) -> bool {
        let of_run = |plot: &Plot| matches!(&plot.view, ChartView::Time { variant, .. } if *variant == run.variant);
        self.plots.iter().any(of_run)
    }

    /// Sets the seed of every run.
    pub fn set_seed(&mut self, seed: u64) {
        self.runs.iter_mut().for_each(|run| run.scenario.seed = seed);
    }

    /// The answer, from the measured phases of each run in the order of [`Study::runs`].
    #[must_use]
    pub fn answer(&self, engine: Engine, measured: Vec<Vec<PhaseAnswer>>) -> RunAnswer {
        let of_run = |(run, phases): (&Run, Vec<PhaseAnswer>)| {
            let variant = run.variant.clone();
            phases.into_iter().map(move |phase| match &variant {
                Some(variant) => phase.of_variant(variant),
                None => phase,
            })
        };
        let phases: Vec<PhaseAnswer> = self.runs.iter().zip(measured).flat_map(of_run).collect();
        let expectations = self.expectations.iter().map(|e| e.judge(&phases)).collect();
        RunAnswer { expectations, ..RunAnswer::new(&self.runs[0].scenario, engine, phases) }
    }
}
