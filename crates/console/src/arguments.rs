//! Parsing of command-line arguments.

/// A whole number, 1 or more.
///
/// # Errors
/// A message for the user that says what to give.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("give a whole number, 1 or more".into()),
    }
}
