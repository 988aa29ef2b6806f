//! Revisions and the stream's sequences.
//!
//! To the server a delete's marker is a message like others: a write that expects its sequence
//! would be accepted, although nothing is there to be overwritten. So a revision also says what
//! kind of write it was: it is twice the sequence, and one more for a delete.

use super::super::Revision;

/// The revision of a value.
pub(super) fn of_value(sequence: u64) -> Revision {
    Revision(sequence.saturating_mul(2))
}

/// The revision of a delete.
pub(super) fn of_delete(sequence: u64) -> Revision {
    Revision(sequence.saturating_mul(2).saturating_add(1))
}

/// The sequence of a value's revision; `None` if no value ever has it.
pub(super) fn sequence(revision: Revision) -> Option<u64> {
    (revision.0 > 0 && revision.0.is_multiple_of(2)).then_some(revision.0 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_values_revision_can_be_expected() {
        assert_eq!(sequence(of_value(7)), Some(7));
        assert_eq!(sequence(of_delete(7)), None);
        assert_eq!(sequence(Revision(0)), None);
        assert_eq!(sequence(Revision(u64::MAX)), None);
        assert!(of_value(7) < of_delete(7) && of_delete(7) < of_value(8));
    }
}
