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

/// Characters that nobody sees, as ranges in order: what steers a terminal or begins a new line
/// (control characters, U+2028, U+2029), and what Unicode has programs show as nothing, or as a
/// change of the text around it: `Default_Ignorable_Code_Point` of `DerivedCoreProperties.txt`,
/// Unicode 16.0. That property holds what turns the direction of writing round, too, and blocks
/// that are set aside for more of its kind, so it hardly changes from version to version. Beside it
/// the blank of braille (U+2800): a symbol to Unicode, and no space, that shows nothing at all.
///
/// Subjects of partitions go by it, too (`codec`), so it stays as it is.
pub const UNSEEN: [(char, char); 21] = [
    ('\u{0}', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether nobody sees this character: it is one of [`UNSEEN`].
pub fn is_unseen(c: char) -> bool {
    // Nearly all text is of this kind, and is asked for character by character.
    if matches!(c, ' '..='~') {
        return false;
    }
    UNSEEN
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&c))
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

    #[test]
    fn what_nobody_sees_is_known_whatever_its_kind() {
        let ordered = UNSEEN.iter().flat_map(|(first, last)| [first, last]);
        assert!(ordered.is_sorted(), "each range once, in order");
        for c in '\0'..=char::MAX {
            assert!(!c.is_control() || is_unseen(c), "{c:?}");
        }
        for c in [
            '\n',
            '\u{ad}',
            '\u{115f}',
            '\u{200b}',
            '\u{200d}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(is_unseen(c), "{c:?}");
        }
        // Spaces are seen by what they part; an accent, by the letter below it.
        for c in [
            ' ', '\u{a0}', '\u{3000}', 'a', '~', 'é', '\u{301}', '字', '\u{94d}', '😀', '⠁',
        ] {
            assert!(!is_unseen(c), "{c:?}");
        }
    }
}
