//! From the words of a command line to values.

/// A whole number, 1 or more.
///
/// # Errors
/// Words for the user: what to give.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("give a whole number, 1 or more".into()),
    }
}
