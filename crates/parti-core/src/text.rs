//! Words of texts that people read.

/// A count with its word: `1 partition`, `2 partitions`.
pub fn count(number: impl Into<u128>, word: &str) -> String {
    match number.into() {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    }
}

/// The first few of a list, and how many more there are: `a, b and 3 more`.
pub fn few<T: ToString>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut all = all.into_iter();
    let first: Vec<String> = all.by_ref().take(most).map(|one| one.to_string()).collect();
    let named = first.join(", ");
    match all.count() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Whether a character would steer a terminal, or begin a new line, instead of being shown.
pub fn steers(c: char) -> bool {
    // Line and paragraph separators; what turns the direction of writing round.
    let format = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(0_u64, "move"), "0 moves");
        assert_eq!(count(1_u64, "move"), "1 move");
        assert_eq!(count(2_u64, "move"), "2 moves");
    }

    #[test]
    fn what_is_not_named_is_counted() {
        assert_eq!(few(["a"], 2), "a");
        assert_eq!(few(["a", "b"], 2), "a, b");
        assert_eq!(few(["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(few(Vec::<String>::new(), 2), "");
    }
}
