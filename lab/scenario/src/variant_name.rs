//! Names of variants and of their phases, as the answer of a study has them.

/// Name of a phase in the answer of a study.
pub(crate) fn phase_name(variant: Option<&str>, phase: &str) -> String {
    match variant {
        Some(variant) => format!("{variant}.{phase}"),
        None => phase.to_owned(),
    }
}

/// Name of a variant together with a combination of swept values.
pub(crate) fn swept_name(variant: Option<&str>, combination: &str) -> String {
    variant.map_or(combination.to_owned(), |variant| format!("{variant},{combination}"))
}

/// Whether a variant belongs to this combination of swept values.
pub(crate) fn is_swept(variant: &str, combination: &str) -> bool {
    let rest = variant.strip_suffix(combination);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(','))
}
