//! Collection of cases.

use super::fixture::Fixture;
use super::outcome::CaseResult;

/// One case.
pub(super) struct DriverCase {
    pub(super) name: String,
    pub(super) run: Box<dyn Fn(&Fixture<'_>) -> CaseResult + Send + Sync>,
}

/// The list of cases.
#[derive(Default)]
pub(super) struct Cases(pub(super) Vec<DriverCase>);

impl Cases {
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        run: impl Fn(&Fixture<'_>) -> CaseResult + Send + Sync + 'static,
    ) {
        self.0.push(DriverCase {
            name: name.into(),
            run: Box::new(run),
        });
    }
}
